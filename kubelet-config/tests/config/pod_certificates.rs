//! Certificates of pods: requested, issued, renewed, refused and dropped.
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::certificates::v1beta1::{PodCertificateRequest, PodCertificateRequestStatus};
use k8s_openapi::api::core::v1::{Node, Pod, ServiceAccount};
use k8s_openapi::jiff::Timestamp;
use kubelet_config::{ApiServerPodCertificates, PodCertificateManager};
use kubelet_core::{Clock, Event, EventRecorder, FixedNode, Jitter, PodCertificates, PodCredential, PodExt};
use kubelet_testing::api_server::{ApiServer, User, Verb};
use kubelet_testing::eventually;
use parking_lot::Mutex;
use rcgen::{CertificateSigningRequestParams, KeyPair, PublicKeyData};
use serde_json::json;
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

const HOUR: Duration = Duration::from_secs(3600);
/// More than the longest time between two looks at a source.
const PASS: Duration = Duration::from_secs(121);
/// The jitter is less.
const MAX_JITTER: Duration = Duration::from_secs(300);

#[derive(Default)]
struct Events(Mutex<Vec<String>>);

impl EventRecorder for Events {
    fn record(&self, event: Event<'_>) {
        let kind = event.event_type.as_str();
        self.0
            .lock()
            .push(format!("{kind} {} {}", event.reason, event.message));
    }
}

impl Events {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock())
    }
}

/// A node with one pod, and an API server that it uses with the rights of a node.
struct Fixture {
    server: ApiServer,
    clock: Clock,
    events: Arc<Events>,
    pod: Arc<Pod>,
    pods: Arc<Mutex<Vec<Arc<Pod>>>>,
    certificates: ApiServerPodCertificates,
    stop: CancellationToken,
    running: JoinHandle<()>,
}

impl Fixture {
    fn new(key_type: &str) -> Self {
        let clock = Clock::starting_at(Timestamp::from_second(1_800_000_000).unwrap());
        let server = ApiServer::builder().clock(clock).record_reads().build();
        let node: Node = serde_json::from_value(json!({"metadata": {"name": "one"}})).unwrap();
        let node = server.create(&node).unwrap();
        let account = json!({"metadata": {"name": "robot", "namespace": "default"}});
        let account: ServiceAccount = serde_json::from_value(account).unwrap();
        server.create(&account).unwrap();
        let pod = json!({"metadata": {"name": "web", "namespace": "default"}, "spec": {
            "nodeName": "one", "serviceAccountName": "robot", "containers": [{"name": "main", "image": "busybox"}],
            "volumes": [{"name": "certs", "projected": {"sources": [
                {"downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}},
                {"podCertificate": {"signerName": "example.com/signer", "keyType": key_type,
                    "maxExpirationSeconds": 7200, "credentialBundlePath": "bundle",
                    "userAnnotations": {"example.com/color": "red"}}}]}}]}});
        let pod: Pod = serde_json::from_value(pod).unwrap();
        let pod = Arc::new(server.create(&pod).unwrap());
        let events = Arc::new(Events::default());
        let node = Arc::new(FixedNode::new(Arc::new(node)));
        let manager = PodCertificateManager::builder(server.client_as(User::node("one")), "one", node)
            .recorder(events.clone())
            .clock(clock)
            .jitter(Jitter::from_seed(7))
            .build();
        let (pods, stop) = (Arc::new(Mutex::new(vec![pod.clone()])), CancellationToken::new());
        let (certificates, of_node, ends) = (manager.handle(), pods.clone(), stop.clone());
        let running = tokio::spawn(async move { manager.run(move || of_node.lock().clone(), ends).await });
        Self {
            server,
            clock,
            events,
            pod,
            pods,
            certificates,
            stop,
            running,
        }
    }

    async fn credential(&self) -> Result<PodCredential, String> {
        let found = self.certificates.credential(&self.pod, "certs", 1).await;
        found.map_err(|error| error.to_string())
    }

    fn requests(&self) -> Vec<PodCertificateRequest> {
        self.server.list().unwrap()
    }

    /// The request that no signer has answered.
    async fn pending(&self) -> PodCertificateRequest {
        let is_pending = |request: &PodCertificateRequest| {
            let status = request.status.as_ref();
            status.is_none_or(|status| status.conditions.iter().flatten().next().is_none())
        };
        let found = eventually!(self.requests().into_iter().find(is_pending), |found| found
            .is_some());
        found.unwrap()
    }

    fn answer(&self, request: PodCertificateRequest, kind: &str, issued: serde_json::Value) {
        let mut status = json!({"conditions": [{"type": kind, "status": "True", "reason": "Because",
            "message": "so", "lastTransitionTime": self.clock.api_now()}]});
        if let Some(fields) = issued.as_object() {
            status.as_object_mut().unwrap().extend(fields.clone());
        }
        let status: PodCertificateRequestStatus = serde_json::from_value(status).unwrap();
        let answered = PodCertificateRequest {
            status: Some(status),
            ..request
        };
        self.server.replace_status(&answered).unwrap();
    }

    /// A signer that issues a certificate for two hours, to be renewed after one. What it issues is the name of the
    /// request.
    fn issue(&self, request: PodCertificateRequest) -> String {
        let name = request.metadata.name.clone().unwrap();
        let after = |time: Duration| Timestamp::from_second((self.clock.now() + time).as_second()).unwrap();
        let chain = format!("A comment.\n{}", chain(&name));
        self.answer(
            request,
            "Issued",
            json!({"certificateChain": chain, "notBefore": after(Duration::ZERO), "beginRefreshAt": after(HOUR),
                "notAfter": after(2 * HOUR)}),
        );
        name
    }

    async fn end(self) {
        self.stop.cancel();
        self.running.await.unwrap();
    }
}

fn chain(name: &str) -> String {
    let lines = pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF);
    pem::encode_config(&pem::Pem::new("CERTIFICATE", name), lines)
}

