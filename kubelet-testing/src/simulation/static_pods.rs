//! The static pods of a simulated node.

use std::sync::Arc;

use futures::stream::{Stream, unfold};
use k8s_openapi::api::core::v1::Pod;
use kubelet_core::{PodExt, annotations};
use serde_json::Value;
use tokio::sync::watch;

use crate::memory_cri::hex64;

/// What a simulated node has in place of a folder of manifests. Clones show the same pods.
#[derive(Clone, Debug, Default)]
pub struct StaticPods(watch::Sender<Vec<Arc<Pod>>>);

impl StaticPods {
    /// All of them, now and whenever they change: what a [`StreamSource`](kubelet_config::StreamSource) is made of.
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

    /// One more, in place of the one of its name.
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

/// The pod as a source of manifests makes it of one: its hash and UID follow from what it says.
pub(super) fn static_pod(mut manifest: Value, revision: u64) -> serde_json::Result<Pod> {
    let hash = hex64(revision, manifest.to_string())[..32].to_owned();
    manifest["metadata"]["uid"] = hash.clone().into();
    manifest["metadata"]["annotations"][annotations::CONFIG_HASH] = hash.into();
    serde_json::from_value(manifest)
}
