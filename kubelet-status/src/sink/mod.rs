//! The sinks of this crate.

#[cfg(feature = "apiserver")]
mod api_server;
mod fan_out;
mod json_lines;
mod log;
mod memory;

#[cfg(feature = "apiserver")]
pub use api_server::{ApiServerEvents, ApiServerMirrorClient, ApiServerNode, ApiServerSink};
pub use fan_out::FanOut;
pub use json_lines::{Blocking, JsonLines};
pub use log::LogSink;
pub use memory::{MemorySink, ReportedPod};
