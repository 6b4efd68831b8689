//! Builders for statuses: the API's and a runtime's.

mod api;
mod runtime;

pub use api::{ContainerStatusBuilder, PodStatusBuilder};
pub use runtime::{RuntimeContainerBuilder, RuntimeStatusBuilder};
