//! What a page shows of a pod.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodStatus};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kubelet_core::{PodExt as _, PodUid};

use super::drawings::{Lane, Timeline};
use super::history::{History, containers};
use super::sources::ShownEvent;

/// A pod with its newest status.
#[derive(Clone, Debug)]
pub(super) struct ShownPod {
    pub(super) pod: Arc<Pod>,
    pub(super) status: PodStatus,
}

/// How a pod is doing, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Health {
    Failing,
    Waiting,
    Running,
    Done,
}

impl Health {
    /// The class in the style sheet.
    pub(super) fn class(self) -> &'static str {
        match self {
            Health::Failing => "failing",
            Health::Waiting => "waiting",
            Health::Running => "running",
            Health::Done => "done",
        }
    }
}

impl ShownPod {
    pub(super) fn uid(&self) -> PodUid {
        self.pod.uid()
    }

    pub(super) fn namespace(&self) -> String {
        self.pod.key().namespace.to_string()
    }

    pub(super) fn name(&self) -> String {
        self.pod.key().name.to_string()
    }

    /// The names of its containers that have or had a process, in the order in which they start.
    pub(super) fn containers(&self) -> Vec<&ContainerStatus> {
        containers(&self.status).collect()
    }

    /// The ready and all containers.
    pub(super) fn ready(&self) -> (usize, usize) {
        let ready = self
            .status
            .container_statuses
            .iter()
            .flatten()
            .filter(|container| container.ready)
            .count();
        (
            ready,
            self.pod.spec.as_ref().map_or(0, |spec| spec.containers.len()),
        )
    }

    pub(super) fn restarts(&self) -> i32 {
        self.status
            .container_statuses
            .iter()
            .flatten()
            .map(|container| container.restart_count)
            .sum()
    }

    pub(super) fn age(&self, now: Timestamp) -> SignedDuration {
        self.since()
            .map_or(SignedDuration::ZERO, |since| now.duration_since(since))
    }

    fn since(&self) -> Option<Timestamp> {
        let created = self.pod.metadata.creation_timestamp.as_ref();
        created.or(self.status.start_time.as_ref()).map(|time| time.0)
    }

    /// The word that `kubectl get pods` shows as `STATUS`, and how bad it is.
    pub(super) fn word(&self) -> (String, Health) {
        if self.pod.metadata.deletion_timestamp.is_some() {
            return ("Terminating".to_owned(), Health::Waiting);
        }
        let phase = self.status.phase.clone().unwrap_or_else(|| "Pending".to_owned());
        if let Some(reason) = self.status.reason.clone() {
            return (reason, Health::Failing);
        }
        for container in self.containers() {
            let Some(state) = &container.state else { continue };
            if let Some(waiting) = &state.waiting {
                let reason = waiting.reason.clone().unwrap_or_else(|| "Waiting".to_owned());
                let is_usual = matches!(reason.as_str(), "ContainerCreating" | "PodInitializing");
                return (
                    reason,
                    if is_usual {
                        Health::Waiting
                    } else {
                        Health::Failing
                    },
                );
            }
            if let Some(ended) = state.terminated.as_ref().filter(|ended| ended.exit_code != 0) {
                return (
                    ended.reason.clone().unwrap_or_else(|| "Error".to_owned()),
                    Health::Failing,
                );
            }
        }
        if phase == "Succeeded" {
            return ("Completed".to_owned(), Health::Done);
        }
        let (ready, all) = self.ready();
        let health = match phase.as_str() {
            "Failed" => Health::Failing,
            "Running" if ready == all => Health::Running,
            _ => Health::Waiting,
        };
        (phase, health)
    }

    /// The timeline of its containers.
    pub(super) fn timeline(&self, history: &History, events: &[ShownEvent], now: Timestamp) -> Timeline {
        let uid = self.uid();
        let lanes = self.containers().into_iter().map(|container| {
            let of = |reason: &str| {
                let of = events
                    .iter()
                    .filter(|event| event.container.as_deref() == Some(container.name.as_str()));
                of.filter(|event| event.reason == reason)
                    .map(|event| event.at)
                    .collect()
            };
            Lane {
                name: container.name.clone(),
                created: of("Created"),
                pulled: of("Pulled"),
                runs: history.runs(&uid, &container.name),
                restarts: container.restart_count,
            }
        });
        let lanes: Vec<Lane> = lanes.collect();
        let first = lanes
            .iter()
            .flat_map(|lane| lane.runs.first().map(|run| run.started));
        let from = self
            .since()
            .into_iter()
            .chain(first)
            .min()
            .unwrap_or(now)
            .min(now);
        Timeline {
            from,
            until: now,
            lanes,
        }
    }
}
