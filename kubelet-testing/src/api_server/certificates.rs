//! Approving and signing certificate signing requests, as the controller manager does.

pub(crate) mod request;
mod signer;

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::objects::Fields;
use request::Request;

pub(crate) use signer::Signer;

const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client-kubelet";
const SERVING_SIGNER: &str = "kubernetes.io/kubelet-serving";

impl Signer {
    /// The approver's word on a request without a condition: the object to store, or `None` to leave it alone. As in a
    /// cluster made by `kubeadm`, nodes and those who may bootstrap one (masters among them) get client certificates;
    /// serving certificates wait for somebody's approval.
    pub(crate) fn approve(&self, csr: &Value, now: Timestamp) -> Option<Value> {
        let (spec, status) = (&csr["spec"], &csr["status"]);
        if !status.text("certificate").is_empty()
            || has_condition(csr, "Approved")
            || has_condition(csr, "Denied")
            || spec.text("signerName") != CLIENT_SIGNER
        {
            return None;
        }
        let request = request::parse(spec.text("request")).ok()?;
        check_client(&request, &usages(csr)).ok()?;
        let is_in = |group: &str| spec.list("groups").iter().any(|member| member == group);
        let message = if spec.text("username") == request.common_name && is_in("system:nodes") {
            "Auto approving self kubelet client certificate after SubjectAccessReview."
        } else if is_in("system:masters") {
            // Who may do all is found allowed to renew himself, whoever he is.
            if spec.text("username") == request.common_name {
                "Auto approving self kubelet client certificate after SubjectAccessReview."
            } else {
                "Auto approving kubelet client certificate after SubjectAccessReview."
            }
        } else if is_in("system:bootstrappers") {
            "Auto approving kubelet client certificate after SubjectAccessReview."
        } else {
            return None;
        };
        Some(with_condition(csr, "Approved", "AutoApproved", message, now))
    }

    /// Signs an approved request, or says why it can't: the object to store, or `None` when there is nothing to do.
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

/// All of these, but that keys that cannot encipher need not say that they do.
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
