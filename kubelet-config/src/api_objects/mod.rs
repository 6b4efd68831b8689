//! What pods refer to on an API server: config maps, secrets, tokens of their service accounts, trust bundles.

mod cluster_trust_bundles;
mod config_objects;
mod manager;
mod references;
mod tokens;
mod watches;

pub use cluster_trust_bundles::{ApiServerClusterTrustBundles, ClusterTrustBundleInformer};
pub use config_objects::ApiServerConfigObjects;
pub use manager::ConfigObjectManager;
pub use tokens::ApiServerTokens;
pub use watches::{ConfigObjectWatches, WatchedConfigObjects};
