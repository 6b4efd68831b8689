//! The fields of listed sandboxes and containers that a relist needs, and those of their stats that a node reports.
//!
//! A kubelet lists every second, and most of a list is labels and annotations that it never reads. So a listed item keeps its encoded
//! message, a part of the answer that is not copied, and where its texts are in it.

mod container;
mod fields;
mod sandbox;
mod stats;

pub use container::ListedContainer;
#[cfg(feature = "client")]
pub(crate) use fields::Malformed;
pub use sandbox::ListedSandbox;
pub use stats::ListedStats;
