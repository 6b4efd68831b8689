//! The usage of a container.

use prost::bytes::Bytes;

use crate::v1;

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
    metadata: Option<Metadata>,
}

/// `ContainerMetadata`
#[derive(Clone, PartialEq, prost::Message)]
struct Metadata {
    #[prost(bytes = "bytes", tag = "1")]
    name: Bytes,
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
        let is_text = |bytes: &Bytes| str::from_utf8(bytes).is_ok();
        self.attributes.as_ref().is_none_or(|attributes| {
            let name = attributes.metadata.as_ref().map(|metadata| &metadata.name);
            is_text(&attributes.id) && name.is_none_or(is_text)
        })
    }
}

impl From<v1::ContainerStats> for ListedStats {
    fn from(stats: v1::ContainerStats) -> Self {
        Self {
            attributes: stats.attributes.map(|attributes| Attributes {
                id: attributes.id.into(),
                metadata: attributes.metadata.map(|metadata| Metadata {
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

fn text(bytes: &Bytes) -> &str {
    str::from_utf8(bytes).unwrap_or_default()
}
