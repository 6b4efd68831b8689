//! Tests of the managers through the public API.

mod checkpoints;
mod product_merge;
mod recorded;
mod sysfs;
