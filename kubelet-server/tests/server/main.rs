//! The node's server, from outside.

#[cfg(feature = "streaming")]
mod streams;
