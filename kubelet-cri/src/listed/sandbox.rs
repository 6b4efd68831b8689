//! A sandbox.

use prost::Message;
use prost::bytes::Bytes;

use super::fields::{Entries, Fields, Malformed, Span};
use crate::v1;

const LABELS: u32 = 5;

/// A sandbox as a relist reads it: as [`v1::PodSandbox`] on the wire; see [`ListedContainer`](super::ListedContainer). It has no
/// annotations.
#[derive(Clone, Default, PartialEq)]
pub struct ListedSandbox {
    message: Bytes,
    id: Span,
    metadata: Option<Metadata>,
    state: i32,
    created_at: i64,
    labels: Entries,
}

#[derive(Clone, Copy, Default, PartialEq)]
struct Metadata {
    name: Span,
    uid: Span,
    namespace: Span,
    attempt: u32,
}

impl ListedSandbox {
    pub(crate) fn read(message: Bytes) -> Result<Self, Malformed> {
        let mut sandbox = Self::default();
        for field in Fields::of(&message) {
            let field = field?;
            match field.number {
                1 => sandbox.id = field.text(&message)?,
                2 => {
                    let metadata = sandbox.metadata.get_or_insert_default();
                    for field in Fields::within(&message, field.bytes()?) {
                        let field = field?;
                        match field.number {
                            1 => metadata.name = field.text(&message)?,
                            2 => metadata.uid = field.text(&message)?,
                            3 => metadata.namespace = field.text(&message)?,
                            4 => metadata.attempt = field.number()? as u32,
                            _ => {}
                        }
                    }
                }
                3 => sandbox.state = field.number()? as i32,
                4 => sandbox.created_at = field.number()? as i64,
                LABELS => sandbox.labels.add(&field, &message)?,
                _ => {}
            }
        }
        sandbox.message = message;
        Ok(sandbox)
    }

    /// The sandbox's id.
    pub fn id(&self) -> &str {
        self.id.text(&self.message)
    }

    /// The pod's UID; `None` without metadata.
    pub fn uid(&self) -> Option<&str> {
        Some(self.metadata?.uid.text(&self.message))
    }

    /// The pod's namespace.
    pub fn namespace(&self) -> &str {
        self.metadata.unwrap_or_default().namespace.text(&self.message)
    }

    /// The pod's name.
    pub fn name(&self) -> &str {
        self.metadata.unwrap_or_default().name.text(&self.message)
    }

    /// How many sandboxes the pod had before it.
    pub fn attempt(&self) -> u32 {
        self.metadata.unwrap_or_default().attempt
    }

    /// Its state; [`SandboxReady`](v1::PodSandboxState::SandboxReady) if the runtime reports one that does not exist.
    pub fn state(&self) -> v1::PodSandboxState {
        v1::PodSandboxState::try_from(self.state).unwrap_or_default()
    }

    /// When it was created, in Unix nanoseconds.
    pub fn created_at(&self) -> i64 {
        self.created_at
    }

    /// The label of that key.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels.value(&self.message, LABELS, key)
    }
}

impl From<v1::PodSandbox> for ListedSandbox {
    fn from(sandbox: v1::PodSandbox) -> Self {
        // What was just encoded can be read.
        Self::read(sandbox.encode_to_vec().into()).unwrap_or_default()
    }
}

kubelet_core::impl_debug!(ListedSandbox: id(), name(), state());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_a_relist_needs_is_read() {
        let sandbox = v1::PodSandbox {
            id: "s".to_owned(),
            metadata: Some(v1::PodSandboxMetadata {
                name: "web".to_owned(),
                uid: "u".to_owned(),
                namespace: "default".to_owned(),
                attempt: 4_000_000_000,
            }),
            state: v1::PodSandboxState::SandboxNotready as i32,
            created_at: i64::MAX,
            labels: [("a".to_owned(), "b".to_owned())].into(),
            annotations: [("a".to_owned(), "c".to_owned())].into(),
            runtime_handler: "kata".to_owned(),
        };
        let whole = sandbox.encode_to_vec();
        let listed = ListedSandbox::from(sandbox);
        assert_eq!(
            (listed.id(), listed.uid(), listed.namespace(), listed.name()),
            ("s", Some("u"), "default", "web")
        );
        assert_eq!((listed.attempt(), listed.created_at()), (4_000_000_000, i64::MAX));
        assert_eq!(listed.state(), v1::PodSandboxState::SandboxNotready);
        assert_eq!((listed.label("a"), listed.label("b")), (Some("b"), None));
        for end in 0..whole.len() {
            assert_eq!(
                ListedSandbox::read(Bytes::copy_from_slice(&whole[..end])).is_err(),
                v1::PodSandbox::decode(&whole[..end]).is_err(),
                "{end}"
            );
        }
        let nothing = ListedSandbox::from(v1::PodSandbox::default());
        assert_eq!(
            (nothing.uid(), nothing.name(), nothing.state()),
            (None, "", v1::PodSandboxState::SandboxReady)
        );
    }
}
