//! [`History`]: what the console remembers of containers and durations, because statuses have only the last state.

use std::collections::{BTreeMap, VecDeque};

use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus, Pod, PodStatus};
use k8s_openapi::jiff::Timestamp;
use kubelet_core::{PodExt as _, PodUid};

use super::sources::Durations;

/// How many runs of a container are kept.
const RUNS: usize = 50;
/// How many points a plot has.
pub(super) const POINTS: usize = 120;

/// The durations that are plotted: the metric, its title, and what it says.
pub(super) const PLOTS: [(&str, &str, &str); 3] = [
    (
        "kubelet_pleg_relist_duration_seconds",
        "PLEG relist",
        "how long a list of all containers takes",
    ),
    (
        "kubelet_pod_worker_duration_seconds",
        "Pod sync",
        "how long a sync of a pod takes",
    ),
    (
        "kubelet_pleg_relist_interval_seconds",
        "Relist interval",
        "from one list to the next",
    ),
];

/// One run of a container.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Run {
    pub(super) started: Timestamp,
    /// When it ended, and its exit code.
    pub(super) ended: Option<(Timestamp, i32)>,
    /// The time at which it was first seen ready.
    pub(super) ready: Option<Timestamp>,
}

#[derive(Debug, Default)]
pub(super) struct History {
    containers: BTreeMap<(PodUid, String), VecDeque<Run>>,
    totals: [Option<(u64, f64)>; PLOTS.len()],
    /// The mean of each plot in each period, in seconds; `None` where nothing was measured.
    points: [VecDeque<Option<f64>>; PLOTS.len()],
}

impl History {
    /// Takes the statuses of the present pods, and forgets all others.
    pub(super) fn observe(&mut self, pods: &[(std::sync::Arc<Pod>, PodStatus)], now: Timestamp) {
        self.containers
            .retain(|(pod, _), _| pods.iter().any(|(known, _)| known.uid() == *pod));
        for (pod, status) in pods {
            for container in containers(status) {
                let runs = self
                    .containers
                    .entry((pod.uid(), container.name.clone()))
                    .or_default();
                for state in [&container.last_state, &container.state].into_iter().flatten() {
                    if let Some(run) = run(state) {
                        keep(runs, run);
                    }
                }
                let is_running = container
                    .state
                    .as_ref()
                    .is_some_and(|state| state.running.is_some());
                if let Some(last) = runs.back_mut().filter(|_| is_running && container.ready) {
                    last.ready.get_or_insert(now);
                }
            }
        }
    }

    /// Adds a point to each plot.
    pub(super) fn sample(&mut self, durations: &dyn Durations) {
        for (place, (metric, ..)) in PLOTS.iter().enumerate() {
            let totals = durations.totals(metric);
            let mean = match (self.totals[place], totals) {
                (Some((count, sum)), Some((now, total))) if now > count => {
                    Some((total - sum) / (now - count) as f64)
                }
                _ => None,
            };
            self.totals[place] = totals;
            let points = &mut self.points[place];
            points.push_back(mean);
            if points.len() > POINTS {
                points.pop_front();
            }
        }
    }

    pub(super) fn runs(&self, pod: &PodUid, container: &str) -> Vec<Run> {
        let runs = self.containers.get(&(pod.clone(), container.to_owned()));
        runs.into_iter().flatten().cloned().collect()
    }

    pub(super) fn points(&self, plot: usize) -> Vec<Option<f64>> {
        self.points.get(plot).into_iter().flatten().copied().collect()
    }
}

/// The statuses of all containers, in the order in which they start.
pub(super) fn containers(status: &PodStatus) -> impl Iterator<Item = &ContainerStatus> {
    let lists = [
        &status.init_container_statuses,
        &status.container_statuses,
        &status.ephemeral_container_statuses,
    ];
    lists.into_iter().flatten().flatten()
}

fn run(state: &ContainerState) -> Option<Run> {
    if let Some(running) = &state.running {
        let started = running.started_at.as_ref()?.0;
        return Some(Run {
            started,
            ended: None,
            ready: None,
        });
    }
    let ended = state.terminated.as_ref()?;
    let started = ended.started_at.as_ref()?.0;
    let finished = ended.finished_at.as_ref().map_or(started, |time| time.0);
    Some(Run {
        started,
        ended: Some((finished, ended.exit_code)),
        ready: None,
    })
}

fn keep(runs: &mut VecDeque<Run>, run: Run) {
    match runs.iter_mut().find(|known| known.started == run.started) {
        Some(known) => known.ended = known.ended.or(run.ended),
        None => {
            let place = runs.partition_point(|known| known.started < run.started);
            runs.insert(place, run);
            if runs.len() > RUNS {
                runs.pop_front();
            }
        }
    }
}
