//! Tests of the managers through the public API.

mod checkpoints;
mod invariants;
mod manager;
mod pods;
mod product_merge;
mod recorded;
mod sysfs;
