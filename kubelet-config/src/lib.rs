//! What a node is to run: pods from any number of sources, merged into one ordered stream of updates, as
//! the kubelet does it (`pkg/kubelet/config`). How a pod runs is no concern of this crate.
//!
//! * [`PodConfig`] reads [`PodSource`]s and sends [`PodUpdate`]s: what to add, update, delete, remove or
//!   reconcile.
//! * [`PodStorage`] is the merger in it, a pure state machine for those who have a loop of their own.
//! * `FileSource` (feature `file`, on by default) reads static pods from a folder or a file, `HttpSource` (feature
//!   `http`) from a URL; `ApiServerSource` (feature `apiserver`) reads the pods that an API server binds to the node.
//!   With the latter come `ConfigObjectManager` (`ConfigObjectWatches`, or `ApiServerConfigObjects`, which asks each time) and
//!   `ApiServerTokens`, for what those pods refer to, and `Informer`, for the services that they are told of and the
//!   RuntimeClasses that they name.
//! * [`CheckpointSource`] keeps the pods of any of them on disk, for a restart without it.
//! * [`manifest`] makes the pod of a node from the text of a manifest: decoded, defaulted, validated.
//! * [`kubelet_configuration`] is the node's own configuration: [`KubeletConfiguration`] from its file and drop-ins,
//!   with defaults and validation; [`credential_provider`] the one of registries' credentials.
//! * [`FeatureGates`] are the kubelet's, with their stages, defaults and dependencies.
//! * `flags` (feature `cli`) reads a kubelet's command line.
//!
//! Any stream of lists of pods is a source:
//!
//! ```
//! use std::sync::Arc;
//!
//! use futures::stream;
//! use kubelet_config::manifest::{self, Location};
//! use kubelet_config::{PodConfig, PodOperation, StreamSource};
//! use tokio::sync::mpsc;
//! use tokio_util::sync::CancellationToken;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let text = b"
//! apiVersion: v1
//! kind: Pod
//! metadata: {name: web}
//! spec:
//!   containers: [{name: main, image: 'busybox:1.36'}]
//! ";
//! let web = manifest::decode(text, "node-1", Location::Url("example:web"))?.pod;
//! // The source lists the pod, and then no longer.
//! let snapshots = stream::iter([vec![Arc::new(web)], vec![]]);
//!
//! let config = PodConfig::builder()
//!     .source(StreamSource::new("mine", snapshots))
//!     .build()?;
//! let (tx, mut updates) = mpsc::channel(50);
//! let shutdown = CancellationToken::new();
//! let running = tokio::spawn(config.run(tx, shutdown.clone()));
//!
//! let mut told = Vec::new();
//! while let Some(update) = updates.recv().await {
//!     let names = update.pods.iter().map(|pod| pod.metadata.name.clone().unwrap_or_default());
//!     println!("{:?} {:?} from {}", update.op, names.collect::<Vec<_>>(), update.source);
//!     told.push(update.op);
//!     if update.op == PodOperation::Remove {
//!         shutdown.cancel();
//!     }
//! }
//! running.await??;
//! assert_eq!(told, [PodOperation::Add, PodOperation::Remove]);
//! # Ok(())
//! # }
//! ```
#![cfg_attr(docsrs, feature(doc_cfg))]
#![warn(missing_docs)]

#[cfg(feature = "apiserver")]
mod api_objects;
#[cfg(feature = "apiserver")]
mod api_source;
mod checkpoint_source;
#[cfg(feature = "apiserver")]
mod compact_pod;
pub mod credential_provider;
mod document;
mod error;
#[cfg(any(feature = "apiserver", feature = "http"))]
mod error_chain;
mod feature_gates;
#[cfg(feature = "file")]
mod file_source;
#[cfg(feature = "cli")]
pub mod flags;
mod fnv128a;
#[cfg(feature = "http")]
mod http_source;
#[cfg(feature = "apiserver")]
mod informer;
pub mod kubelet_configuration;
pub mod manifest;
mod names;
mod pod_config;
mod pod_diff;
mod pod_storage;
#[cfg(feature = "apiserver")]
mod reflector;
mod source_status;
mod source_stream;
mod yaml;

#[cfg(feature = "apiserver")]
pub use api_objects::{
    ApiServerConfigObjects, ApiServerTokens, ConfigObjectManager, ConfigObjectWatches, WatchedConfigObjects,
};
#[cfg(feature = "apiserver")]
pub use api_source::ApiServerSource;
pub use checkpoint_source::CheckpointSource;
pub use error::{ConfigurationStage, Error, Result};
pub use feature_gates::{FeatureGate, FeatureGates, FeatureStage};
#[cfg(feature = "file")]
pub use file_source::FileSource;
#[cfg(feature = "http")]
pub use http_source::HttpSource;
#[cfg(feature = "apiserver")]
pub use informer::{Informer, InformerHandle};
pub use kubelet_configuration::KubeletConfiguration;
pub use kubelet_core::{PodOperation, PodSource, PodUpdate, PodUpdates, SourceUpdate, StreamSource};
pub use pod_config::{PodConfig, PodConfigBuilder, PodConfigHandle, PodConfigNotificationMode};
pub use pod_storage::PodStorage;
pub use source_status::SourceStatus;

#[cfg(all(doctest, feature = "file"))]
#[doc = include_str!("../README.md")]
struct Readme;
