//! Finds out why a node cannot join its cluster.

mod ask;
mod finding;

use std::path::PathBuf;

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube_client::Client;
use kubelet_core::Clock;
use serde_json::{Value, json};

use self::ask::{Answer, Ask};
pub use self::finding::{Finding, MissingPermission};
use crate::LocalNode;
use crate::lease::NAMESPACE;

/// The largest accepted clock difference. It allows for the time of the answer and for the whole seconds of an
/// HTTP date.
const MAX_SKEW: SignedDuration = SignedDuration::from_secs(5);

/// What to check besides the node itself.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct PreflightConfig {
    /// The serving certificate that must exist (`kubelet-server-current.pem`), if the node requests a signed
    /// one.
    pub serving_certificate: Option<PathBuf>,
    /// The names of the certificate signing requests that the node waits for.
    pub certificate_requests: Vec<String>,
    /// Whether the client has only a bootstrap token. Then only the requests for a certificate are checked.
    pub bootstrapping: bool,
    /// The host's clock.
    pub clock: Clock,
}

/// Checks whether the node `local` can join its cluster and stay in it. It checks the host, and sends the
/// requests of an agent with `client`. It changes nothing: write requests are dry runs.
///
/// The findings are in the order in which they should be fixed. An empty list means that no problem was found.
///
/// ```
/// use kubelet_node::{FixedNetwork, Finding, LocalNode, MachineInfo, NodeConfig, PreflightConfig, preflight};
/// use kubelet_testing::{ApiServer, User};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let server = ApiServer::new();
/// let mut config = NodeConfig::new("node-1");
/// config.node_labels.insert("node-restriction.kubernetes.io/team".into(), "a".into());
/// let local = LocalNode::builder(config, MachineInfo::new(2, 4 << 30));
/// let local = local.network(FixedNetwork::new(["10.0.0.7".parse().unwrap()])).build();
///
/// let client = server.client_as(User::node("node-1"));
/// for finding in preflight(&client, &local, &PreflightConfig::default()).await {
///     println!("{finding}\n  {}", finding.advice());
/// }
/// # let found = preflight(&client, &local, &PreflightConfig::default()).await;
/// # assert!(found.iter().any(|finding| matches!(finding, Finding::Refused { .. })), "{found:?}");
/// # }
/// ```
///
/// # Cancel safety
///
/// Dropping the future drops the running request.
pub async fn preflight(client: &Client, local: &LocalNode, config: &PreflightConfig) -> Vec<Finding> {
    let mut preflight = Preflight {
        ask: Ask::new(client.clone(), config.bootstrapping),
        local,
        config,
        findings: Vec::new(),
    };
    preflight.host().await;
    if preflight.server().await {
        preflight.certificates().await;
        if !config.bootstrapping {
            preflight.node().await;
            preflight.lease().await;
            preflight.others().await;
        }
    }
    preflight.findings
}

struct Preflight<'a> {
    ask: Ask,
    local: &'a LocalNode,
    config: &'a PreflightConfig,
    findings: Vec<Finding>,
}

