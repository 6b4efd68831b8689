//! What the status of the node has of its volumes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use kubelet_core::VolumesInUse;
use kubelet_node::LocalNodeBuilder;
use kubelet_volume::NodeVolumesHandle;
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

    fn volumes(&self) -> Option<Arc<NodeVolumesHandle>> {
        self.0.volumes.get()?.upgrade()
    }

    /// The node has its `CSINode`, or needs none.
    pub(crate) fn set_initialized(&self) {
        self.0.csi_node.store(true, Ordering::Release);
    }

    /// The volumes in the status of the node. It is not ready before they are.
    pub(crate) fn report(&self, node: LocalNodeBuilder) -> LocalNodeBuilder {
        let late = self.clone();
        node.volumes_in_use(Arc::new(self.clone()))
            .ready_check(move || late.problems())
    }

    fn problems(&self) -> Vec<String> {
        match self.0.csi_node.load(Ordering::Acquire) {
            true => Vec::new(),
            false => vec!["CSINode is not yet initialized".to_owned()],
        }
    }
}

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
