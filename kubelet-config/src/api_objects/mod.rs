//! What pods refer to on an API server: config maps, secrets, tokens of their service accounts.

mod config_objects;
mod manager;
mod references;
mod tokens;
mod watches;

pub use config_objects::ApiServerConfigObjects;
pub use manager::ConfigObjectManager;
pub use tokens::ApiServerTokens;
pub use watches::{ConfigObjectWatches, WatchedConfigObjects};
