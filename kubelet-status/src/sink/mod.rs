//! Sinks that come with the crate.

mod fan_out;
mod json_lines;
mod log;
mod memory;

pub use fan_out::FanOut;
pub use json_lines::{Blocking, JsonLines};
pub use log::LogSink;
pub use memory::{MemorySink, ReportedPod};