const NOT_YET: &str = "credential bundle is not issued yet";

#[tokio::test(start_paused = true)]
async fn a_certificate_is_requested_issued_and_renewed() {
    let node = Fixture::new("ED25519");
    sleep(HOUR).await;
    assert_eq!(
        node.server.calls().count("list podcertificaterequests"),
        0,
        "no pod needs one"
    );
    let mut changes = node.certificates.changes().unwrap();
    assert_eq!(node.credential().await.unwrap_err(), NOT_YET);
    let request = node.pending().await;
    assert_eq!(node.credential().await.unwrap_err(), NOT_YET);
    let (spec, meta) = (&request.spec, &request.metadata);
    assert!(meta.name.as_ref().unwrap().starts_with("req-"));
    let owner = &meta.owner_references.as_ref().unwrap()[0];
    assert_eq!(
        (owner.kind.as_str(), owner.uid.as_str()),
        ("Pod", node.pod.uid_str())
    );
    assert_eq!(
        (spec.pod_name.as_str(), spec.pod_uid.as_str()),
        ("web", node.pod.uid_str())
    );
    assert_eq!(
        (spec.node_name.as_str(), spec.service_account_name.as_str()),
        ("one", "robot")
    );
    assert_eq!(
        (spec.signer_name.as_str(), spec.max_expiration_seconds),
        ("example.com/signer", Some(7200))
    );
    assert_eq!(
        spec.unverified_user_annotations.as_ref().unwrap()["example.com/color"],
        "red"
    );
    let proof =
        CertificateSigningRequestParams::from_der(&spec.stub_pkc_s10_request.0.clone().into()).unwrap();

    let first = node.issue(request);
    assert_eq!(changes.recv().await.unwrap(), node.pod.uid());
    let credential = node.credential().await.unwrap();
    assert_eq!(credential.chain, chain(&first).into_bytes());
    let key = KeyPair::from_pem(std::str::from_utf8(&credential.key).unwrap()).unwrap();
    assert_eq!(key.der_bytes(), proof.public_key.der_bytes());

    // It is renewed when the signer says, at random a little later. Until then nothing is sent.
    let asked = node.server.calls().all().len();
    sleep(HOUR - Duration::from_secs(10)).await;
    assert_eq!(
        node.server.calls().all().len() - asked,
        node.server.calls().count("watch podcertificaterequests") - 1
    );
    assert_eq!(node.requests().len(), 1);
    sleep(MAX_JITTER + PASS).await;
    let request = node.pending().await;
    assert_eq!(node.requests().len(), 2);
    assert_eq!(
        node.credential().await.unwrap().chain,
        credential.chain,
        "the old one is still good"
    );
    assert!(changes.try_recv().is_err());
    let second = node.issue(request);
    changes.recv().await.unwrap();
    let renewed = node.credential().await.unwrap();
    assert_eq!(renewed.chain, chain(&second).into_bytes());
    assert_ne!(renewed.key, credential.key);
    assert_eq!(node.events.take(), [""; 0]);

    // A signer that does not answer: the owner of the pod gets to know, once.
    sleep(HOUR + MAX_JITTER + PASS).await;
    node.pending().await;
    assert_eq!(node.events.take(), [""; 0]);
    sleep(Duration::from_secs(600)).await;
    assert_eq!(
        node.events.take(),
        ["Warning CertificateOverdueForRefresh PodCertificate refresh overdue"]
    );
    sleep(HOUR).await;
    assert_eq!(
        node.events.take(),
        ["Warning CertificateExpired PodCertificate expired"]
    );
    sleep(HOUR).await;
    assert_eq!(node.events.take(), [""; 0]);
    assert_eq!(node.credential().await.unwrap().chain, renewed.chain);
    node.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_signer_that_refuses_has_the_last_word() {
    for (kind, how, error) in [
        ("Denied", "was denied", "permanently denied"),
        ("Failed", "failed", "permanently failed"),
    ] {
        let node = Fixture::new("ECDSAP256");
        let mut changes = node.certificates.changes().unwrap();
        node.credential().await.unwrap_err();
        let request = node.pending().await;
        let name = request.metadata.name.clone().unwrap();
        node.answer(request, kind, json!({}));
        changes.recv().await.unwrap();
        let of_source = node.credential().await.unwrap_err();
        assert_eq!(
            of_source,
            format!(r#"PodCertificateRequest was {error}: reason="Because" message="so""#)
        );
        let event = format!(
            r#"Warning {kind} PodCertificateRequest default/{name} {how}, reason="Because", message="so""#
        );
        assert_eq!(node.events.take(), [event]);
        sleep(24 * HOUR).await;
        assert_eq!(node.requests().len(), 1);
        assert_eq!(node.credential().await.unwrap_err(), of_source);
        node.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_deleted_request_is_created_again() {
    let node = Fixture::new("ECDSAP521");
    node.credential().await.unwrap_err();
    let first = node.pending().await.metadata.name.unwrap();
    node.server
        .delete::<PodCertificateRequest>("default", &first)
        .unwrap();
    sleep(Duration::from_secs(9 * 60)).await;
    assert_eq!(node.requests().len(), 0, "it may only be unseen");
    sleep(MAX_JITTER + Duration::from_secs(2 * 60)).await;
    let second = node.pending().await;
    assert_ne!(second.metadata.name.as_ref(), Some(&first));
    node.issue(second);
    eventually!(node.credential().await, |it| it.is_ok()).unwrap();
    node.end().await;
}

#[tokio::test(start_paused = true)]
async fn errors_are_retried_and_other_keys_are_refused() {
    let node = Fixture::new("ED25519");
    node.server
        .faults()
        .on(Verb::Create)
        .resource("podcertificaterequests")
        .first(5)
        .fails(500, "no");
    node.server
        .faults()
        .on(Verb::Get)
        .resource("serviceaccounts")
        .first(2)
        .hangs();
    node.credential().await.unwrap_err();
    let request = node.pending().await;
    node.issue(request);
    eventually!(node.credential().await, |it| it.is_ok()).unwrap();
    let unknown = node
        .certificates
        .credential(&node.pod, "certs", 0)
        .await
        .unwrap_err();
    assert_eq!(
        unknown.to_string(),
        "pod does not contain the named podCertificate projected volume source"
    );
    node.end().await;

    let node = Fixture::new("RSA2048");
    let mut changes = node.certificates.changes().unwrap();
    node.credential().await.unwrap_err();
    changes.recv().await.unwrap();
    let refused = node.credential().await.unwrap_err();
    assert_eq!(refused, "unknown key type \"RSA2048\"");
    assert_eq!(node.requests().len(), 0);
    node.end().await;
}

#[tokio::test(start_paused = true)]
async fn the_keys_of_a_pod_go_with_it() {
    let node = Fixture::new("ED25519");
    let issue = async || {
        assert_eq!(node.credential().await.unwrap_err(), NOT_YET);
        node.issue(node.pending().await);
        eventually!(node.credential().await, |it| it.is_ok()).unwrap()
    };
    let first = issue().await;
    node.certificates.forget(&node.pod.uid());
    let second = issue().await;
    assert_ne!(first.key, second.key);

    // Also if nobody says that it is gone.
    sleep(3 * PASS).await;
    assert_eq!(node.credential().await.unwrap().key, second.key);
    node.pods.lock().clear();
    sleep(PASS).await;
    sleep(2 * HOUR).await;
    assert_eq!(node.requests().len(), 2, "it is not renewed");
    assert_eq!(node.credential().await.unwrap_err(), NOT_YET);
    node.end().await;
}
