//! The calls that a driver keeps.

use std::fmt;
use std::path::PathBuf;

use kubelet_volume::csi::v1;

/// The calls of the services `Identity` and `Node`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)]
pub enum CsiMethod {
    GetPluginInfo,
    GetPluginCapabilities,
    Probe,
    NodeStageVolume,
    NodeUnstageVolume,
    NodePublishVolume,
    NodeUnpublishVolume,
    NodeGetVolumeStats,
    NodeExpandVolume,
    NodeGetCapabilities,
    NodeGetInfo,
}

/// The request of a call about a volume.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum CsiRequest {
    /// A call that is about no volume.
    None,
    Stage(v1::NodeStageVolumeRequest),
    Unstage(v1::NodeUnstageVolumeRequest),
    Publish(v1::NodePublishVolumeRequest),
    Unpublish(v1::NodeUnpublishVolumeRequest),
    Stats(v1::NodeGetVolumeStatsRequest),
    Expand(v1::NodeExpandVolumeRequest),
}

/// A call to a [`MemoryCsi`](super::MemoryCsi).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct CsiCall {
    /// Which call.
    pub method: CsiMethod,
    /// The volume; empty if the call is about none.
    pub volume: String,
    /// The staging path or the target of the call.
    pub path: PathBuf,
    /// The whole request.
    pub request: CsiRequest,
}

impl CsiCall {
    pub(super) fn new(method: CsiMethod, request: CsiRequest) -> Self {
        let (volume, path) = match &request {
            CsiRequest::None => ("", ""),
            CsiRequest::Stage(it) => (it.volume_id.as_str(), it.staging_target_path.as_str()),
            CsiRequest::Unstage(it) => (it.volume_id.as_str(), it.staging_target_path.as_str()),
            CsiRequest::Publish(it) => (it.volume_id.as_str(), it.target_path.as_str()),
            CsiRequest::Unpublish(it) => (it.volume_id.as_str(), it.target_path.as_str()),
            CsiRequest::Stats(it) => (it.volume_id.as_str(), it.volume_path.as_str()),
            CsiRequest::Expand(it) => (it.volume_id.as_str(), it.volume_path.as_str()),
        };
        Self {
            method,
            volume: volume.to_owned(),
            path: PathBuf::from(path),
            request,
        }
    }
}

/// The call, the volume and the path, e.g. `NodeStageVolume vol-1 /staging`.
impl fmt::Display for CsiCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.method)?;
        match self.volume.is_empty() {
            true => Ok(()),
            false => write!(f, " {} {}", self.volume, self.path.display()),
        }
    }
}
