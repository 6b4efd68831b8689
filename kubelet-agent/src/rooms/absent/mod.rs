//! The neutral twins of the rooms that features switch off. They build nothing, change nothing and start nothing; a setting that
//! would need the room is a problem that names the feature.

#[cfg(all(feature = "apiserver", not(feature = "certificates")))]
pub(crate) mod certificates;
#[cfg(not(feature = "apiserver"))]
pub(crate) mod cluster;
#[cfg(not(feature = "server"))]
pub(crate) mod console;
#[cfg(not(target_os = "linux"))]
pub(crate) mod host;
#[cfg(not(feature = "http"))]
pub(crate) mod http;
#[cfg(not(feature = "api"))]
pub(crate) mod own_api;
#[cfg(not(feature = "plugins"))]
pub(crate) mod plugins;
#[cfg(not(feature = "server"))]
pub(crate) mod server;
#[cfg(not(feature = "server"))]
pub(crate) mod streams;
