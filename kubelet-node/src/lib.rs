//! The node itself, as kubelet v1.36 tells it to an API server.

mod error;

pub use error::{Error, Result};
