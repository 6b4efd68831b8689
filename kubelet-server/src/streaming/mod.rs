//! Serves the streams of a runtime.
