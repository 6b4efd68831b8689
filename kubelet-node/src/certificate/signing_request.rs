//! Requests certificates from the API server (client-go's `util/certificate/csr`).

use std::fmt;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestSpec};
use k8s_openapi::jiff::Timestamp;
use kube_client::api::{ListParams, PostParams, WatchEvent, WatchParams};
use kube_client::{Api, Client};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use sha2::{Digest, Sha512_256};
use tokio::time::timeout;
use x509_parser::prelude::{FromDer, X509Certificate, X509CertificationRequest};

use super::key::Key;
use super::template::CertificateTemplate;
use crate::informer::follow::SILENCE;
use crate::{Error, Result};

/// The wait before a request is read again, after a watch ended or the server did not answer.
const RETRY: Duration = Duration::from_secs(1);
/// How long to wait for an answer.
const DEADLINE: Duration = Duration::from_secs(60);

/// The signer, and so the purpose of the certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signer {
    /// `kubernetes.io/kube-apiserver-client-kubelet`.
    Client,
    /// `kubernetes.io/kubelet-serving`.
    Serving,
}

impl Signer {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Signer::Client => "kubernetes.io/kube-apiserver-client-kubelet",
            Signer::Serving => "kubernetes.io/kubelet-serving",
        }
    }

    fn usages(self, key: &Key) -> Vec<String> {
        let role = match self {
            Signer::Client => "client auth",
            Signer::Serving => "server auth",
        };
        let encipherment = key.is_rsa().then_some("key encipherment");
        ["digital signature"]
            .into_iter()
            .chain(encipherment)
            .chain([role])
            .map(str::to_owned)
            .collect()
    }
}

/// A certificate signing request in the API server.
#[derive(Clone, Debug)]
pub(crate) struct Requested {
    pub(crate) name: String,
    uid: String,
}

/// A certificate signing request to make.
pub(crate) struct Request<'a> {
    pub(crate) signer: Signer,
    pub(crate) key: &'a Key,
    pub(crate) template: &'a CertificateTemplate,
    /// Without a name the server generates one.
    pub(crate) name: Option<String>,
    pub(crate) lifetime: Option<Duration>,
}

impl Request<'_> {
    /// Creates the request, or finds an earlier one with the same key (`RequestCertificate`).
    ///
    /// # Errors
    ///
    /// [`Error::Api`]; [`Error::SigningRequest`] if another request has this name, or if its certificate has
    /// expired.
    pub(crate) async fn submit(&self, client: &Client, now: Timestamp) -> Result<Requested> {
        let api: Api<CertificateSigningRequest> = Api::all(client.clone());
        let object = self.object()?;
        let params = PostParams::default();
        let creating = api.create(&params, &object);
        let created = answer("create certificatesigningrequest", creating).await;
        let created = match (created, self.name.as_deref()) {
            (Err(error), Some(name)) if error.code() == Some(409) => {
                let what = format!("get certificatesigningrequest {name}");
                let found = answer(&what, api.get(name)).await?;
                self.check(&found, now).map_err(|problem| Error::SigningRequest {
                    name: name.into(),
                    problem,
                })?;
                tracing::info!(
                    csr = name,
                    "using the existing certificate signing request of this node"
                );
                found
            }
            (created, _) => created?,
        };
        Ok(Requested {
            name: created.metadata.name.unwrap_or_default(),
            uid: created.metadata.uid.unwrap_or_default(),
        })
    }

    fn object(&self) -> Result<CertificateSigningRequest> {
        let request = self
            .template
            .request(self.key)
            .map_err(|problem| Error::SigningRequest {
                name: self.name.clone().unwrap_or_else(|| "csr-".into()),
                problem,
            })?;
        let mut object = CertificateSigningRequest {
            spec: CertificateSigningRequestSpec {
                request: ByteString(request.into_bytes()),
                signer_name: self.signer.name().into(),
                usages: Some(self.signer.usages(self.key)),
                expiration_seconds: self
                    .lifetime
                    .map(|lifetime| i32::try_from(lifetime.as_secs()).unwrap_or(i32::MAX)),
                ..CertificateSigningRequestSpec::default()
            },
            ..CertificateSigningRequest::default()
        };
        match &self.name {
            Some(name) => object.metadata.name = Some(name.clone()),
            None => object.metadata.generate_name = Some("csr-".into()),
        }
        Ok(object)
    }

    /// Checks that an existing request is the same as this one (`ensureCompatible`).
    fn check(&self, found: &CertificateSigningRequest, now: Timestamp) -> std::result::Result<(), String> {
        if found.spec.signer_name != self.signer.name() {
            return Err(format!("it is for the signer {:?}", found.spec.signer_name));
        }
        let der = rustls::pki_types::CertificateSigningRequestDer::from_pem_slice(&found.spec.request.0)
            .map_err(|error| format!("its request is not PEM: {error}"))?;
        let (_, request) = X509CertificationRequest::from_der(&der)
            .map_err(|error| format!("its request cannot be read: {error}"))?;
        let info = &request.certification_request_info;
        if info.subject_pki.raw != self.key.public_key_info() || request.verify_signature().is_err() {
            return Err("it was made with another key".into());
        }
        let text = |name: &x509_parser::x509::AttributeTypeAndValue<'_>| {
            name.as_str().unwrap_or_default().to_owned()
        };
        let common_name: Vec<String> = info.subject.iter_common_name().map(text).collect();
        let organizations: Vec<String> = info.subject.iter_organization().map(text).collect();
        if common_name != [self.template.common_name.as_str()] || organizations != self.template.organizations
        {
            return Err(format!("it is for another subject, {}", info.subject));
        }
        let Some(certificate) = found
            .status
            .as_ref()
            .and_then(|status| status.certificate.as_ref())
        else {
            return Ok(());
        };
        for der in CertificateDer::pem_slice_iter(&certificate.0) {
            let der = der.map_err(|error| format!("its certificate is not PEM: {error}"))?;
            let (_, certificate) = X509Certificate::from_der(&der)
                .map_err(|error| format!("its certificate cannot be read: {error}"))?;
            let not_after = certificate.validity().not_after;
            if now.as_second() > not_after.timestamp() {
                return Err(format!("its certificate expired at {not_after}"));
            }
        }
        Ok(())
    }
}

