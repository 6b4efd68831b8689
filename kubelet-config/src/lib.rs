//! The pods of a node and the configuration of its kubelet (`pkg/kubelet/config`). This crate merges pods from any
//! number of sources into one ordered stream of updates, as the kubelet does. It does not run pods.
//!
//! * [`PodConfig`] reads [`PodSource`]s and sends [`PodUpdate`]s: what to add, update, delete, remove or
//!   reconcile.
//! * [`PodStorage`] is the state machine that merges. Use it directly if you have your own loop.
//! * `FileSource` (feature `file`, on by default) reads static pods from a folder or a file, `HttpSource` (feature
//!   `http`) from a URL; `ApiServerSource` (feature `apiserver`) reads the pods that an API server binds to the
//!   node. The feature `apiserver` also has what those pods need: `ConfigObjectManager` reads config maps and
//!   secrets (`ConfigObjectWatches` watches them, `ApiServerConfigObjects` reads them each time), `ApiServerTokens`
//!   requests tokens, `Informer` watches services and RuntimeClasses, and `ClusterTrustBundleInformer` trust bundles.
//!   `PodCertificateManager` (feature `pod-certificates`) requests the certificates of pods.
//! * [`CheckpointSource`] saves the pods of any source on disk. The node can restart while the source is
//!   unavailable.
//! * [`manifest`] decodes the manifest of a static pod, sets its defaults and validates it.
//! * [`kubelet_configuration`] reads [`KubeletConfiguration`] from its file and drop-ins, sets its defaults and
//!   validates it. [`credential_provider`] does the same for the configuration of image credential providers.
//! * [`FeatureGates`] are the feature gates of the kubelet, with their stages, defaults and dependencies.
//! * `flags` (feature `cli`) reads the command line of a kubelet.
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
//! // The source lists the pod, and then lists no pods.
//! let snapshots = stream::iter([vec![Arc::new(web)], vec![]]);
//!
//! let config = PodConfig::builder()
//!     .source(StreamSource::new("mine", snapshots))
//!     .build()?;
//! let (tx, mut updates) = mpsc::channel(50);
//! let shutdown = CancellationToken::new();
//! let running = tokio::spawn(config.run(tx, shutdown.clone()));
//!
//! let mut operations = Vec::new();
//! while let Some(update) = updates.recv().await {
//!     let names = update.pods.iter().map(|pod| pod.metadata.name.clone().unwrap_or_default());
//!     println!("{:?} {:?} from {}", update.op, names.collect::<Vec<_>>(), update.source);
//!     operations.push(update.op);
//!     if update.op == PodOperation::Remove {
//!         shutdown.cancel();
//!     }
//! }
//! running.await??;
//! assert_eq!(operations, [PodOperation::Add, PodOperation::Remove]);
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
    ApiServerClusterTrustBundles, ApiServerConfigObjects, ApiServerTokens, ClusterTrustBundleInformer,
    ConfigObjectManager, ConfigObjectWatches, WatchedConfigObjects,
};
#[cfg(feature = "pod-certificates")]
pub use api_objects::{ApiServerPodCertificates, PodCertificateManager, PodCertificateManagerBuilder};
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
