//! What the status of the node has of its volumes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

#[cfg(feature = "apiserver")]
use kubelet_core::VolumesInUse;
use kubelet_volume::NodeVolumesHandle;
#[cfg(feature = "apiserver")]
use tokio::sync::watch;

/// The volumes once they are built: the node must be known first.
#[derive(Clone, Default)]
pub(crate) struct LateVolumes(Arc<Late>);

#[derive(Default)]
struct Late {
    /// Weak, because the volumes hold the node, which holds this.
    volumes: OnceLock<Weak<NodeVolumesHandle>>,
    csi_node: AtomicBool,
}

impl LateVolumes {
    pub(crate) fn set(&self, volumes: &Arc<NodeVolumesHandle>) {
        // It is set once.
        drop(self.0.volumes.set(Arc::downgrade(volumes)));
    }

    #[cfg(feature = "apiserver")]
    fn volumes(&self) -> Option<Arc<NodeVolumesHandle>> {
        self.0.volumes.get()?.upgrade()
    }

    /// The node has its `CSINode`, or needs none.
    pub(crate) fn is_initialized(&self) {
        self.0.csi_node.store(true, Ordering::Release);
    }

    /// Why the node is not ready.
    #[cfg(feature = "apiserver")]
    pub(crate) fn problems(&self) -> Vec<String> {
        match self.0.csi_node.load(Ordering::Acquire) {
            true => Vec::new(),
            false => vec!["CSINode is not yet initialized".to_owned()],
        }
    }
}

#[cfg(feature = "apiserver")]
impl VolumesInUse for LateVolumes {
    fn volumes_in_use(&self) -> Option<Vec<String>> {
        self.volumes()?.volumes_in_use()
    }

    fn mark_reported(&self, volumes: &[String]) {
        if let Some(known) = self.volumes() {
            known.mark_reported(volumes);
        }
    }

    fn changes(&self) -> Option<watch::Receiver<u64>> {
        self.volumes()?.changes()
    }
}
