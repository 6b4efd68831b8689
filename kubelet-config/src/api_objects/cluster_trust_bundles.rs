//! The trust bundles of a cluster, from an API server (`pkg/kubelet/clustertrustbundle`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use k8s_openapi::api::certificates::v1beta1::ClusterTrustBundle;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube_client::Client;
use kubelet_core::{ClusterTrustBundles, Error, Result};
use tokio::sync::{Notify, watch};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::config_objects::DEADLINE;
use crate::informer::{Informer, InformerHandle};

/// Watches the trust bundles of the cluster, from the first time that a pod needs one. Most API servers do not serve this
/// kind of object, so nothing is requested before.
///
/// Corresponds to the kubelet's `clustertrustbundle.LazyInformerManager`, for the API version `v1beta1`.
pub struct ClusterTrustBundleInformer {
    informer: Informer<ClusterTrustBundle>,
    handle: ApiServerClusterTrustBundles,
}

/// The trust bundles that a [`ClusterTrustBundleInformer`] has seen. Clones share them.
///
/// The certificates of a result are in the order of their bytes. (The kubelet's order is random, and another one every
/// five minutes.)
#[derive(Clone)]
pub struct ApiServerClusterTrustBundles {
    seen: InformerHandle<ClusterTrustBundle>,
    needed: Arc<Needed>,
    changes: watch::Sender<u64>,
}

/// Whether any bundle was read.
#[derive(Default)]
struct Needed {
    now: AtomicBool,
    waiting: Notify,
}

impl ClusterTrustBundleInformer {
    /// The bundles of the API server of `client`. It sends no request before the first one is needed.
    pub fn new(client: Client) -> Self {
        let changes = watch::Sender::new(0_u64);
        let changed = changes.clone();
        let informer = Informer::cluster_trust_bundles(client)
            .on_change(move |_, _| changed.send_modify(|count| *count = count.wrapping_add(1)));
        let handle = ApiServerClusterTrustBundles {
            seen: informer.handle(),
            needed: Arc::default(),
            changes,
        };
        Self { informer, handle }
    }

    /// The handle that reads bundles. It returns nothing before the informer [runs](Self::run).
    pub fn handle(&self) -> ApiServerClusterTrustBundles {
        self.handle.clone()
    }

    /// Watches until `shutdown`.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the watch. The handle still returns the bundles seen last.
    pub async fn run(self, shutdown: CancellationToken) {
        let needed = async {
            while !self.handle.needed.now.load(Ordering::Acquire) {
                self.handle.needed.waiting.notified().await;
            }
        };
        if shutdown.run_until_cancelled(needed).await.is_some() {
            self.informer.run(shutdown).await;
        }
    }
}

impl ApiServerClusterTrustBundles {
    async fn synced(&self) -> Result<()> {
        self.needed.now.store(true, Ordering::Release);
        self.needed.waiting.notify_one();
        let synced = timeout(DEADLINE, self.seen.synced()).await;
        synced.map_err(|_| failed("ClusterTrustBundle informer has not yet synced"))
    }
}

#[async_trait]
impl ClusterTrustBundles for ApiServerClusterTrustBundles {
    async fn by_name(&self, name: &str, allow_missing: bool) -> Result<Vec<u8>> {
        self.synced().await?;
        match self.seen.get("", name) {
            Some(bundle) => normalized(&[bundle]),
            None if allow_missing => Ok(Vec::new()),
            None => Err(failed(format!(
                "while getting ClusterTrustBundle: clustertrustbundle.certificates.k8s.io {name:?} not found"
            ))),
        }
    }

    async fn by_signer(
        &self,
        signer: &str,
        selector: Option<&LabelSelector>,
        allow_missing: bool,
    ) -> Result<Vec<u8>> {
        self.synced().await?;
        let mut bundles = Vec::new();
        for bundle in self.seen.all() {
            let is_of_signer = bundle.spec.signer_name.as_deref().unwrap_or_default() == signer;
            if is_of_signer && selects(selector, bundle.metadata.labels.as_ref())? {
                bundles.push(bundle);
            }
        }
        if bundles.is_empty() && !allow_missing {
            return Err(failed(
                "combination of signerName and labelSelector matched zero ClusterTrustBundles",
            ));
        }
        normalized(&bundles)
    }

    fn changes(&self) -> Option<watch::Receiver<u64>> {
        Some(self.changes.subscribe())
    }
}

/// The certificates of all these bundles, each once (`normalizeTrustAnchors`).
fn normalized(bundles: &[Arc<ClusterTrustBundle>]) -> Result<Vec<u8>> {
    let mut anchors = BTreeSet::new();
    for bundle in bundles {
        let blocks = pem::parse_many(&bundle.spec.trust_bundle)
            .map_err(|error| failed(format!("while normalizing trust anchors: {error}")))?;
        anchors.extend(blocks.into_iter().map(pem::Pem::into_contents));
    }
    let lines = pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF);
    let encoded = anchors
        .into_iter()
        .map(|anchor| pem::encode_config(&pem::Pem::new("CERTIFICATE", anchor), lines));
    Ok(encoded.collect::<String>().into_bytes())
}

/// Whether the selector matches labels. `None` matches none, an empty selector all (`LabelSelectorAsSelector`).
fn selects(selector: Option<&LabelSelector>, labels: Option<&BTreeMap<String, String>>) -> Result<bool> {
    let Some(selector) = selector else {
        return Ok(false);
    };
    let value = |key: &str| labels.and_then(|labels| labels.get(key));
    let mut matches = selector
        .match_labels
        .iter()
        .flatten()
        .all(|(key, wanted)| value(key) == Some(wanted));
    for rule in selector.match_expressions.iter().flatten() {
        let has = value(&rule.key);
        let is_listed = has.is_some_and(|has| rule.values.iter().flatten().any(|listed| listed == has));
        matches &= match rule.operator.as_str() {
            "In" => is_listed,
            "NotIn" => !is_listed,
            "Exists" => has.is_some(),
            "DoesNotExist" => has.is_none(),
            unknown => {
                let why = format!("{unknown:?} is not a valid label selector operator");
                return Err(failed(format!("while parsing label selector: {why}")));
            }
        };
    }
    Ok(matches)
}

fn failed(message: impl Into<String>) -> Error {
    Error::Certificates {
        message: message.into(),
    }
}

kubelet_core::impl_debug!(ClusterTrustBundleInformer);

kubelet_core::impl_debug!(ApiServerClusterTrustBundles);
