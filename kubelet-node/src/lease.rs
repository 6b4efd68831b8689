//! The node's lease in `kube-node-lease`.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference};
use k8s_openapi::jiff::{RoundMode, Timestamp, TimestampRound, Unit};
use kubelet_core::{Clock, Jitter};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::{Error, HeartbeatClient, Result};

/// The namespace of node leases (`v1.NamespaceNodeLease`).
pub(crate) const NAMESPACE: &str = "kube-node-lease";
/// How often an update is tried in a row (`maxUpdateRetries`).
const UPDATE_TRIES: u32 = 5;
/// The back-off while the lease does not exist (`backoffEnsureLease`, `maxBackoff`).
const FIRST_BACK_OFF: Duration = Duration::from_millis(200);
const MAX_BACK_OFF: Duration = Duration::from_secs(7);
/// The jitter of the renew interval (`JitterUntilWithContext`).
const JITTER: f64 = 0.04;

/// Settings of a [`LeaseController`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LeaseConfig {
    /// How long the node counts as alive after a renewal (`nodeLeaseDurationSeconds`, 40). The lease is renewed
    /// after a quarter of this time (`nodeLeaseRenewIntervalFraction`), plus up to 4 % jitter.
    pub duration_seconds: u32,
    /// The source of the renew time.
    pub clock: Clock,
    /// Spreads the renewals of many nodes.
    pub jitter: Jitter,
}

impl Default for LeaseConfig {
    fn default() -> Self {
        Self {
            duration_seconds: 40,
            clock: Clock::system(),
            jitter: Jitter::default(),
        }
    }
}

/// Creates and renews the lease `kube-node-lease/NODE`. The lease is owned by the Node object. Answers to the
/// `lease.Controller` of `component-helpers`, as the kubelet uses it.
///
/// The lease is created once the node is registered, because its owner reference needs the node's UID. A
/// renewal is one request as long as no other client changes the lease. After a conflict the lease is read
/// again. Other failures are retried 5 times in a row. After that the controller reads the lease again with
/// back-off, from 200 ms up to 7 s.
///
/// ```no_run
/// # async fn make() -> Result<(), Box<dyn std::error::Error>> {
/// use kubelet_node::{HeartbeatClient, LeaseController};
/// use tokio_util::sync::CancellationToken;
///
/// let client = kube_client::Client::try_default().await?;
/// let lease = LeaseController::new(HeartbeatClient::new(client), "node-1");
/// lease.run(CancellationToken::new()).await;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct LeaseController {
    client: HeartbeatClient,
    node_name: String,
    config: LeaseConfig,
    latest: Option<Lease>,
    /// Whether the node did not exist when it was last read as the lease's owner.
    was_unregistered: bool,
}

impl LeaseController {
    /// The lease of the node `node_name`, with default settings.
    pub fn new(client: HeartbeatClient, node_name: impl Into<String>) -> Self {
        Self::with_config(client, node_name, LeaseConfig::default())
    }

    /// The lease of the node `node_name`.
    pub fn with_config(client: HeartbeatClient, node_name: impl Into<String>, config: LeaseConfig) -> Self {
        Self {
            client,
            node_name: node_name.into(),
            config,
            latest: None,
            was_unregistered: false,
        }
    }

    /// Renews the lease until `shutdown`. Errors never end it. The lease is not deleted; it expires. The
    /// kubelet never stops renewing: stop this engine last, so that the node counts as alive while its pods
    /// end.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the request under way.
    pub async fn run(mut self, shutdown: CancellationToken) {
        let interval = Duration::from_secs(self.config.duration_seconds.into()) / 4;
        let renewing = async {
            loop {
                self.sync().await;
                sleep(self.config.jitter.apply(interval, JITTER)).await;
            }
        };
        shutdown.run_until_cancelled(renewing).await;
    }

    async fn sync(&mut self) {
        if let Some(latest) = self.latest.clone() {
            if self.update(latest).await {
                return;
            }
            tracing::info!(
                node = self.node_name,
                "failed to update lease using latest lease, fallback to ensure lease"
            );
        }
        self.latest = None;
        match self.ensure().await {
            None => {}
            Some((lease, true)) => self.latest = Some(lease),
            Some((lease, false)) => {
                self.latest = Some(lease.clone());
                if !self.update(lease).await {
                    tracing::error!(node = self.node_name, "failed to update lease, will retry");
                }
            }
        }
    }

