//! Why a pod does not fit the node.

use std::fmt;

use super::{OUT_OF, Rejection};

/// One reason (`lifecycle.PredicateFailureReason`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PredicateFailure {
    /// The node has not enough of a resource.
    Insufficient(InsufficientResource),
    /// A predicate failed (`PredicateFailureError`).
    Predicate {
        /// `NodeAffinity`, `NodeName`, `NodePorts`, `TaintToleration`.
        name: &'static str,
        /// The message.
        description: &'static str,
    },
}

/// An insufficient resource (`InsufficientResourceError`). CPU in thousandths, everything else in whole units.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InsufficientResource {
    /// `cpu`, `memory`, `pods`, `ephemeral-storage`, `hugepages-2Mi`, `example.com/gpu`…
    pub resource: String,
    /// The pod's request.
    pub requested: i64,
    /// What the other pods hold.
    pub used: i64,
    /// The node's allocatable amount.
    pub capacity: i64,
}

impl InsufficientResource {
    /// How much is missing (`GetInsufficientAmount`).
    pub fn missing(&self) -> i64 {
        self.requested
            .saturating_sub(self.capacity.saturating_sub(self.used))
    }
}

impl PredicateFailure {
    pub(super) const NODE_AFFINITY: Self = Self::Predicate {
        name: "NodeAffinity",
        description: "node(s) didn't match Pod's node affinity/selector",
    };
    pub(super) const NODE_NAME: Self = Self::Predicate {
        name: "NodeName",
        description: "node(s) didn't match the requested node name",
    };
    pub(super) const NODE_PORTS: Self = Self::Predicate {
        name: "NodePorts",
        description: "node(s) didn't have free ports for the requested pod ports",
    };
    pub(super) const TAINT_TOLERATION: Self = Self::Predicate {
        name: "TaintToleration",
        description: "node(s) had taints that the pod didn't tolerate",
    };

    /// The rejection of a pod for this reason.
    pub(super) fn rejection(&self) -> Rejection {
        let reason = match self {
            Self::Insufficient(InsufficientResource { resource, .. }) => format!("{OUT_OF}{resource}"),
            Self::Predicate { name, .. } => (*name).to_owned(),
        };
        Rejection::new(reason, self.to_string())
    }
}

impl fmt::Display for PredicateFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Insufficient(InsufficientResource {
                resource,
                requested,
                used,
                capacity,
            }) => write!(
                f,
                "Node didn't have enough resource: {resource}, requested: {requested}, used: {used}, capacity: {capacity}"
            ),
            Self::Predicate { name, description } => write!(f, "Predicate {name} failed: {description}"),
        }
    }
}
