//! The static pods of a simulated node.

use std::sync::Arc;

use futures::stream::{Stream, poll_fn};
use k8s_openapi::api::core::v1::Pod;
use kubelet_core::{PodExt, annotations};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::mpsc;

use crate::memory_cri::hex64;

/// The static pods of a simulated node, instead of a folder of manifests. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct StaticPods(Arc<Mutex<Known>>);

#[derive(Debug, Default)]
struct Known {
    pods: Vec<Arc<Pod>>,
    /// The agents that read them, and some that are gone.
    readers: Vec<mpsc::UnboundedSender<Vec<Arc<Pod>>>>,
}

impl StaticPods {
    /// All static pods, now and after each change, for a [`StreamSource`](kubelet_config::StreamSource). A pod that is removed and added
    /// again at once is missing in one of the snapshots, as with the `FileSource` of `kubelet-config`.
    pub fn snapshots(&self) -> impl Stream<Item = Vec<Arc<Pod>>> + Send + use<> {
        let (reader, mut snapshots) = mpsc::unbounded_channel();
        let mut known = self.0.lock();
        // The receiver is right here.
        let _ = reader.send(known.pods.clone());
        known.readers.push(reader);
        poll_fn(move |context| snapshots.poll_recv(context))
    }

    pub(super) fn all(&self) -> Vec<Arc<Pod>> {
        self.0.lock().pods.clone()
    }

    fn change(&self, change: impl FnOnce(&mut Vec<Arc<Pod>>)) {
        let mut known = self.0.lock();
        let Known { pods, readers } = &mut *known;
        change(pods);
        readers.retain(|reader| reader.send(pods.clone()).is_ok());
    }

    /// Adds a static pod, or replaces the one with its name.
    pub(super) fn put(&self, pod: Arc<Pod>) {
        self.change(|pods| {
            pods.retain(|other| other.key() != pod.key());
            pods.push(pod);
        });
    }

    pub(super) fn remove(&self, uid: &str) {
        self.change(|pods| pods.retain(|pod| pod.uid_str() != uid));
    }

    pub(super) fn clear(&self) {
        self.change(Vec::clear);
    }
}

/// The pod that a source makes of a manifest: its hash and UID follow from its content.
pub(super) fn static_pod(mut manifest: Value, revision: u64) -> serde_json::Result<Pod> {
    let hash = hex64(revision, manifest.to_string())[..32].to_owned();
    manifest["metadata"]["uid"] = hash.clone().into();
    manifest["metadata"]["annotations"][annotations::CONFIG_HASH] = hash.into();
    serde_json::from_value(manifest)
}
