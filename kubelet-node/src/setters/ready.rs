//! `Ready`

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{Node, NodeCondition};
use kubelet_core::{Clock, NodeEventRecorder};

use super::condition::record_status;
use super::{name, status};
use crate::{NodeStatusSetter, ReadyCheck, Result};

/// The name of the setter, and the type of its condition.
pub(crate) const READY: &str = "Ready";

/// Whether the node can run pods (`nodestatus.ReadyCondition`). It is the last condition, because old control
/// planes expect that.
pub(crate) struct Ready {
    pub(crate) checks: Arc<[Arc<dyn ReadyCheck>]>,
    pub(crate) local_storage_capacity_isolation: bool,
    pub(crate) clock: Clock,
    pub(crate) events: Arc<dyn NodeEventRecorder>,
}

#[async_trait]
impl NodeStatusSetter for Ready {
    fn name(&self) -> &str {
        READY
    }

    async fn set(&self, node: &mut Node) -> Result<()> {
        let mut problems: Vec<String> = self.checks.iter().flat_map(|check| check.problems()).collect();
        problems.extend(self.missing_capacity(node));
        let (ready, reason, mut message) = match aggregate(problems) {
            None => (
                "True",
                "KubeletReady",
                "kubelet is posting ready status".to_owned(),
            ),
            Some(problems) => ("False", "KubeletNotReady", problems),
        };
        for warning in self.checks.iter().filter_map(|check| check.warning()) {
            message = format!("{message}. WARNING: {warning}");
        }
        let now = self.clock.api_now();
        let mut condition = NodeCondition {
            type_: READY.to_owned(),
            status: ready.to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message),
            last_heartbeat_time: Some(now.clone()),
            last_transition_time: Some(now),
        };
        let conditions = status(node).conditions.get_or_insert_default();
        let Some(known) = conditions.iter_mut().find(|condition| condition.type_ == READY) else {
            conditions.push(condition);
            return Ok(());
        };
        let changed = known.status != condition.status;
        if !changed {
            condition
                .last_transition_time
                .clone_from(&known.last_transition_time);
        }
        let is_ready = condition.status == "True";
        *known = condition;
        if changed {
            record_status(
                &*self.events,
                name(node),
                if is_ready { "NodeReady" } else { "NodeNotReady" },
            );
        }
        Ok(())
    }
}

impl Ready {
    fn missing_capacity(&self, node: &mut Node) -> Option<String> {
        let capacity = status(node).capacity.get_or_insert_default();
        let storage = self
            .local_storage_capacity_isolation
            .then_some("ephemeral-storage");
        let required = ["cpu", "memory", "pods"].into_iter().chain(storage);
        let missing: Vec<&str> = required
            .filter(|resource| !capacity.contains_key(*resource))
            .collect();
        (!missing.is_empty()).then(|| format!("missing node capacity for resources: {}", missing.join(", ")))
    }
}

/// Joins the problems without repetitions; several are put in brackets (`errors.NewAggregate`).
fn aggregate(problems: Vec<String>) -> Option<String> {
    let mut seen = BTreeSet::new();
    let mut once = problems;
    once.retain(|problem| seen.insert(problem.clone()));
    match once.as_slice() {
        [] => None,
        [one] => Some(one.clone()),
        several => Some(format!("[{}]", several.join(", "))),
    }
}
