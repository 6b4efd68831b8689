//! One source of one pod: requests its certificate, waits for it and renews it.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1beta1::{PodCertificateRequest, PodCertificateRequestSpec};
use k8s_openapi::api::core::v1::{Pod, PodCertificateProjection, ServiceAccount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use k8s_openapi::jiff::Timestamp;
use kube_client::Error as ClientError;
use kube_client::api::{Api, PostParams};
use kubelet_core::{Event, EventType, PodExt};
use tokio::task::spawn_blocking;
use tokio::time::{error::Elapsed, sleep, timeout};

use super::key::{KeyAndProof, NoKey};
use super::state::{ASSUME_DELETED, Reason, Request, State, Step, Warning, after};
use super::{Key, Shared, Watched};
use crate::api_objects::config_objects::DEADLINE;

/// At random, so much later a certificate is renewed and a request is taken for deleted (`jitterDuration`).
const MAX_JITTER: Duration = Duration::from_secs(5 * 60);
/// How often a source is looked at, while nothing changes: the system's clock may have been set. Up to twice as long,
/// at random (`runRefreshPass`).
const REFRESH_PASS: Duration = Duration::from_secs(60);
/// The first wait after an error. It doubles each time, up to [`REFRESH_PASS`] (`DefaultTypedControllerRateLimiter`).
const FIRST_BACK_OFF: Duration = Duration::from_millis(5);

/// A source that runs.
pub(super) struct Source {
    pub(super) shared: Arc<Shared>,
    pub(super) watched: Arc<Watched>,
    pub(super) pod: Arc<Pod>,
    pub(super) key: Key,
    pub(super) wanted: PodCertificateProjection,
}

impl Source {
    /// Never ends (`handleProjection`, again and again).
    pub(super) async fn run(self) {
        self.shared.requests.synced().await;
        self.shared.changed.notify_one();
        let mut back_off = FIRST_BACK_OFF;
        loop {
            let (step, request) = self.step();
            let error = match step {
                Step::Wait(until) => {
                    back_off = FIRST_BACK_OFF;
                    self.wait(until).await;
                    continue;
                }
                Step::Issued => {
                    tracing::info!(pod = %self.pod.key(), uid = self.pod.uid_str(), volume = self.key.volume,
                        source_index = self.key.index, "a certificate was issued");
                    self.settled();
                    continue;
                }
                Step::Denied(why) => {
                    self.ended("Denied", &request, "was denied", &why);
                    continue;
                }
                Step::Failed(why) => {
                    self.ended("Failed", &request, "failed", &why);
                    continue;
                }
                Step::Lost => format!("PodCertificateRequest {request:?} appears to have been deleted"),
                Step::Create => match self.request().await {
                    Ok(request) => {
                        self.watched.state.lock().requested(request);
                        continue;
                    }
                    Err(NoKey::Unsupported(why)) => {
                        *self.watched.state.lock() = State::Unsupported(why);
                        self.settled();
                        continue;
                    }
                    Err(NoKey::Failed(why)) => why,
                },
            };
            tracing::warn!(pod = %self.pod.key(), uid = self.pod.uid_str(), volume = self.key.volume,
                source_index = self.key.index, error, "while handling podCertificate projected volume source");
            sleep(back_off).await;
            back_off = (back_off * 2).min(REFRESH_PASS);
        }
    }

    /// What to do, and the namespace and name of the request that was waited for.
    fn step(&self) -> (Step, String) {
        let now = self.shared.clock.now();
        let mut state = self.watched.state.lock();
        let namespace = &self.pod.key().namespace;
        let request = state.request();
        let seen = request.and_then(|name| self.shared.requests.get(namespace, name));
        let request = format!("{namespace}/{}", request.unwrap_or_default());
        for warning in state.warnings(now) {
            let (reason, message) = match warning {
                Warning::Overdue => ("CertificateOverdueForRefresh", "PodCertificate refresh overdue"),
                Warning::Expired => ("CertificateExpired", "PodCertificate expired"),
            };
            self.warn(reason, message.to_owned());
            self.shared.changed.notify_one();
        }
        (state.step(seen.as_deref(), now, self.jitter()), request)
    }

    /// Waits until a time, or until the request changes.
    async fn wait(&self, until: Option<Timestamp>) {
        let now = self.shared.clock.now();
        let wait = until.map(|until| Duration::try_from(until.duration_since(now)).unwrap_or_default());
        let pass = self.shared.jitter.apply(REFRESH_PASS, 1.0);
        let wait = wait.unwrap_or(pass).min(pass);
        // Either is fine: all is read again.
        let _ = timeout(wait, self.watched.wake.notified()).await;
    }

    /// Creates a request (`createPodCertificateRequest`).
    async fn request(&self) -> Result<Request, NoKey> {
        // An RSA key takes seconds. If the source ends meanwhile, the thread ends with the key.
        let key_type = self.wanted.key_type.clone();
        let generated = spawn_blocking(move || KeyAndProof::generate(&key_type)).await;
        let ended = |error| NoKey::Failed(format!("while generating keypair: {error}"));
        let KeyAndProof { key, proof } = generated.map_err(ended)??;
        let created = self.create(proof).await.map_err(NoKey::Failed)?;
        let created_at = created.metadata.creation_timestamp;
        let created_at = created_at.map_or_else(|| self.shared.clock.now(), |time| time.0);
        Ok(Request {
            name: created.metadata.name.unwrap_or_default(),
            key,
            abandon_at: after(created_at, ASSUME_DELETED + self.jitter()),
        })
    }

    async fn create(&self, proof: Vec<u8>) -> Result<PodCertificateRequest, String> {
        let key = self.pod.key();
        let account = self.pod.spec.as_ref();
        let account = account.and_then(|spec| spec.service_account_name.as_deref());
        let account = account.filter(|name| !name.is_empty()).unwrap_or("default");
        let accounts = Api::<ServiceAccount>::namespaced(self.shared.client.clone(), &key.namespace);
        let found = timeout(DEADLINE, accounts.get(account)).await;
        let found = answer("while fetching service account", found)?;
        let node = self.shared.node.node().await;
        let node = node.map_err(|error| format!("while getting node object from local cache: {error}"))?;
        let node_uid = node.metadata.uid.clone().filter(|uid| !uid.is_empty());
        let request = PodCertificateRequest {
            metadata: ObjectMeta {
                namespace: Some(key.namespace.to_string()),
                generate_name: Some("req-".to_owned()),
                owner_references: Some(vec![OwnerReference {
                    api_version: "v1".to_owned(),
                    kind: "Pod".to_owned(),
                    name: key.name.to_string(),
                    uid: self.pod.uid_str().to_owned(),
                    ..OwnerReference::default()
                }]),
                ..ObjectMeta::default()
            },
            spec: PodCertificateRequestSpec {
                signer_name: self.wanted.signer_name.clone(),
                pod_name: key.name.to_string(),
                pod_uid: self.pod.uid_str().to_owned(),
                service_account_name: account.to_owned(),
                service_account_uid: found.metadata.uid.unwrap_or_default(),
                node_name: self.shared.node_name.clone(),
                node_uid: node_uid.ok_or("while getting node object from local cache: it has no UID yet")?,
                max_expiration_seconds: self.wanted.max_expiration_seconds,
                stub_pkc_s10_request: ByteString(proof),
                unverified_user_annotations: self.wanted.user_annotations.clone(),
                ..PodCertificateRequestSpec::default()
            },
            status: None,
        };
        let requests = Api::<PodCertificateRequest>::namespaced(self.shared.client.clone(), &key.namespace);
        let parameters = PostParams::default();
        let created = timeout(DEADLINE, requests.create(&parameters, &request)).await;
        answer("while creating PodCertificateRequest", created)
    }

    /// Reports that a request ended badly.
    fn ended(&self, kind: &str, request: &str, how: &str, Reason { reason, message }: &Reason) {
        self.warn(
            kind,
            format!("PodCertificateRequest {request} {how}, reason={reason:?}, message={message:?}"),
        );
        self.settled();
    }

    /// The volumes of the pod can be set up now, or never.
    fn settled(&self) {
        // An error: no one has subscribed.
        let _ = self.shared.changes.send(self.key.pod.clone());
        self.shared.changed.notify_one();
    }

    fn warn(&self, reason: &str, message: String) {
        let event = Event::about(&self.pod, EventType::Warning, reason, message);
        self.shared.recorder.record(event);
    }

    fn jitter(&self) -> Duration {
        self.shared.jitter.apply(MAX_JITTER, 1.0) - MAX_JITTER
    }
}

fn answer<T>(what: &str, answer: Result<Result<T, ClientError>, Elapsed>) -> Result<T, String> {
    let answer = answer.map_err(|elapsed| format!("{what}: {elapsed}"))?;
    answer.map_err(|error| format!("{what}: {error}"))
}
