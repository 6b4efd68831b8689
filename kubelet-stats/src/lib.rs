//! What node, pods and containers use: the summary of a kubelet, the metrics of cAdvisor, the resource metrics.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![warn(missing_docs)]

mod cgroup_name;
pub mod collector;
mod error;
pub mod metrics;
pub mod reading;
pub mod source;
mod summary;

pub use collector::{Collector, CollectorConfig, DEFAULT_AGE};
pub use error::{Error, Result};
pub use metrics::Endpoints;
pub use reading::{Machine, Reading, Snapshot};
pub use summary::{NodeSummary, SummaryConfig};
