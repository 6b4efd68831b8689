//! The pressures of the node, as the manager last decided, for the node's status and for admission.

use std::fmt;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{Pod, Taint};
use kubelet_core::admission::tolerates;
use kubelet_core::{PodAdmitAttributes, PodAdmitHandler, PodExt, Pressure, QosClass, Rejection, qos_class};
use tokio::sync::watch;

use crate::{PressureCondition, REASON};

/// `TaintNodeMemoryPressure`
const MEMORY_PRESSURE_TAINT: &str = "node.kubernetes.io/memory-pressure";

/// Which resources of the node are under pressure. Clones share the state. It is a [`Pressure`] for the status of the node, and
/// a [`PodAdmitHandler`] that rejects pods under pressure.
///
/// Make one before the other parts of an agent, and pass it to the [`EvictionManager`](crate::EvictionManager), which updates it.
#[derive(Clone, Default)]
pub struct NodePressure {
    conditions: watch::Sender<Vec<PressureCondition>>,
}

impl NodePressure {
    /// A node without pressure.
    pub fn new() -> Self {
        Self::default()
    }

    /// The conditions that the node reports, sorted.
    pub fn conditions(&self) -> Vec<PressureCondition> {
        self.conditions.borrow().clone()
    }

    /// Replaces the conditions; for an agent that makes [decisions](crate::decide) by itself.
    pub fn set(&self, conditions: Vec<PressureCondition>) {
        self.conditions.send_if_modified(|current| {
            let changed = *current != conditions;
            *current = conditions;
            changed
        });
    }

    /// The conditions, now and after each change; for example to send the status of the node at once.
    pub fn changes(&self) -> watch::Receiver<Vec<PressureCondition>> {
        self.conditions.subscribe()
    }

    fn has(&self, condition: PressureCondition) -> bool {
        self.conditions.borrow().contains(&condition)
    }
}

impl Pressure for NodePressure {
    fn is_under_memory_pressure(&self) -> bool {
        self.has(PressureCondition::Memory)
    }

    fn is_under_disk_pressure(&self) -> bool {
        self.has(PressureCondition::Disk)
    }

    fn is_under_pid_pressure(&self) -> bool {
        self.has(PressureCondition::Pid)
    }
}

/// Critical pods are admitted under any pressure. Under memory pressure alone, all others are too, but best-effort pods that
/// do not tolerate its taint (`managerImpl.Admit`).
#[async_trait]
impl PodAdmitHandler for NodePressure {
    async fn admit(&self, attributes: &PodAdmitAttributes<'_>) -> Result<(), Rejection> {
        let (pod, conditions) = (attributes.pod, self.conditions());
        if conditions.is_empty() || pod.is_critical() || is_admitted_under(&conditions, pod) {
            return Ok(());
        }
        let names: Vec<&str> = conditions.iter().map(|condition| condition.as_str()).collect();
        let message = format!("The node had condition: [{}]. ", names.join(" "));
        Err(Rejection::new(REASON, message))
    }
}

fn is_admitted_under(conditions: &[PressureCondition], pod: &Pod) -> bool {
    let taint = Taint {
        key: MEMORY_PRESSURE_TAINT.to_owned(),
        effect: "NoSchedule".to_owned(),
        ..Taint::default()
    };
    let tolerated = || {
        let mut tolerations = pod.spec.iter().flat_map(|spec| spec.tolerations.iter().flatten());
        tolerations.any(|toleration| tolerates(toleration, &taint))
    };
    conditions == [PressureCondition::Memory] && (qos_class(pod) != QosClass::BestEffort || tolerated())
}

impl fmt::Debug for NodePressure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("NodePressure").field(&self.conditions()).finish()
    }
}
