//! Hints: on which NUMA nodes a resource could be allocated.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, Pod};

use crate::numa_set::NumaSet;
use crate::{BoxError, Error, Result};

/// A set of nodes on which a request can be satisfied (`TopologyHint`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TopologyHint {
    /// The nodes. `None`: any.
    pub nodes: Option<NumaSet>,
    /// Whether it is one of the best that this machine could offer if nothing were allocated.
    pub preferred: bool,
}

impl TopologyHint {
    /// A hint for these nodes.
    pub const fn new(nodes: NumaSet, preferred: bool) -> Self {
        Self {
            nodes: Some(nodes),
            preferred,
        }
    }

    /// A hint for any nodes.
    pub const fn any(preferred: bool) -> Self {
        Self {
            nodes: None,
            preferred,
        }
    }
}

/// The hints of one provider, by the name of the resource.
///
/// No resource at all, or `None` for a resource: the provider has no preference. An empty list: the request cannot be
/// satisfied on any nodes.
pub type ResourceHints = BTreeMap<String, Option<Vec<TopologyHint>>>;

/// A part that allocates a resource of NUMA nodes (`topologymanager.HintProvider`), e.g. devices.
///
/// For each container in the order of their start, the provider is first asked for its hints. Those of all providers are
/// merged, then each provider allocates with the merged hint. If the scope is `pod`, it is asked once for the whole pod.
pub trait HintProvider: Send {
    /// The nodes on which the container's request can be satisfied.
    fn container_hints(&mut self, pod: &Arc<Pod>, container: &Container) -> ResourceHints;

    /// The nodes on which the requests of the whole pod can be satisfied.
    fn pod_hints(&mut self, pod: &Arc<Pod>) -> ResourceHints;

    /// Allocates for the container, on the nodes of the hint if possible. A second call for the same container changes
    /// nothing.
    ///
    /// # Errors
    ///
    /// The pod is rejected.
    fn allocate(&mut self, pod: &Arc<Pod>, container: &Container, hint: TopologyHint)
    -> Result<(), BoxError>;

    /// Allocates for the whole pod, which has pod-level resources.
    ///
    /// # Errors
    ///
    /// The pod is rejected.
    fn allocate_pod(&mut self, pod: &Arc<Pod>, hint: TopologyHint) -> Result<(), BoxError> {
        let _ = (pod, hint);
        Ok(())
    }
}

/// The hints of a resource that is allocated through calls to plugins, e.g. devices: a [`HintProvider`] of which the allocation is
/// made outside of the decision.
pub trait HintSource: Send + Sync {
    /// The nodes on which the container's request can be satisfied.
    fn container_hints(&self, pod: &Arc<Pod>, container: &Container) -> ResourceHints;

    /// The nodes on which the requests of the whole pod can be satisfied.
    fn pod_hints(&self, pod: &Arc<Pod>) -> ResourceHints;
}

/// The provider that gives these hints and allocates nothing.
pub(crate) struct HintsOnly(pub(crate) Arc<dyn HintSource>);

impl HintProvider for HintsOnly {
    fn container_hints(&mut self, pod: &Arc<Pod>, container: &Container) -> ResourceHints {
        self.0.container_hints(pod, container)
    }

    fn pod_hints(&mut self, pod: &Arc<Pod>) -> ResourceHints {
        self.0.pod_hints(pod)
    }

    fn allocate(&mut self, _: &Arc<Pod>, _: &Container, _: TopologyHint) -> Result<(), BoxError> {
        Ok(())
    }
}

/// The error of a provider: one of this crate stays as it is.
pub(crate) fn provider_error(error: BoxError) -> Error {
    match error.downcast::<Error>() {
        Ok(error) => *error,
        Err(error) => Error::Provider(error),
    }
}
