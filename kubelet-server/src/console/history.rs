//! [`History`]: what the console remembers of containers and durations, because statuses have only the last state.

use std::collections::{BTreeMap, VecDeque};

use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus, Pod, PodStatus};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kubelet_core::{PodExt as _, PodUid};

use super::sources::Durations;

/// How many runs of a container are kept.
const RUNS: usize = 50;
/// How long a run counts as new.
const NEW: SignedDuration = SignedDuration::from_secs(3);
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
    /// When it became ready, if that is known.
    pub(super) ready: Option<Timestamp>,
    /// Whether it was ready when it was observed last; `None` before.
    observed: Option<bool>,
}

impl Run {
    fn observe(&mut self, is_ready: bool, all_ready: Option<Timestamp>, now: Timestamp) {
        let before = self.observed.replace(is_ready);
        if !is_ready || self.ready.is_some() || before == Some(true) {
            return;
        }
        // Who looks at a container that is ready already does not know since when, unless the whole pod says so.
        let is_known = before.is_some() || now.duration_since(self.started) < NEW;
        let all_ready = all_ready.filter(|since| *since >= self.started);
        self.ready = all_ready.or(is_known.then_some(now));
    }
}

/// Since when all containers of the pod are ready, if they are.
fn all_ready_since(status: &PodStatus) -> Option<Timestamp> {
    let mut conditions = status.conditions.iter().flatten();
    let ready =
        conditions.find(|condition| condition.type_ == "ContainersReady" && condition.status == "True");
    Some(ready?.last_transition_time.as_ref()?.0)
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
            let all_ready = all_ready_since(status);
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
                if let Some(last) = runs.back_mut().filter(|_| is_running) {
                    last.observe(container.ready, all_ready, now);
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
            observed: None,
        });
    }
    let ended = state.terminated.as_ref()?;
    let started = ended.started_at.as_ref()?.0;
    let finished = ended.finished_at.as_ref().map_or(started, |time| time.0);
    Some(Run {
        started,
        ended: Some((finished, ended.exit_code)),
        ready: None,
        observed: None,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_is_known_or_left_out() {
        let at = |seconds: i64| Timestamp::from_second(seconds).unwrap();
        for (started, all_ready, observed, ready) in [
            // Ready from the start.
            (100, None, &[(101, true)][..], Some(101)),
            // It became ready while it was observed.
            (100, None, &[(105, false), (120, true), (130, true)], Some(120)),
            // It was ready before.
            (100, None, &[(500, true), (501, true)], None),
            (100, Some(110), &[(500, true)], Some(110)),
            // Another run was ready then.
            (100, Some(90), &[(500, true)], None),
            (100, None, &[(101, false)], None),
        ] {
            let mut run = Run {
                started: at(started),
                ended: None,
                ready: None,
                observed: None,
            };
            for (now, is_ready) in observed {
                run.observe(*is_ready, all_ready.map(at), at(*now));
            }
            assert_eq!(run.ready, ready.map(at), "{observed:?}");
        }
    }
}
