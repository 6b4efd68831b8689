//! What a node's status contains about its container runtime.

use async_trait::async_trait;

/// The container runtime, as far as the node's status needs it. Called for each status. If the runtime answers late,
/// the node keeps the previous values.
///
/// # Cancel safety
///
/// Any call may be dropped and made again.
#[async_trait]
pub trait NodeRuntime: Send + Sync {
    /// `containerd` (`Type`).
    fn runtime_type(&self) -> &str;

    /// `1.7.24` (`Version`). For a version such as `1.6.20~ds1`, which is no semantic version, only the numbers are
    /// shown.
    ///
    /// # Errors
    ///
    /// Any. The node then keeps the previous version, or shows `Unknown`.
    async fn version(&self) -> Result<String, BoxError>;

    /// All images, in any order (`GetImageList`). By default, none.
    ///
    /// # Errors
    ///
    /// Any. The node then keeps the previous list.
    async fn images(&self) -> Result<Vec<RuntimeImage>, BoxError> {
        Ok(Vec::new())
    }

    /// Its handlers, in any order (`RuntimeStatus.Handlers`). By default, none.
    fn handlers(&self) -> Vec<RuntimeHandler> {
        Vec::new()
    }

    /// Its features, if it reports any (`RuntimeStatus.Features`). By default, `None`.
    fn features(&self) -> Option<RuntimeFeatures> {
        None
    }

    /// Sets the pod CIDRs of this node, separated by commas (`UpdatePodCIDR`). For a runtime that sets up the pods'
    /// network. By default, it does nothing.
    ///
    /// # Errors
    ///
    /// Any. It is retried with the next status.
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
    /// It supports recursive read-only mounts.
    pub recursive_read_only_mounts: bool,
    /// It supports user namespaces.
    pub user_namespaces: bool,
}

/// What a runtime supports with every handler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RuntimeFeatures {
    /// It supports `supplementalGroupsPolicy`.
    pub supplemental_groups_policy: bool,
}
