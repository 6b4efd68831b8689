//! A container.

use prost::Message;
use prost::bytes::Bytes;

use super::fields::{Entries, Fields, Malformed, Span};
use crate::v1;

const LABELS: u32 = 8;
const ANNOTATIONS: u32 = 9;

/// A container as a relist reads it. On the wire it is a [`v1::Container`].
///
/// The client refuses an answer if a text that has a getter here, or the value of a label, is not UTF-8. An annotation that is not UTF-8 is
/// read as empty. Two are equal if they are encoded alike.
#[derive(Clone, Default, PartialEq)]
pub struct ListedContainer {
    message: Bytes,
    id: Span,
    pod_sandbox_id: Span,
    /// With metadata.
    name: Option<Span>,
    image: Option<Image>,
    image_ref: Span,
    state: i32,
    created_at: i64,
    labels: Entries,
    annotations: Entries,
    image_id: Span,
}

#[derive(Clone, Copy, Default, PartialEq)]
struct Image {
    image: Span,
    runtime_handler: Span,
}

impl ListedContainer {
    pub(crate) fn read(message: Bytes) -> Result<Self, Malformed> {
        let mut container = Self::default();
        for field in Fields::of(&message) {
            let field = field?;
            match field.number {
                1 => container.id = field.text(&message)?,
                2 => container.pod_sandbox_id = field.text(&message)?,
                3 => {
                    let name = container.name.get_or_insert_default();
                    for field in Fields::within(&message, field.bytes()?) {
                        let field = field?;
                        if field.number == 1 {
                            *name = field.text(&message)?;
                        }
                    }
                }
                4 => {
                    let image = container.image.get_or_insert_default();
                    for field in Fields::within(&message, field.bytes()?) {
                        let field = field?;
                        match field.number {
                            1 => image.image = field.text(&message)?,
                            19 => image.runtime_handler = field.text(&message)?,
                            _ => {}
                        }
                    }
                }
                5 => container.image_ref = field.text(&message)?,
                6 => container.state = field.number()? as i32,
                7 => container.created_at = field.number()? as i64,
                LABELS => container.labels.add(&field, &message)?,
                ANNOTATIONS => container.annotations.add_unread(&field, &message)?,
                10 => container.image_id = field.text(&message)?,
                _ => {}
            }
        }
        container.message = message;
        Ok(container)
    }

    /// The container's id.
    pub fn id(&self) -> &str {
        self.id.text(&self.message)
    }

    /// The id of the sandbox it is in.
    pub fn pod_sandbox_id(&self) -> &str {
        self.pod_sandbox_id.text(&self.message)
    }

    /// Its name in the pod; `None` without metadata.
    pub fn name(&self) -> Option<&str> {
        Some(self.name?.text(&self.message))
    }

    /// The image from the container's config; `None` if the runtime does not report it.
    pub fn image(&self) -> Option<&str> {
        Some(self.image?.image.text(&self.message))
    }

    /// The runtime handler that pulled the image; empty for the default.
    pub fn image_runtime_handler(&self) -> &str {
        let image = self.image.unwrap_or_default();
        image.runtime_handler.text(&self.message)
    }

    /// The digested reference of the image.
    pub fn image_ref(&self) -> &str {
        self.image_ref.text(&self.message)
    }

    /// The id of the image; empty for runtimes before v1.30 of CRI.
    pub fn image_id(&self) -> &str {
        self.image_id.text(&self.message)
    }

    /// Its state; [`ContainerCreated`](v1::ContainerState::ContainerCreated) if the runtime reports one that does not exist.
    pub fn state(&self) -> v1::ContainerState {
        v1::ContainerState::try_from(self.state).unwrap_or_default()
    }

    /// When it was created, in Unix nanoseconds.
    pub fn created_at(&self) -> i64 {
        self.created_at
    }

    /// The label of that key.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels.value(&self.message, LABELS, key)
    }

    /// The annotation of that key.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations.value(&self.message, ANNOTATIONS, key)
    }
}

impl From<v1::Container> for ListedContainer {
    fn from(container: v1::Container) -> Self {
        // What was just encoded can be read.
        Self::read(container.encode_to_vec().into()).unwrap_or_default()
    }
}

kubelet_core::impl_debug!(ListedContainer: id(), name(), state());

#[cfg(test)]
mod tests {
    use super::*;

