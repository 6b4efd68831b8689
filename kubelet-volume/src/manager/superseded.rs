//! Removes the files that were replaced while a container that used them started, once it has.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use super::shared::Shared;
use crate::filesystem::atomic_writer;

/// Removes what no lease holds any more in these volumes. What it cannot remove goes when the volume is next set up.
pub(crate) async fn remove(shared: Arc<Shared>, volumes: BTreeSet<PathBuf>) {
    for volume in volumes {
        let (leases, dir) = (shared.leases.clone(), volume.clone());
        let removed = shared
            .disk
            .run(move || atomic_writer::remove_superseded(&leases, &dir));
        if let Err(error) = removed.await {
            tracing::warn!(volume = %volume.display(), %error, "Cannot remove files that were replaced");
        }
    }
}
