//! The fields of listed sandboxes and containers that a relist needs, and those of their stats that a node reports.

use prost::bytes::Bytes;

use crate::v1;

/// A container as a relist reads it. On the wire it is a [`v1::Container`]. Its texts stay in the buffer of the answer
/// and are not copied: most of a list is labels and annotations that a relist never reads, and a kubelet lists every
/// second.
///
/// A text that is not UTF-8 is read as empty. The client refuses an answer if a field that a relist needs is not UTF-8.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ListedContainer {
    #[prost(bytes = "bytes", tag = "1")]
    id: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pod_sandbox_id: Bytes,
    #[prost(message, optional, tag = "3")]
    metadata: Option<ContainerName>,
    #[prost(message, optional, tag = "4")]
    image: Option<Image>,
    #[prost(bytes = "bytes", tag = "5")]
    image_ref: Bytes,
    #[prost(enumeration = "v1::ContainerState", tag = "6")]
    state: i32,
    #[prost(int64, tag = "7")]
    created_at: i64,
    #[prost(message, repeated, tag = "8")]
    labels: Vec<Entry>,
    #[prost(message, repeated, tag = "9")]
    annotations: Vec<Entry>,
    #[prost(bytes = "bytes", tag = "10")]
    image_id: Bytes,
}

/// A sandbox as a relist reads it: as [`v1::PodSandbox`] on the wire; see [`ListedContainer`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct ListedSandbox {
    #[prost(bytes = "bytes", tag = "1")]
    id: Bytes,
    #[prost(message, optional, tag = "2")]
    metadata: Option<PodName>,
    #[prost(enumeration = "v1::PodSandboxState", tag = "3")]
    state: i32,
    #[prost(int64, tag = "4")]
    created_at: i64,
    #[prost(message, repeated, tag = "5")]
    labels: Vec<Entry>,
}

/// The usage of a container as a node reports it: as [`v1::ContainerStats`] on the wire, without labels and annotations.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ListedStats {
    #[prost(message, optional, tag = "1")]
    attributes: Option<Attributes>,
    /// CPU time.
    #[prost(message, optional, tag = "2")]
    pub cpu: Option<v1::CpuUsage>,
    /// Memory.
    #[prost(message, optional, tag = "3")]
    pub memory: Option<v1::MemoryUsage>,
    /// What it has written to its file system.
    #[prost(message, optional, tag = "4")]
    pub writable_layer: Option<v1::FilesystemUsage>,
    /// Swap.
    #[prost(message, optional, tag = "5")]
    pub swap: Option<v1::SwapUsage>,
    /// Stalls for I/O.
    #[prost(message, optional, tag = "6")]
    pub io: Option<v1::IoUsage>,
}

/// `ContainerAttributes`
#[derive(Clone, PartialEq, prost::Message)]
struct Attributes {
    #[prost(bytes = "bytes", tag = "1")]
    id: Bytes,
    #[prost(message, optional, tag = "2")]
    metadata: Option<ContainerName>,
}

/// `ContainerMetadata`
#[derive(Clone, PartialEq, prost::Message)]
struct ContainerName {
    #[prost(bytes = "bytes", tag = "1")]
    name: Bytes,
}

/// `PodSandboxMetadata`
#[derive(Clone, PartialEq, prost::Message)]
struct PodName {
    #[prost(bytes = "bytes", tag = "1")]
    name: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    uid: Bytes,
    #[prost(bytes = "bytes", tag = "3")]
    namespace: Bytes,
    #[prost(uint32, tag = "4")]
    attempt: u32,
}

/// `ImageSpec`
#[derive(Clone, PartialEq, prost::Message)]
struct Image {
    #[prost(bytes = "bytes", tag = "1")]
    image: Bytes,
    #[prost(bytes = "bytes", tag = "19")]
    runtime_handler: Bytes,
}

/// An entry of a map.
#[derive(Clone, PartialEq, prost::Message)]
struct Entry {
    #[prost(bytes = "bytes", tag = "1")]
    key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    value: Bytes,
}

impl ListedContainer {
    /// The container's id.
    pub fn id(&self) -> &str {
        text(&self.id)
    }

    /// The id of the sandbox it is in.
    pub fn pod_sandbox_id(&self) -> &str {
        text(&self.pod_sandbox_id)
    }

    /// Its name in the pod; `None` without metadata.
    pub fn name(&self) -> Option<&str> {
        self.metadata.as_ref().map(|metadata| text(&metadata.name))
    }

    /// The image from the container's config; `None` if the runtime does not report it.
    pub fn image(&self) -> Option<&str> {
        self.image.as_ref().map(|image| text(&image.image))
    }

    /// The runtime handler that pulled the image; empty for the default.
    pub fn image_runtime_handler(&self) -> &str {
        self.image
            .as_ref()
            .map_or("", |image| text(&image.runtime_handler))
    }

    /// The digested reference of the image.
    pub fn image_ref(&self) -> &str {
        text(&self.image_ref)
    }

    /// The id of the image; empty for runtimes before v1.30 of CRI.
    pub fn image_id(&self) -> &str {
        text(&self.image_id)
    }

    /// When it was created, in Unix nanoseconds.
    pub fn created_at(&self) -> i64 {
        self.created_at
    }

    /// The label of that key.
    pub fn label(&self, key: &str) -> Option<&str> {
        value(&self.labels, key)
    }