    fn container() -> v1::Container {
        let map = |all: &[(&str, &str)]| {
            let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
            all.iter().map(owned).collect()
        };
        v1::Container {
            id: "c".to_owned(),
            pod_sandbox_id: "s".to_owned(),
            metadata: Some(v1::ContainerMetadata {
                name: "main".to_owned(),
                attempt: 300,
            }),
            image: Some(v1::ImageSpec {
                image: "busybox".to_owned(),
                annotations: map(&[("a", "b")]),
                user_specified_image: "busybox:1".to_owned(),
                runtime_handler: "kata".to_owned(),
                ..Default::default()
            }),
            image_ref: "sha256:1".to_owned(),
            state: v1::ContainerState::ContainerExited as i32,
            created_at: -5,
            labels: map(&[("one", "1"), ("two", ""), ("", "none")]),
            annotations: map(&[("one", "2")]),
            image_id: "sha256:2".to_owned(),
        }
    }

    #[test]
    fn all_that_a_relist_needs_is_read() {
        let listed = ListedContainer::from(container());
        assert_eq!(
            (listed.id(), listed.pod_sandbox_id(), listed.name()),
            ("c", "s", Some("main"))
        );
        assert_eq!(
            (listed.image(), listed.image_runtime_handler()),
            (Some("busybox"), "kata")
        );
        assert_eq!((listed.image_ref(), listed.image_id()), ("sha256:1", "sha256:2"));
        assert_eq!(
            (listed.state(), listed.created_at()),
            (v1::ContainerState::ContainerExited, -5)
        );
        let labels = ["one", "two", "", "three"].map(|key| listed.label(key));
        assert_eq!(labels, [Some("1"), Some(""), Some("none"), None]);
        assert_eq!(
            (listed.annotation("one"), listed.annotation("two")),
            (Some("2"), None)
        );
    }

    #[test]
    fn what_is_missing_is_empty() {
        let listed = ListedContainer::from(v1::Container::default());
        assert_eq!((listed.id(), listed.name(), listed.image()), ("", None, None));
        assert_eq!(
            (
                listed.label(""),
                listed.image_runtime_handler(),
                listed.created_at()
            ),
            (None, "", 0)
        );
        let unnamed = v1::Container {
            metadata: Some(v1::ContainerMetadata::default()),
            state: 77,
            ..Default::default()
        };
        let listed = ListedContainer::from(unnamed);
        assert_eq!(
            (listed.name(), listed.state()),
            (Some(""), v1::ContainerState::ContainerCreated)
        );
    }

    /// Fields may come twice and in any order: the last one counts, and messages are merged.
    #[test]
    fn two_encoded_one_after_the_other_are_read_as_prost_reads_them() {
        let second = v1::Container {
            id: "d".to_owned(),
            image: Some(v1::ImageSpec {
                image: "other".to_owned(),
                ..Default::default()
            }),
            labels: [("one".to_owned(), "3".to_owned())].into(),
            ..Default::default()
        };
        let both = [container().encode_to_vec(), second.encode_to_vec()].concat();
        let merged = v1::Container::decode(&*both).unwrap();
        let listed = ListedContainer::read(both.into()).unwrap();
        assert_eq!((listed.id(), listed.image_runtime_handler()), ("d", "kata"));
        for key in ["one", "two", "three"] {
            assert_eq!(listed.label(key), merged.labels.get(key).map(String::as_str));
        }
        assert_eq!(
            listed.image(),
            merged.image.as_ref().map(|image| image.image.as_str())
        );
        assert_eq!(
            (listed.annotation("one"), listed.name()),
            (Some("2"), Some("main"))
        );
    }

    #[test]
    fn a_broken_entry_is_refused() {
        let read = |tag, entry: &[u8]| {
            let message = [&[tag, entry.len() as u8][..], entry].concat();
            let refuses = v1::Container::decode(&*message).is_err();
            (ListedContainer::read(message.into()).err(), refuses)
        };
        for tag in [0x42, 0x4a] {
            assert_eq!(read(tag, &[0x0a, 1, b'k', 0x12, 1, b'v']), (None, false));
            assert_eq!(
                read(tag, &[0x0a, 1, b'k', 0x12, 2, b'v']),
                (Some(Malformed::CutOff), true)
            );
            assert_eq!(read(tag, &[0x08, 1]), (Some(Malformed::Type), true));
            assert_eq!(read(tag, &[0x10, 1]), (Some(Malformed::Type), true));
        }
        let no_text = [0x0a, 1, b'k', 0x12, 1, 0xff];
        assert_eq!(read(0x42, &no_text).0, Some(Malformed::Text));
        assert_eq!(read(0x4a, &no_text).0, None);
    }

    #[test]
    fn a_part_of_a_message_is_refused() {
        let whole = container().encode_to_vec();
        let refused = |end: usize| ListedContainer::read(Bytes::copy_from_slice(&whole[..end])).is_err();
        let prost_refuses = |end: usize| v1::Container::decode(&whole[..end]).is_err();
        for end in 0..whole.len() {
            assert_eq!(refused(end), prost_refuses(end), "{end}");
        }
    }
}
