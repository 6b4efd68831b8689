//! The messages of CSI (protobuf package `csi.v1`), as of CSI 1.12.
//!
//! A field with an enum is an `i32`, so that an unknown number is preserved. Maps are `BTreeMap`s, so that equal messages
//! have equal bytes.

use std::fmt;

#[rustfmt::skip]
#[allow(missing_docs, clippy::all, rustdoc::all)]
mod messages;

#[rustfmt::skip]
#[allow(missing_docs, unreachable_pub, unused_qualifications, clippy::all, rustdoc::all)]
pub(crate) mod grpc_client;

#[rustfmt::skip]
#[allow(missing_docs, unreachable_pub, unused_qualifications, clippy::all, rustdoc::all)]
mod grpc_server;

pub use grpc_server::{controller_server, identity_server, node_server};
pub use messages::*;

/// Prints which volume a request is about, and never its secrets, mount options and attributes: these may contain tokens.
macro_rules! debug_without_secrets {
    ($($message:ident { $($field:ident),* })*) => {
        $(impl fmt::Debug for $message {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($message))
                    $(.field(stringify!($field), &self.$field))*
                    .finish_non_exhaustive()
            }
        })*
    };
}

debug_without_secrets! {
    ControllerExpandVolumeRequest { volume_id, capacity_range }
    ControllerModifyVolumeRequest { volume_id }
    ControllerPublishVolumeRequest { volume_id, node_id, readonly }
    ControllerUnpublishVolumeRequest { volume_id, node_id }
    CreateSnapshotRequest { source_volume_id, name }
    CreateVolumeGroupSnapshotRequest { name, source_volume_ids }
    CreateVolumeRequest { name, capacity_range }
    DeleteSnapshotRequest { snapshot_id }
    DeleteVolumeGroupSnapshotRequest { group_snapshot_id }
    DeleteVolumeRequest { volume_id }
    GetMetadataAllocatedRequest { snapshot_id, starting_offset, max_results }
    GetMetadataDeltaRequest { base_snapshot_id, target_snapshot_id, starting_offset, max_results }
    GetSnapshotRequest { snapshot_id }
    GetVolumeGroupSnapshotRequest { group_snapshot_id }
    ListSnapshotsRequest { max_entries, starting_token, source_volume_id, snapshot_id }
    NodeExpandVolumeRequest { volume_id, volume_path, capacity_range }
    NodePublishVolumeRequest { volume_id, staging_target_path, target_path, readonly }
    NodeStageVolumeRequest { volume_id, staging_target_path }
    ValidateVolumeCapabilitiesRequest { volume_id }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_and_tokens_are_not_printed() {
        let hidden = || [("key".to_string(), "hidden".to_string())].into();
        let request = NodePublishVolumeRequest {
            volume_id: "vol-1".into(),
            secrets: hidden(),
            volume_context: hidden(),
            ..Default::default()
        };
        let text = format!("{request:?}");
        assert!(text.contains("vol-1") && !text.contains("hidden"), "{text}");
    }
}