/// The name of a node's first request. It is derived from key, subject and usages, so that it is found after a
/// restart (`digestedName`).
pub(crate) fn digested_name(key: &Key, template: &CertificateTemplate, signer: Signer) -> String {
    let mut hash = Sha512_256::new();
    // The kubelet appends the usage for RSA keys when it derives this name.
    let mut usages = signer.usages(key);
    usages.sort_by_key(|usage| usage == "key encipherment");
    let texts = [template.common_name.as_str()];
    let texts = texts
        .into_iter()
        .chain(template.organizations.iter().chain(&usages).map(String::as_str));
    for data in [key.public_key_info()]
        .into_iter()
        .chain(texts.map(str::as_bytes))
    {
        hash.update(url_safe(data));
        // A separator outside of the alphabet: different lists give different texts.
        hash.update(b"|");
    }
    format!("node-csr-{}", url_safe(&hash.finalize()))
}

fn url_safe(data: &[u8]) -> String {
    use base64::Engine;
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(data)
}

/// Waits without a limit until the certificate is issued, and returns it as PEM (`WaitForCertificate`).
///
/// # Errors
///
/// [`Error::CertificateDenied`], [`Error::CertificateFailed`]; [`Error::SigningRequest`] if it was deleted.
///
/// # Cancel safety
///
/// The future may be dropped at any time. The call can be repeated.
pub(crate) async fn wait_for_certificate(client: &Client, request: &Requested) -> Result<Vec<u8>> {
    let api: Api<CertificateSigningRequest> = Api::all(client.clone());
    let selector = format!("metadata.name={}", request.name);
    let mut approved = false;
    loop {
        match answer("list", api.list(&ListParams::default().fields(&selector))).await {
            Err(error) => problem(request, &error),
            Ok(list) => {
                let Some(found) = list.items.first() else {
                    return Err(request.gone("it was deleted"));
                };
                if let Some(certificate) = request.judge(found, &mut approved)? {
                    return Ok(certificate);
                }
                let version = list.metadata.resource_version.as_deref().unwrap_or_default();
                if let Some(certificate) = watch(&api, &selector, version, request, &mut approved).await? {
                    return Ok(certificate);
                }
            }
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// Watches the request until its certificate is issued or the watch ends.
async fn watch(
    api: &Api<CertificateSigningRequest>,
    selector: &str,
    version: &str,
    request: &Requested,
    approved: &mut bool,
) -> Result<Option<Vec<u8>>> {
    let params = WatchParams::default().fields(selector);
    let events = match answer("watch", api.watch(&params, version)).await {
        Ok(events) => events,
        Err(error) => {
            problem(request, &error);
            return Ok(None);
        }
    };
    let mut events = events.boxed();
    loop {
        let Ok(event) = timeout(SILENCE, events.try_next()).await else {
            problem(request, &"the watch sent no events for too long");
            return Ok(None);
        };
        match event {
            Ok(Some(WatchEvent::Added(found) | WatchEvent::Modified(found))) => {
                if let Some(certificate) = request.judge(&found, approved)? {
                    return Ok(Some(certificate));
                }
            }
            Ok(Some(WatchEvent::Deleted(_))) => return Err(request.gone("it was deleted")),
            Ok(Some(WatchEvent::Bookmark(_))) => {}
            Ok(Some(WatchEvent::Error(status))) => {
                problem(request, &status.message);
                return Ok(None);
            }
            Ok(None) => return Ok(None),
            Err(error) => {
                problem(request, &error);
                return Ok(None);
            }
        }
    }
}

impl Requested {
    fn judge(&self, found: &CertificateSigningRequest, approved: &mut bool) -> Result<Option<Vec<u8>>> {
        if found.metadata.uid.as_deref() != Some(self.uid.as_str()) {
            return Err(self.gone("it was deleted, and another request has its name"));
        }
        let status = found.status.clone().unwrap_or_default();
        let mut is_approved = false;
        for condition in status.conditions.iter().flatten() {
            let (name, reason) = (self.name.clone(), condition.reason.clone().unwrap_or_default());
            let message = condition.message.clone().unwrap_or_default();
            match condition.type_.as_str() {
                "Denied" => {
                    return Err(Error::CertificateDenied {
                        name,
                        reason,
                        message,
                    });
                }
                "Failed" => {
                    return Err(Error::CertificateFailed {
                        name,
                        reason,
                        message,
                    });
                }
                "Approved" => is_approved = true,
                _ => {}
            }
        }
        if is_approved && !std::mem::replace(approved, true) {
            tracing::info!(csr = self.name, "the certificate signing request was approved");
        }
        Ok(status
            .certificate
            .map(|pem| pem.0)
            .filter(|pem| is_approved && !pem.is_empty()))
    }

    fn gone(&self, problem: &str) -> Error {
        Error::SigningRequest {
            name: self.name.clone(),
            problem: problem.into(),
        }
    }
}

fn problem(request: &Requested, error: &dyn fmt::Display) {
    tracing::warn!(csr = request.name, %error, "cannot read the certificate signing request");
}

/// The API server's answer, with a timeout.
async fn answer<T>(what: &str, request: impl Future<Output = kube_client::Result<T>>) -> Result<T> {
    match timeout(DEADLINE, request).await {
        Ok(answer) => answer.map_err(|error| Error::api(what, error)),
        Err(_) => Err(Error::Timeout {
            what: what.to_owned(),
            after: DEADLINE,
        }),
    }
}

#[cfg(test)]
mod tests {
    use rcgen::CertificateSigningRequestParams;

    use super::*;

    /// Keys in the forms that a kubelet and `openssl` write. The names were derived from their public keys by
    /// hand.
    #[test]
    fn the_name_of_a_request_follows_from_its_key() {
        let cases: [(&[u8], &str, &[&str]); 2] = [
            (
                include_bytes!("../../tests/data/kubelet-client.ec.key"),
                "node-csr-Cnut2YiHmSEO87MxTYP4k4KeKT_9FSkttNcIfvi3XTI",
                &["digital signature", "client auth"],
            ),
            (
                include_bytes!("../../tests/data/kubelet-client.rsa.key"),
                "node-csr-i_b1B-zvM-rPcnma2c-MVpXjqAmiyMTz1PBqCkzJA0g",
                &["digital signature", "key encipherment", "client auth"],
            ),
        ];
        for (key, name, usages) in cases {
            let key = Key::from_pem(key).unwrap();
            let template = CertificateTemplate::node_client("node-1");
            assert_eq!(digested_name(&key, &template, Signer::Client), name);
            let request = Request {
                signer: Signer::Client,
                key: &key,
                template: &template,
                name: Some(name.into()),
                lifetime: Some(Duration::from_secs(3600)),
            };
            let object = request.object().unwrap();
            assert_eq!(object.spec.usages.as_deref().unwrap(), usages);
            assert_eq!(object.spec.expiration_seconds, Some(3600));
            // The signature is valid.
            CertificateSigningRequestParams::from_pem(std::str::from_utf8(&object.spec.request.0).unwrap())
                .unwrap();
            request.check(&object, Timestamp::UNIX_EPOCH).unwrap();
        }
    }

    #[test]
    fn another_request_is_none_of_ours() {
        let (key, other) = (Key::generate().unwrap(), Key::generate().unwrap());
        let template = CertificateTemplate::node_client("node-1");
        let request = |key, template, signer| Request {
            signer,
            key,
            template,
            name: Some("r".into()),
            lifetime: None,
        };
        let ours = request(&key, &template, Signer::Client);
        let node_2 = CertificateTemplate::node_client("node-2");
        let of = |request: Request<'_>| request.object().unwrap();
        let mut broken = ours.object().unwrap();
        broken.spec.request.0.truncate(100);
        for (found, why) in [
            (
                of(request(&other, &template, Signer::Client)),
                "it was made with another key",
            ),
            (
                of(request(&key, &node_2, Signer::Client)),
                "it is for another subject",
            ),
            (
                of(request(&key, &template, Signer::Serving)),
                "it is for the signer",
            ),
            (broken, "its request is not PEM"),
        ] {
            let problem = ours.check(&found, Timestamp::UNIX_EPOCH).unwrap_err();
            assert!(problem.starts_with(why), "{problem}");
        }
    }
}
