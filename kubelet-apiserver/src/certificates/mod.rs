//! Approves and signs certificate signing requests as the controller manager does.

pub(crate) mod request;
mod signer;
mod signing;

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::objects::Fields;
use request::Request;

pub(crate) use signer::Signer;
pub(crate) use signing::Signing;

const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client-kubelet";
const SERVING_SIGNER: &str = "kubernetes.io/kubelet-serving";

impl Signer {
    /// The approver's decision on a request without a condition: the object to store, or `None` to leave the request
    /// pending. As in a cluster made by `kubeadm`, nodes and users who may bootstrap a node (masters among them) get
    /// client certificates. Serving certificates wait for manual approval.
    pub(crate) fn approve(&self, csr: &Value, now: Timestamp) -> Option<Value> {
        let (spec, status) = (&csr["spec"], &csr["status"]);
        if !self.approves
            || !status.text("certificate").is_empty()
            || has_condition(csr, "Approved")
            || has_condition(csr, "Denied")
            || spec.text("signerName") != CLIENT_SIGNER
        {
            return None;
        }
        let request = request::parse(spec.text("request")).ok()?;
        check_client(&request, &usages(csr)).ok()?;
        let is_in = |group: &str| spec.list("groups").iter().any(|member| member == group);
        let own = spec.text("username") == request.common_name;
        let allowed =
            is_in("system:masters") || is_in("system:bootstrappers") || own && is_in("system:nodes");
        if !allowed {
            return None;
        }
        let message = if own {
            "Auto approving self kubelet client certificate after SubjectAccessReview."
        } else {
            "Auto approving kubelet client certificate after SubjectAccessReview."
        };
        Some(with_condition(csr, "Approved", "AutoApproved", message, now))
    }

    /// Signs an approved request, or records why it cannot: the object to store, or `None` if there is nothing to do.
    pub(crate) fn sign(&self, csr: &Value, now: Timestamp) -> Option<Value> {
        let (spec, status) = (&csr["spec"], &csr["status"]);
        let check = match spec.text("signerName") {
            CLIENT_SIGNER => check_client,
            SERVING_SIGNER => check_serving,
            _ => return None,
        };
        if !status.text("certificate").is_empty()
            || !has_condition(csr, "Approved")
            || has_condition(csr, "Denied")
            || has_condition(csr, "Failed")
        {
            return None;
        }
        let request = request::parse(spec.text("request"));
        let signed = request.and_then(|request| {
            check(&request, &usages(csr))?;
            self.issue(
                &request,
                &usages(csr),
                spec.number("expirationSeconds"),
                csr["metadata"].text("uid"),
                now,
            )
        });
        Some(match signed {
            Ok(certificate) => {
                let mut signed = csr.clone();
                signed["status"]["certificate"] = json!(certificate);
                signed
            }
            Err(why) => with_condition(csr, "Failed", "SignerValidationFailure", &why, now),
        })
    }
}

fn has_condition(csr: &Value, kind: &str) -> bool {
    csr["status"]
        .list("conditions")
        .iter()
        .any(|condition| condition.text("type") == kind)
}

fn with_condition(csr: &Value, kind: &str, reason: &str, message: &str, now: Timestamp) -> Value {
    let now = super::objects::time(now);
    let mut csr = csr.clone();
    let mut conditions = csr["status"].list("conditions").to_vec();
    conditions.push(json!({
        "type": kind, "status": "True", "reason": reason, "message": message,
        "lastUpdateTime": now, "lastTransitionTime": now,
    }));
    csr["status"]["conditions"] = Value::Array(conditions);
    csr
}

fn usages(csr: &Value) -> Vec<&str> {
    let mut usages: Vec<&str> = csr["spec"]
        .list("usages")
        .iter()
        .filter_map(Value::as_str)
        .collect();
    usages.sort_unstable();
    usages.dedup();
    usages
}

/// `ValidateKubeletClientCSR`.
fn check_client(request: &Request, usages: &[&str]) -> Result<(), String> {
    check_node(request)?;
    for (names, kind) in [
        (request.dns_names, "DNS"),
        (request.emails, "Email"),
        (request.ips, "IP"),
        (request.uris, "URI"),
    ] {
        if names > 0 {
            return Err(format!("{kind} subjectAltNames are not allowed"));
        }
    }
    check_name(request)?;
    check_usages(usages, ["client auth", "digital signature", "key encipherment"])
}

/// `ValidateKubeletServingCSR`.
fn check_serving(request: &Request, usages: &[&str]) -> Result<(), String> {
    check_node(request)?;
    if request.dns_names + request.ips == 0 {
        return Err("DNS or IP subjectAltName is required".into());
    }
    for (names, kind) in [(request.emails, "Email"), (request.uris, "URI")] {
        if names > 0 {
            return Err(format!("{kind} subjectAltNames are not allowed"));
        }
    }
    check_usages(usages, ["digital signature", "key encipherment", "server auth"])?;
    check_name(request)
}

