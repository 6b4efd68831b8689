//! The id of a container or sandbox, with the runtime that it belongs to.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;
use std::sync::Arc;

/// A container's id together with its runtime's name; in text `containerd://3f0c…`, the form of
/// `status.containerStatuses[].containerID` (`container.ContainerID`). Cloning is cheap.
#[derive(Clone, Eq)]
pub struct ContainerId {
    text: Arc<str>,
    /// How many bytes of the text are the runtime's name.
    runtime: u32,
    /// A few bits of the id, so that most comparisons need not read the text.
    mark: u32,
}

const SEPARATOR: &str = "://";

impl ContainerId {
    /// The container `id` of the runtime of this name.
    pub fn new(runtime: impl AsRef<str>, id: impl AsRef<str>) -> Self {
        let (runtime, id) = (runtime.as_ref(), id.as_ref());
        Self {
            text: concat(&[runtime, SEPARATOR, id]),
            runtime: u32::try_from(runtime.len()).unwrap_or_default(),
            mark: mark(id.as_bytes()),
        }
    }

    /// The runtime's name, e.g. `containerd`.
    pub fn runtime(&self) -> &str {
        self.text.get(..self.runtime as usize).unwrap_or_default()
    }

    /// The id as the runtime knows it.
    pub fn id(&self) -> &str {
        let id = self.runtime as usize + SEPARATOR.len();
        self.text.get(id..).unwrap_or_default()
    }

    /// `<runtime>://<id>`.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

/// Ids are random or counted: they differ at one end at least.
fn mark(id: &[u8]) -> u32 {
    let fold = |end: Option<&[u8; 8]>| end.map_or(0, |end| u64::from_le_bytes(*end));
    let both = fold(id.first_chunk()) ^ fold(id.last_chunk()).rotate_left(3);
    (both ^ (both >> 32)) as u32
}

/// One allocation for ids of ordinary length: lists hold thousands of them.
fn concat(parts: &[&str; 3]) -> Arc<str> {
    let mut short = [0; 128];
    let mut length = 0;
    for part in parts {
        if let Some(room) = short.get_mut(length..length + part.len()) {
            room.copy_from_slice(part.as_bytes());
            length += part.len();
        } else {
            return parts.concat().into();
        }
    }
    match str::from_utf8(&short[..length]) {
        Ok(text) => text.into(),
        Err(_) => parts.concat().into(),
    }
}

/// Ids that share their text are equal: the usual case when lists are compared.
impl PartialEq for ContainerId {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.text, &other.text)
            || (self.mark == other.mark && self.runtime == other.runtime && self.text == other.text)
    }
}

impl Hash for ContainerId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

/// By runtime, then by id.
impl Ord for ContainerId {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.runtime(), self.id()).cmp(&(other.runtime(), other.id()))
    }
}

impl PartialOrd for ContainerId {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for ContainerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for ContainerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

/// The text is not `<runtime>://<id>`.
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