    /// The annotation of that key.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        value(&self.annotations, key)
    }

    /// Whether what a relist reads of it is text.
    #[cfg(feature = "client")]
    pub(crate) fn is_text(&self) -> bool {
        let scalars = [&self.id, &self.pod_sandbox_id, &self.image_ref, &self.image_id];
        let name = self.metadata.iter().map(|metadata| &metadata.name);
        let image = self
            .image
            .iter()
            .flat_map(|image| [&image.image, &image.runtime_handler]);
        are_text(scalars.into_iter().chain(name).chain(image)) && are_text(values(&self.labels))
    }
}

impl ListedSandbox {
    /// The sandbox's id.
    pub fn id(&self) -> &str {
        text(&self.id)
    }

    /// The pod's UID; `None` without metadata.
    pub fn uid(&self) -> Option<&str> {
        self.metadata.as_ref().map(|metadata| text(&metadata.uid))
    }

    /// The pod's namespace.
    pub fn namespace(&self) -> &str {
        self.metadata
            .as_ref()
            .map_or("", |metadata| text(&metadata.namespace))
    }

    /// The pod's name.
    pub fn name(&self) -> &str {
        self.metadata.as_ref().map_or("", |metadata| text(&metadata.name))
    }

    /// How many sandboxes the pod had before it.
    pub fn attempt(&self) -> u32 {
        self.metadata.as_ref().map_or(0, |metadata| metadata.attempt)
    }

    /// When it was created, in Unix nanoseconds.
    pub fn created_at(&self) -> i64 {
        self.created_at
    }

    /// The label of that key.
    pub fn label(&self, key: &str) -> Option<&str> {
        value(&self.labels, key)
    }

    /// Whether what a relist reads of it is text.
    #[cfg(feature = "client")]
    pub(crate) fn is_text(&self) -> bool {
        let names = self.metadata.iter();
        let names = names.flat_map(|metadata| [&metadata.name, &metadata.uid, &metadata.namespace]);
        are_text(names.chain([&self.id])) && are_text(values(&self.labels))
    }
}

impl ListedStats {
    /// The container's id; `None` without attributes.
    pub fn id(&self) -> Option<&str> {
        self.attributes.as_ref().map(|attributes| text(&attributes.id))
    }

    /// The container's name in the pod; `None` without metadata.
    pub fn name(&self) -> Option<&str> {
        let metadata = self.attributes.as_ref()?.metadata.as_ref()?;
        Some(text(&metadata.name))
    }

    /// Whether id and name are text. All else was checked while it was decoded.
    #[cfg(feature = "client")]
    pub(crate) fn is_text(&self) -> bool {
        self.attributes.as_ref().is_none_or(|attributes| {
            let name = attributes.metadata.as_ref().map(|metadata| &metadata.name);
            are_text(name.into_iter().chain([&attributes.id]))
        })
    }
}

impl From<v1::ContainerStats> for ListedStats {
    fn from(stats: v1::ContainerStats) -> Self {
        Self {
            attributes: stats.attributes.map(|attributes| Attributes {
                id: attributes.id.into(),
                metadata: attributes.metadata.map(|metadata| ContainerName {
                    name: metadata.name.into(),
                }),
            }),
            cpu: stats.cpu,
            memory: stats.memory,
            writable_layer: stats.writable_layer,
            swap: stats.swap,
            io: stats.io,
        }
    }
}

impl From<v1::Container> for ListedContainer {
    fn from(container: v1::Container) -> Self {
        Self {
            id: container.id.into(),
            pod_sandbox_id: container.pod_sandbox_id.into(),
            metadata: container.metadata.map(|metadata| ContainerName {
                name: metadata.name.into(),
            }),
            image: container.image.map(|image| Image {
                image: image.image.into(),
                runtime_handler: image.runtime_handler.into(),
            }),
            image_ref: container.image_ref.into(),
            state: container.state,
            created_at: container.created_at,
            labels: entries(container.labels),
            annotations: entries(container.annotations),
            image_id: container.image_id.into(),
        }
    }
}

impl From<v1::PodSandbox> for ListedSandbox {
    fn from(sandbox: v1::PodSandbox) -> Self {
        Self {
            id: sandbox.id.into(),
            metadata: sandbox.metadata.map(|metadata| PodName {
                name: metadata.name.into(),
                uid: metadata.uid.into(),
                namespace: metadata.namespace.into(),
                attempt: metadata.attempt,
            }),
            state: sandbox.state,
            created_at: sandbox.created_at,
            labels: entries(sandbox.labels),
        }
    }
}

fn entries(map: std::collections::BTreeMap<String, String>) -> Vec<Entry> {
    let entry = |(key, value): (String, String)| Entry {
        key: key.into(),
        value: value.into(),
    };
    map.into_iter().map(entry).collect()
}

fn text(bytes: &Bytes) -> &str {
    str::from_utf8(bytes).unwrap_or_default()
}

/// Of a key that came twice the last value counts, as in every map of the wire.
fn value<'a>(entries: &'a [Entry], key: &str) -> Option<&'a str> {
    let entry = entries.iter().rfind(|entry| entry.key == key.as_bytes())?;
    Some(text(&entry.value))
}

#[cfg(feature = "client")]
fn values(entries: &[Entry]) -> impl Iterator<Item = &Bytes> {
    entries.iter().map(|entry| &entry.value)
}

#[cfg(feature = "client")]
fn are_text<'a>(mut texts: impl Iterator<Item = &'a Bytes>) -> bool {
    texts.all(|text| str::from_utf8(text).is_ok())
}