fn check_node(request: &Request) -> Result<(), String> {
    if request.organizations != ["system:nodes"] {
        return Err("subject organization is not system:nodes".into());
    }
    Ok(())
}

fn check_name(request: &Request) -> Result<(), String> {
    if !request.common_name.starts_with("system:node:") {
        return Err("subject common name does not begin with system:node:".into());
    }
    Ok(())
}

/// All of these are required, except that keys that cannot encipher may omit the encipherment usages.
fn check_usages(usages: &[&str], required: [&str; 3]) -> Result<(), String> {
    let without: Vec<&str> = required
        .into_iter()
        .filter(|usage| *usage != "key encipherment")
        .collect();
    if usages != required && usages != without {
        return Err(format!("usages did not match [{}]", required.join(" ")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::signer::DURATION;
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use rcgen::{CertificateParams, DnType, KeyPair, SanType};

    use super::*;

    fn request(common_name: &str, group: &str, names: &[&str]) -> String {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, common_name);
        params.distinguished_name.push(DnType::OrganizationName, group);
        for name in names {
            let name = (*name).try_into().unwrap();
            params.subject_alt_names.push(SanType::DnsName(name));
        }
        STANDARD.encode(params.serialize_request(&key).unwrap().pem().unwrap())
    }

    fn csr(signer: &str, user: &str, group: &str, request: &str, usages: &[&str]) -> Value {
        json!({
            "metadata": {"name": "c", "uid": "8ce69dad-8f8c-4f88-9d6c-164221525f89"},
            "spec": {"signerName": signer, "username": user, "groups": [group], "request": request, "usages": usages},
            "status": {},
        })
    }

    #[test]
    fn approves_and_signs_as_the_controllers_do() {
        const CLIENT: [&str; 2] = ["digital signature", "client auth"];
        const SERVING: [&str; 3] = ["digital signature", "key encipherment", "server auth"];
        let now = Timestamp::from_second(1_767_225_600).unwrap();
        let signer = Signer::new(&mut fastrand::Rng::with_seed(1), now, DURATION).unwrap();
        assert!(signer.certificate().starts_with("-----BEGIN CERTIFICATE-----"));
        let node = request("system:node:n", "system:nodes", &[]);
        let serving = request("system:node:n", "system:nodes", &["n"]);
        let stranger = request("somebody", "system:nodes", &[]);
        let wrong = request("system:node:n", "system:masters", &[]);
        // Signer, user, group, request, usages; whether it is approved, and once approved whether it is signed.
        type Case<'a> = (&'a str, &'a str, &'a str, &'a str, &'a [&'a str], bool, bool);
        let cases: [Case<'_>; 8] = [
            (
                CLIENT_SIGNER,
                "system:node:n",
                "system:nodes",
                &node,
                &CLIENT,
                true,
                true,
            ),
            (
                CLIENT_SIGNER,
                "b",
                "system:bootstrappers",
                &node,
                &CLIENT,
                true,
                true,
            ),
            (
                CLIENT_SIGNER,
                "system:node:m",
                "system:nodes",
                &node,
                &CLIENT,
                false,
                true,
            ),
            (
                CLIENT_SIGNER,
                "b",
                "system:bootstrappers",
                &stranger,
                &CLIENT,
                false,
                false,
            ),
            (
                CLIENT_SIGNER,
                "b",
                "system:bootstrappers",
                &wrong,
                &CLIENT,
                false,
                false,
            ),
            (
                CLIENT_SIGNER,
                "b",
                "system:bootstrappers",
                &node,
                &SERVING,
                false,
                false,
            ),
            (
                SERVING_SIGNER,
                "system:node:n",
                "system:nodes",
                &serving,
                &SERVING,
                false,
                true,
            ),
            (
                SERVING_SIGNER,
                "system:node:n",
                "system:nodes",
                &node,
                &SERVING,
                false,
                false,
            ),
        ];
        for (name, user, group, request, usages, approved, signed) in cases {
            let csr = csr(name, user, group, request, usages);
            assert_eq!(signer.approve(&csr, now).is_some(), approved, "{csr}");
            assert!(signer.sign(&csr, now).is_none(), "it is not approved: {csr}");
            let csr = with_condition(&csr, "Approved", "Test", "", now);
            let done = signer.sign(&csr, now).unwrap();
            assert_eq!(!done["status"].text("certificate").is_empty(), signed, "{done}");
            assert_eq!(has_condition(&done, "Failed"), !signed, "{done}");
            assert!(signer.sign(&done, now).is_none(), "once is enough: {done}");
        }
    }
}
