//! Tests of the managers through the public API.

mod checkpoints;
mod recorded;
