//! What a configuration is judged against besides its gates.

use std::path::Path;

/// The node that is configured, and the agent on it. [`Default`] is a node with cgroup v2 and an agent like the
/// kubelet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Host {
    /// Whether the node's cgroups are v1.
    pub cgroup_v1: bool,
    /// Whether the agent can write its log in the format `json`, as the kubelet can; `text` is always there.
    pub json_log_format: bool,
}

impl Host {
    /// The node that this runs on: its cgroups are v1 if there is a `/sys/fs/cgroup` that is not the unified
    /// hierarchy.
    pub fn detect() -> Self {
        Self::default().with_cgroup_v1(is_cgroup_v1(Path::new("/sys/fs/cgroup")))
    }

    /// Sets [`cgroup_v1`](Self::cgroup_v1).
    #[must_use]
    pub fn with_cgroup_v1(self, cgroup_v1: bool) -> Self {
        Self { cgroup_v1, ..self }
    }

    /// Sets [`json_log_format`](Self::json_log_format).
    #[must_use]
    pub fn with_json_log_format(self, json_log_format: bool) -> Self {
        Self {
            json_log_format,
            ..self
        }
    }
}

impl Default for Host {
    fn default() -> Self {
        Self {
            cgroup_v1: false,
            json_log_format: true,
        }
    }
}

/// The root of a unified hierarchy, and only that, lists its controllers there.
fn is_cgroup_v1(root: &Path) -> bool {
    root.exists() && !root.join("cgroup.controllers").exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cgroup_v2_lists_its_controllers() {
        let root = tempfile::tempdir().unwrap();
        assert!(is_cgroup_v1(root.path()));
        std::fs::write(root.path().join("cgroup.controllers"), "cpu memory").unwrap();
        assert!(!is_cgroup_v1(root.path()));
        assert!(!is_cgroup_v1(&root.path().join("none")));
    }
}