    /// Renews `base`; returns whether that succeeded (`retryUpdateLease`).
    async fn update(&mut self, mut base: Lease) -> bool {
        for attempt in 0..UPDATE_TRIES {
            let renewed = match self.renewed(base.clone()).await {
                Ok(lease) => self.client.update(&self.path(), &lease).await,
                Err(error) => Err(error),
            };
            match renewed {
                Ok(lease) => {
                    self.latest = Some(lease);
                    return true;
                }
                Err(error) if error.code() == Some(409) => {
                    tracing::info!(node = self.node_name, %error, "another client changed the lease; read it again");
                    match self.ensure().await {
                        Some((lease, _)) => base = lease,
                        None => return false,
                    }
                }
                Err(error) => {
                    tracing::error!(node = self.node_name, %error, "failed to update lease");
                    if attempt > 0 {
                        self.client.failed_repeatedly();
                    }
                }
            }
        }
        false
    }

    /// The existing lease, or the created one with `true`. `None`: it cannot be created yet
    /// (`backoffEnsureLease`).
    async fn ensure(&mut self) -> Option<(Lease, bool)> {
        let mut back_off = FIRST_BACK_OFF;
        loop {
            match self.get_or_create().await {
                Ok(ensured) => return ensured,
                Err(error) => {
                    tracing::error!(node = self.node_name, %error, interval = ?back_off, "failed to ensure lease exists, will retry");
                }
            }
            sleep(back_off).await;
            back_off = (back_off * 2).min(MAX_BACK_OFF);
        }
    }

    async fn get_or_create(&mut self) -> Result<Option<(Lease, bool)>> {
        match self.client.get(&self.path()).await {
            Ok(lease) => return Ok(Some((lease, false))),
            Err(error) if error.code() == Some(404) => {}
            Err(error) => return Err(error),
        }
        // The lease is not created without its owner. The next round tries again.
        let Ok(lease) = self.renewed(self.new_lease()).await else {
            return Ok(None);
        };
        let collection = format!("/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases");
        let made = self.client.create(&collection, &lease).await?;
        Ok(Some((made, true)))
    }

    fn new_lease(&self) -> Lease {
        Lease {
            metadata: ObjectMeta {
                name: Some(self.node_name.clone()),
                namespace: Some(NAMESPACE.to_owned()),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: Some(self.node_name.clone()),
                ..LeaseSpec::default()
            }),
        }
    }

    /// The lease with a new renew time and its owner (`newLease`, `SetNodeOwnerFunc`).
    async fn renewed(&mut self, mut lease: Lease) -> Result<Lease> {
        if lease.metadata.owner_references.as_ref().is_none_or(Vec::is_empty) {
            lease.metadata.owner_references = Some(vec![self.owner().await?]);
        }
        let spec = lease.spec.get_or_insert_default();
        spec.lease_duration_seconds = i32::try_from(self.config.duration_seconds).ok();
        spec.renew_time = Some(MicroTime(to_microseconds(self.config.clock.now())));
        Ok(lease)
    }

    async fn owner(&mut self) -> Result<OwnerReference> {
        let node = self
            .client
            .get(&format!("/api/v1/nodes/{}", self.node_name))
            .await;
        let node: Node = node.inspect_err(|error| self.log_missing_owner(error))?;
        self.was_unregistered = false;
        Ok(OwnerReference {
            api_version: "v1".to_owned(),
            kind: "Node".to_owned(),
            name: self.node_name.clone(),
            uid: node.metadata.uid.unwrap_or_default(),
            ..OwnerReference::default()
        })
    }

    /// On a first start the node is about to be registered, so the first 404 is nothing to warn about.
    fn log_missing_owner(&mut self, error: &Error) {
        let node = &self.node_name;
        let is_unregistered = error.code() == Some(404);
        if !is_unregistered {
            tracing::warn!(node, %error, "failed to get node when trying to set owner ref to the node lease");
        } else if self.was_unregistered {
            tracing::warn!(
                node,
                "cannot create the lease, because the node is still not registered"
            );
        } else {
            tracing::debug!(
                node,
                "the node is not registered yet; the lease is created afterwards"
            );
        }
        self.was_unregistered = is_unregistered;
    }

    fn path(&self) -> String {
        format!(
            "/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{}",
            self.node_name
        )
    }
}

/// `metav1.MicroTime` has microseconds.
fn to_microseconds(time: Timestamp) -> Timestamp {
    time.round(
        TimestampRound::new()
            .smallest(Unit::Microsecond)
            .mode(RoundMode::Trunc),
    )
    .unwrap_or(time)
}
