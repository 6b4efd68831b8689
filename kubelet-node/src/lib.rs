//! The node itself, as kubelet v1.36 tells it to an API server.

#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "certificates")]
pub mod certificate;
mod error;

pub use error::{Error, Result};
