//! Serves the streams of a runtime.

pub mod spdy;
