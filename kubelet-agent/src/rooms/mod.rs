//! The rooms of an agent, one for each part of a node. `compose.rs` has the order in which they need each other.
//!
//! Each has the same shape, as far as it needs it:
//!
//! | name | what it does |
//! |---|---|
//! | `Parts` | what the builder of the agent gathers for the room |
//! | `check` | notes all that is wrong with the settings, before anything is done |
//! | `inspect` | notes all that this machine lacks for the settings, and changes nothing |
//! | `XRoom::open` | builds the room from its parts and from what the rooms before it offer (`Uses`) |
//! | `XRoom::report` | adds what the status of the node reports of the room |
//! | `XRoom::start` | adds its engines to the tasks, when the pod lifecycle is built |
//!
//! A room uses rooms before it, never one after it. A room that a feature switches off has a neutral twin of the same shape in
//! [`absent`], so that the composition knows of no feature.

mod absent;

#[cfg(not(target_os = "linux"))]
pub(crate) use self::absent::host;
#[cfg(target_os = "linux")]
pub(crate) mod host;

pub(crate) mod events;
pub(crate) mod machine;

#[cfg(not(feature = "http"))]
pub(crate) use self::absent::http;
#[cfg(feature = "http")]
pub(crate) mod http;

#[cfg(not(feature = "apiserver"))]
pub(crate) use self::absent::cluster;
#[cfg(feature = "apiserver")]
pub(crate) mod cluster;

#[cfg(not(feature = "api"))]
pub(crate) use self::absent::own_api;
#[cfg(feature = "api")]
pub(crate) mod own_api;

pub(crate) mod cgroups;
pub(crate) mod objects;
pub(crate) mod runtime;

#[cfg(not(feature = "plugins"))]
pub(crate) use self::absent::plugins;
#[cfg(feature = "plugins")]
pub(crate) mod plugins;

pub(crate) mod container_logs;
pub(crate) mod eviction;
pub(crate) mod health;
pub(crate) mod images;
pub(crate) mod node;
pub(crate) mod resources;
pub(crate) mod shutdown;
pub(crate) mod sources;
pub(crate) mod stats;
pub(crate) mod statuses;
pub(crate) mod volumes;

#[cfg(not(feature = "server"))]
pub(crate) use self::absent::{console, server, streams};
#[cfg(feature = "server")]
pub(crate) mod console;
#[cfg(feature = "server")]
pub(crate) mod server;
#[cfg(feature = "server")]
pub(crate) mod streams;
