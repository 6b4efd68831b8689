//! The static pods of a simulated node.

use std::sync::Arc;

use futures::stream::{Stream, unfold};
use k8s_openapi::api::core::v1::Pod;
use kubelet_core::{PodExt, annotations};
use serde_json::Value;
use tokio::sync::watch;

use crate::memory_cri::hex64;

/// The static pods of a simulated node, instead of a folder of manifests. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct StaticPods(watch::Sender<Vec<Arc<Pod>>>);

impl StaticPods {
    /// All static pods, now and after each change, for a [`StreamSource`](kubelet_config::StreamSource).
    pub fn snapshots(&self) -> impl Stream<Item = Vec<Arc<Pod>>> + Send + use<> {
        unfold((self.0.subscribe(), true), |(mut pods, first)| async move {
            if !first {
                pods.changed().await.ok()?;
            }
            let now = pods.borrow_and_update().clone();
            Some((now, (pods, false)))
        })
    }

    pub(super) fn all(&self) -> Vec<Arc<Pod>> {
        self.0.borrow().clone()
    }

    /// Adds a static pod, or replaces the one with its name.
    pub(super) fn put(&self, pod: Arc<Pod>) {
        self.0.send_modify(|pods| {
            pods.retain(|other| other.key() != pod.key());
            pods.push(pod);
        });
    }

    pub(super) fn remove(&self, uid: &str) {
        self.0.send_modify(|pods| pods.retain(|pod| pod.uid_str() != uid));
    }

    pub(super) fn clear(&self) {
        self.0.send_replace(Vec::new());
    }
}

/// The pod that a source makes of a manifest: its hash and UID follow from its content.
pub(super) fn static_pod(mut manifest: Value, revision: u64) -> serde_json::Result<Pod> {
    let hash = hex64(revision, manifest.to_string())[..32].to_owned();
    manifest["metadata"]["uid"] = hash.clone().into();
    manifest["metadata"]["annotations"][annotations::CONFIG_HASH] = hash.into();
    serde_json::from_value(manifest)
}
