//! How a request tells the driver how the volume is used.

use super::client::Capabilities;
use super::source::{READ_WRITE_ONCE, access_mode};
use super::v1::VolumeCapability;
use super::v1::volume_capability::access_mode::Mode;
use super::v1::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume};
use crate::VolumeSpec;

/// As a file system.
pub(crate) fn mounted(
    mode: &str,
    has: Capabilities,
    fs_type: &str,
    mount_flags: Vec<String>,
    fs_group: Option<u32>,
) -> VolumeCapability {
    // A driver with this capability applies the group itself.
    let group = fs_group.filter(|_| has.mount_group);
    with_mode(
        mode,
        has,
        AccessType::Mount(MountVolume {
            fs_type: fs_type.to_owned(),
            mount_flags,
            volume_mount_group: group.map(|group| group.to_string()).unwrap_or_default(),
        }),
    )
}

/// As a block device.
pub(crate) fn block(spec: &VolumeSpec, has: Capabilities) -> VolumeCapability {
    with_mode(access_mode(spec), has, AccessType::Block(BlockVolume {}))
}

fn with_mode(mode: &str, has: Capabilities, access_type: AccessType) -> VolumeCapability {
    VolumeCapability {
        access_mode: Some(AccessMode {
            mode: access_mode_of(mode, has.single_node_multi_writer).into(),
        }),
        access_type: Some(access_type),
    }
}

/// (`asCSIAccessModeV1`, `asSingleNodeMultiWriterCapableCSIAccessModeV1`)
fn access_mode_of(mode: &str, knows_single_writers: bool) -> Mode {
    match (mode, knows_single_writers) {
        (READ_WRITE_ONCE, true) => Mode::SingleNodeMultiWriter,
        ("ReadWriteOncePod", true) => Mode::SingleNodeSingleWriter,
        (READ_WRITE_ONCE | "ReadWriteOncePod", false) => Mode::SingleNodeWriter,
        ("ReadOnlyMany", _) => Mode::MultiNodeReaderOnly,
        ("ReadWriteMany", _) => Mode::MultiNodeMultiWriter,
        _ => Mode::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn access_modes_depend_on_the_driver() {
        for (mode, plain, single) in [
            (
                "ReadWriteOnce",
                Mode::SingleNodeWriter,
                Mode::SingleNodeMultiWriter,
            ),
            (
                "ReadWriteOncePod",
                Mode::SingleNodeWriter,
                Mode::SingleNodeSingleWriter,
            ),
            (
                "ReadOnlyMany",
                Mode::MultiNodeReaderOnly,
                Mode::MultiNodeReaderOnly,
            ),
            (
                "ReadWriteMany",
                Mode::MultiNodeMultiWriter,
                Mode::MultiNodeMultiWriter,
            ),
            ("Other", Mode::Unknown, Mode::Unknown),
        ] {
            assert_eq!(access_mode_of(mode, false), plain, "{mode}");
            assert_eq!(access_mode_of(mode, true), single, "{mode}");
        }
    }
}
