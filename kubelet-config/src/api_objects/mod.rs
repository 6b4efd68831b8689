//! What pods refer to on an API server: config maps, secrets, tokens of their service accounts, trust bundles,
//! certificates of their own.

mod cluster_trust_bundles;
mod config_objects;
mod manager;
#[cfg(feature = "pod-certificates")]
mod pod_certificates;
mod references;
mod tokens;
mod watches;

pub use cluster_trust_bundles::{ApiServerClusterTrustBundles, ClusterTrustBundleInformer};
pub use config_objects::ApiServerConfigObjects;
pub use manager::ConfigObjectManager;
#[cfg(feature = "pod-certificates")]
pub use pod_certificates::{ApiServerPodCertificates, PodCertificateManager, PodCertificateManagerBuilder};
pub use tokens::ApiServerTokens;
pub use watches::{ConfigObjectWatches, WatchedConfigObjects};
