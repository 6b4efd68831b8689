//! The id of a container or sandbox, with the runtime that gave it.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;
use std::sync::Arc;

/// A container's id together with its runtime's name; in text `containerd://3f0c…`, the form of
/// `status.containerStatuses[].containerID` (`container.ContainerID`). Cloning is cheap.
#[derive(Clone, Eq, PartialOrd, Ord)]
pub struct ContainerId {
    runtime: Arc<str>,
    id: Arc<str>,
}

impl ContainerId {
    /// The container `id` of the runtime of this name.
    pub fn new(runtime: impl Into<Arc<str>>, id: impl Into<Arc<str>>) -> Self {
        Self {
            runtime: runtime.into(),
            id: id.into(),
        }
    }

    /// The runtime's name, e.g. `containerd`.
    pub fn runtime(&self) -> &str {
        &self.runtime
    }

    /// The id as the runtime knows it.
    pub fn id(&self) -> &str {
        &self.id
    }
}

/// Ids that share their text need no look at it: so it mostly is where lists are compared.
impl PartialEq for ContainerId {
    fn eq(&self, other: &Self) -> bool {
        let same = |a: &Arc<str>, b: &Arc<str>| Arc::ptr_eq(a, b) || a == b;
        same(&self.id, &other.id) && same(&self.runtime, &other.runtime)
    }
}

impl Hash for ContainerId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.runtime.hash(state);
        self.id.hash(state);
    }
}

impl fmt::Display for ContainerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.runtime, self.id)
    }
}

impl fmt::Debug for ContainerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

/// A text that is not `<runtime>://<id>`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid container id {0:?}: expected <runtime>://<id>")]
pub struct ParseContainerIdError(String);

/// Surrounding quotes are tolerated, as the kubelet does (`ContainerID.ParseString`, `BuildContainerID`).
impl FromStr for ContainerId {
    type Err = ParseContainerIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.trim_matches('"').split_once("://") {
            Some((runtime, id)) if !runtime.is_empty() && !id.is_empty() && !id.contains("://") => {
                Ok(Self::new(runtime, id))
            }
            _ => Err(ParseContainerIdError(text.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_form() {
        let id: ContainerId = "containerd://abc".parse().unwrap();
        assert_eq!((id.runtime(), id.id()), ("containerd", "abc"));
        assert_eq!(id.to_string(), "containerd://abc");
        assert_eq!(
            "\"cri-o://x\"".parse::<ContainerId>().unwrap(),
            ContainerId::new("cri-o", "x")
        );
        for bad in ["", "abc", "://abc", "containerd://", "a://b://c"] {
            assert!(bad.parse::<ContainerId>().is_err(), "{bad}");
        }
    }
}