impl Preflight<'_> {
    async fn host(&mut self) {
        if let Err(error) = self.local.resolve_addresses().await {
            self.findings.push(Finding::AddressUnusable {
                why: error.to_string(),
            });
        }
        if let Some(file) = &self.config.serving_certificate
            && !file.exists()
        {
            self.findings
                .push(Finding::ServingCertificateMissing { file: file.clone() });
        }
    }

    /// Whether the server answers and accepts the credentials.
    async fn server(&mut self) -> bool {
        match self.ask.hello().await {
            Ok(date) => {
                self.findings.extend(date.and_then(|date| self.skew(date)));
                true
            }
            Err(finding) => {
                self.findings.push(finding);
                false
            }
        }
    }

    fn skew(&self, server: Timestamp) -> Option<Finding> {
        let ahead = self.config.clock.now().duration_since(server);
        (ahead.abs() > MAX_SKEW).then_some(Finding::ClockSkew { ahead })
    }

    async fn certificates(&mut self) {
        if self.config.bootstrapping {
            let asked = ("list", "certificates.k8s.io", "certificatesigningrequests");
            let path = "/apis/certificates.k8s.io/v1/certificatesigningrequests?limit=1";
            self.get::<Value>(asked, path).await;
        }
        for name in &self.config.certificate_requests {
            let path = format!("/apis/certificates.k8s.io/v1/certificatesigningrequests/{name}");
            let asked = ("get", "certificates.k8s.io", "certificatesigningrequests");
            if let Some(request) = self.get::<CertificateSigningRequest>(asked, &path).await {
                self.findings.extend(waiting(name, &request));
            }
        }
    }

    async fn node(&mut self) {
        let name = self.local.name();
        let path = format!("/api/v1/nodes/{name}");
        let answer = self.ask.get(("get", "", "nodes"), &path).await;
        if let Answer::NotThere = answer {
            self.findings.push(Finding::NodeAbsent {
                node: name.to_owned(),
            });
            let node = json!(self.local.bare_node());
            return self
                .dry_run(("create", "", "nodes"), "POST", "/api/v1/nodes", node)
                .await;
        }
        if let Some(node) = self.found::<Node>(answer) {
            let info = node.status.and_then(|status| status.node_info);
            let machine_id = info.map(|info| info.machine_id).unwrap_or_default();
            if !machine_id.is_empty() && machine_id != self.local.machine().machine_id {
                let node = name.to_owned();
                self.findings.push(Finding::AnotherMachine { node, machine_id });
            }
            let path = format!("{path}/status");
            self.dry_run(("patch", "", "nodes/status"), "PATCH", &path, json!({}))
                .await;
        }
    }

    async fn lease(&mut self) {
        let name = self.local.name();
        let collection = format!("/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases");
        let (path, lease) = (format!("{collection}/{name}"), format!("{NAMESPACE}/{name}"));
        let asked = |verb| (verb, "coordination.k8s.io", "leases");
        let answer = self.ask.get(asked("get"), &path).await;
        if let Answer::NotThere = answer {
            self.findings.push(Finding::LeaseAbsent { lease });
            let lease = json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                "metadata": {"name": name, "namespace": NAMESPACE}, "spec": {"holderIdentity": name},
            });
            return self.dry_run(asked("create"), "POST", &collection, lease).await;
        }
        let Some(found) = self.found::<Lease>(answer) else {
            return;
        };
        let spec = found.spec.clone().unwrap_or_default();
        if let (Some(renewed), Some(seconds)) = (spec.renew_time, spec.lease_duration_seconds) {
            let since = renewed.0.checked_add(SignedDuration::from_secs(seconds.into()));
            if let Ok(since) = since
                && since < self.config.clock.now()
            {
                self.findings.push(Finding::LeaseExpired { lease, since });
            }
        }
        self.dry_run(asked("update"), "PUT", &path, json!(found)).await;
    }

    /// Other requests of an agent: read pods, services and runtime classes, and record events.
    async fn others(&mut self) {
        let name = self.local.name();
        let pods = format!("/api/v1/pods?fieldSelector=spec.nodeName%3D{name}&limit=1");
        for (asked, path) in [
            (("list", "", "pods"), pods.as_str()),
            (("list", "", "services"), "/api/v1/services?limit=1"),
            (
                ("list", "node.k8s.io", "runtimeclasses"),
                "/apis/node.k8s.io/v1/runtimeclasses?limit=1",
            ),
        ] {
            self.get::<Value>(asked, path).await;
        }
        let event = json!({
            "apiVersion": "v1", "kind": "Event",
            "metadata": {"generateName": format!("{name}."), "namespace": "default"},
            "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": name},
            "reason": "Preflight", "message": "May events be recorded?", "type": "Normal",
        });
        let path = "/api/v1/namespaces/default/events";
        self.dry_run(("create", "", "events"), "POST", path, event).await;
    }

    async fn get<T: serde::de::DeserializeOwned>(&mut self, asked: Asked, path: &str) -> Option<T> {
        let answer = self.ask.get(asked, path).await;
        self.found(answer)
    }

    fn found<T: serde::de::DeserializeOwned>(&mut self, answer: Answer) -> Option<T> {
        match answer {
            Answer::Found(object) => serde_json::from_value(object).ok(),
            Answer::NotThere => None,
            Answer::Finding(finding) => {
                self.findings.push(finding);
                None
            }
        }
    }

    async fn dry_run(&mut self, asked: Asked, method: &str, path: &str, body: Value) {
        let answer = self.ask.dry_run(asked, method, path, &body).await;
        self.found::<Value>(answer);
    }
}

/// A verb, an API group and a resource.
type Asked = (&'static str, &'static str, &'static str);

/// Why a request has no certificate yet, or never will have one.
fn waiting(name: &str, request: &CertificateSigningRequest) -> Option<Finding> {
    let status = request.status.clone().unwrap_or_default();
    if status
        .certificate
        .is_some_and(|certificate| !certificate.0.is_empty())
    {
        return None;
    }
    let conditions = status.conditions.unwrap_or_default();
    let refused = conditions
        .iter()
        .find(|condition| matches!(condition.type_.as_str(), "Denied" | "Failed"));
    if let Some(refused) = refused {
        return Some(Finding::CertificateRefused {
            name: name.to_owned(),
            condition: refused.type_.clone(),
            message: refused.message.clone().unwrap_or_default(),
        });
    }
    Some(Finding::CertificatePending {
        name: name.to_owned(),
        signer: request.spec.signer_name.clone(),
        since: request.metadata.creation_timestamp.as_ref()?.0,
        approved: conditions.iter().any(|condition| condition.type_ == "Approved"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_waits_until_it_is_signed_or_refused() {
        let since = "2026-01-01T00:00:00Z";
        for (status, expected) in [
            (
                json!({}),
                Some(
                    "certificate signing request csr-1 for kubernetes.io/kubelet-serving has been waiting for its approval since 2026-01-01T00:00:00Z",
                ),
            ),
            (
                json!({"conditions": [{"type": "Approved", "status": "True"}]}),
                Some(
                    "certificate signing request csr-1 for kubernetes.io/kubelet-serving has been waiting for its signature since 2026-01-01T00:00:00Z",
                ),
            ),
            (
                json!({"conditions": [{"type": "Denied", "status": "True", "message": "unknown host"}]}),
                Some("certificate signing request csr-1 is Denied: unknown host"),
            ),
            (
                json!({"conditions": [{"type": "Approved", "status": "True"}, {"type": "Failed", "status": "True"}]}),
                Some("certificate signing request csr-1 is Failed: "),
            ),
            (
                json!({"conditions": [{"type": "Approved", "status": "True"}], "certificate": "eA=="}),
                None,
            ),
        ] {
            let request = json!({
                "metadata": {"name": "csr-1", "creationTimestamp": since}, "status": status,
                "spec": {"request": "", "signerName": "kubernetes.io/kubelet-serving"},
            });
            let found = waiting("csr-1", &serde_json::from_value(request).unwrap());
            assert_eq!(found.map(|finding| finding.to_string()).as_deref(), expected);
        }
    }
}
