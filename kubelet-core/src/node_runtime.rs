//! What a node's status tells of its container runtime.

use async_trait::async_trait;

/// The container runtime, as far as the node's status tells of it. Asked with each status: one that is slow to answer keeps
/// what it told last.
///
/// # Cancel safety
///
/// Any call may be dropped and made again.
#[async_trait]
pub trait NodeRuntime: Send + Sync {
    /// `containerd` (`Type`).
    fn runtime_type(&self) -> &str;

    /// `1.7.24` (`Version`). Of one that is no semantic version, as `1.6.20~ds1`, the numbers are shown.
    ///
    /// # Errors
    ///
    /// Any: the node then shows the version told last, or `Unknown`.
    async fn version(&self) -> Result<String, BoxError>;

    /// All images, in any order (`GetImageList`). The default has none.
    ///
    /// # Errors
    ///
    /// Any: the node then shows those told last.
    async fn images(&self) -> Result<Vec<RuntimeImage>, BoxError> {
        Ok(Vec::new())
    }

    /// Its handlers, in any order (`RuntimeStatus.Handlers`). The default has none to tell of.
    fn handlers(&self) -> Vec<RuntimeHandler> {
        Vec::new()
    }

    /// What it can do, if it tells (`RuntimeStatus.Features`). The default does not.
    fn features(&self) -> Option<RuntimeFeatures> {
        None
    }

    /// The ranges of the pods' addresses on this node are these now, separated by commas (`UpdatePodCIDR`). For a runtime that
    /// sets up their network by them; the default does not.
    ///
    /// # Errors
    ///
    /// Any: it is told again with the next status.
    async fn update_pod_cidr(&self, pod_cidrs: &str) -> Result<(), BoxError> {
        let _ = pod_cidrs;
        Ok(())
    }
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// An image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuntimeImage {
    /// The runtime's id of it.
    pub id: String,
    /// `registry.k8s.io/pause@sha256:…`
    pub repo_digests: Vec<String>,
    /// `registry.k8s.io/pause:3.10`
    pub repo_tags: Vec<String>,
    /// Bytes.
    pub size: u64,
}

/// A runtime handler, as a `RuntimeClass` names it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuntimeHandler {
    /// Empty: the default handler.
    pub name: String,
    /// It makes mounts read-only, all the way down.
    pub recursive_read_only_mounts: bool,
    /// It gives pods a user namespace.
    pub user_namespaces: bool,
}

/// What a runtime can do, with any of its handlers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RuntimeFeatures {
    /// It knows `supplementalGroupsPolicy`.
    pub supplemental_groups_policy: bool,
}
