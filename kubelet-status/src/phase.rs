//! A pod's phase, from its containers' statuses (`getPhase`).

use k8s_openapi::api::core::v1::{Container, ContainerStateTerminated, ContainerStatus, Pod, PodSpec};
use kubelet_core::PodExt;
use kubelet_core::restart_rules::{container_should_restart, is_restartable_init_container};

use crate::status_ext::{RESTARTING_ALL_CONTAINERS, find_status, is_running, is_waiting, terminated};

/// The phase for `statuses`, regular and init containers together.
///
/// `terminal`: no container of the pod will run again. `initialized`: a regular container of the current sandbox was
/// created, so a restarting sidecar does not take the pod back to `Pending`.
pub(crate) fn phase(
    pod: &Pod,
    statuses: &[&ContainerStatus],
    terminal: bool,
    initialized: bool,
) -> &'static str {
    let Some(spec) = &pod.spec else {
        return "Pending";
    };
    let init = InitCount::of(spec, statuses);
    let counts = Count::of(spec, statuses);

    if init.failed_for_good > 0 {
        return "Failed";
    }
    let sidecars_pending = counts.sidecars_pending > 0 && !initialized;
    if init.pending > 0 || sidecars_pending || counts.waiting > 0 || counts.unknown > 0 {
        return "Pending";
    }
    if counts.running > 0 {
        return "Running";
    }
    if counts.stopped == 0 {
        return "Pending";
    }
    // The end of a static pod is not final while its manifest exists.
    let ends_here = terminal && !pod.is_static();
    if !ends_here && counts.stopped != counts.stopped_for_good {
        return "Running";
    }
    if counts.stopped == counts.succeeded {
        "Succeeded"
    } else {
        "Failed"
    }
}

/// Init containers that complete before the regular ones start.
#[derive(Default)]
struct InitCount {
    pending: usize,
    failed_for_good: usize,
}

impl InitCount {
    fn of(spec: &PodSpec, statuses: &[&ContainerStatus]) -> Self {
        let mut count = Self::default();
        for container in spec
            .init_containers
            .iter()
            .flatten()
            .filter(|c| !is_restartable_init_container(c))
        {
            let Some(status) = find_status(statuses, &container.name) else {
                count.pending += 1;
                continue;
            };
            let end = if is_running(&status.state) {
                None
            } else {
                terminated(&status.state)
                    .or_else(|| terminated(&status.last_state).filter(|_| is_waiting(&status.state)))
            };
            match end {
                None => count.pending += 1,
                Some(end) if end.exit_code != 0 && ended_for_good(container, spec, end) => {
                    count.failed_for_good += 1;
                }
                Some(_) => {}
            }
        }
        count
    }
}

/// Sidecars and regular containers.
#[derive(Default)]
struct Count {
    sidecars_pending: usize,
    unknown: usize,
    running: usize,
    waiting: usize,
    stopped: usize,
    stopped_for_good: usize,
    succeeded: usize,
}

impl Count {
    fn of(spec: &PodSpec, statuses: &[&ContainerStatus]) -> Self {
        let mut count = Self::default();
        for sidecar in spec
            .init_containers
            .iter()
            .flatten()
            .filter(|c| is_restartable_init_container(c))
        {
            count.add_sidecar(find_status(statuses, &sidecar.name));
        }
        for container in &spec.containers {
            count.add_regular(container, spec, find_status(statuses, &container.name));
        }
        count
    }

    /// A sidecar that exited, or waits to restart, does not affect the phase.
    fn add_sidecar(&mut self, status: Option<&ContainerStatus>) {
        let Some(status) = status else {
            self.unknown += 1;
            return;
        };
        if is_running(&status.state) {
            self.running += 1;
            if status.started != Some(true) {
                self.sidecars_pending += 1;
            }
        } else if terminated(&status.state).is_some() {
        } else if is_waiting(&status.state) {
            if terminated(&status.last_state).is_none() {
                self.sidecars_pending += 1;
                self.waiting += 1;
            }
        } else {
            self.sidecars_pending += 1;
            self.unknown += 1;
        }
    }

    fn add_regular(&mut self, container: &Container, spec: &PodSpec, status: Option<&ContainerStatus>) {
        let Some(status) = status else {
            self.unknown += 1;
            return;
        };
        if is_running(&status.state) {
            self.running += 1;
        } else if let Some(end) = terminated(&status.state) {
            self.stopped += 1;
            self.stopped_for_good += usize::from(ended_for_good(container, spec, end));
            self.succeeded += usize::from(end.exit_code == 0);
        } else if is_waiting(&status.state) {
            match terminated(&status.last_state) {
                Some(end) => {
                    self.stopped += 1;
                    self.stopped_for_good += usize::from(ended_for_good(container, spec, end));
                }
                None => self.waiting += 1,
            }
        } else {
            self.unknown += 1;
        }
    }
}

fn ended_for_good(container: &Container, spec: &PodSpec, end: &ContainerStateTerminated) -> bool {
    !container_should_restart(container, spec, end.exit_code)
        && end.reason.as_deref() != Some(RESTARTING_ALL_CONTAINERS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn running(name: &str) -> Value {
        json!({"name": name, "state": {"running": {}}, "started": true})
    }
    fn ended(name: &str, code: i32) -> Value {
        json!({"name": name, "state": {"terminated": {"exitCode": code}}})
    }
    fn waiting(name: &str) -> Value {
        json!({"name": name, "state": {"waiting": {"reason": "ContainerCreating"}}})
    }
    fn crashed(name: &str, code: i32) -> Value {
        json!({"name": name, "state": {"waiting": {"reason": "CrashLoopBackOff"}},
               "lastState": {"terminated": {"exitCode": code}}})
    }

    fn phase_of(
        spec: Value,
        statuses: &[Value],
        terminal: bool,
        initialized: bool,
        source: &str,
    ) -> &'static str {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"annotations": {"kubernetes.io/config.source": source}}, "spec": spec
        }))
        .unwrap();
        let statuses: Vec<ContainerStatus> = statuses
            .iter()
            .map(|status| {
                let mut status = status.clone();
                for (key, value) in [
                    ("image", json!("")),
                    ("imageID", json!("")),
                    ("ready", json!(false)),
                    ("restartCount", json!(0)),
                ] {
                    status[key] = value;
                }
                serde_json::from_value(status).unwrap()
            })
            .collect();
        phase(&pod, &statuses.iter().collect::<Vec<_>>(), terminal, initialized)
    }

    #[test]
    fn phases() {
        let two =
            |policy: &str| json!({"restartPolicy": policy, "containers": [{"name": "a"}, {"name": "b"}]});
        let with_init = |policy: &str| json!({"restartPolicy": policy, "initContainers": [{"name": "i"}], "containers": [{"name": "a"}]});
        let sidecar = json!({"restartPolicy": "Never", "initContainers": [{"name": "s", "restartPolicy": "Always"}], "containers": [{"name": "a"}]});
        let table = [
            ("nothing known", two("Always"), vec![], false, "Pending"),
            (
                "one waits",
                two("Always"),
                vec![running("a"), waiting("b")],
                false,
                "Pending",
            ),
            ("one unknown", two("Always"), vec![running("a")], false, "Pending"),
            (
                "both run",
                two("Always"),
                vec![running("a"), running("b")],
                false,
                "Running",
            ),
            (
                "one crashed",
                two("Always"),
                vec![running("a"), crashed("b", 1)],
                false,
                "Running",
            ),
            (
                "all ended, to run again",
                two("Always"),
                vec![ended("a", 0), ended("b", 0)],
                false,
                "Running",
            ),
            (
                "all ended, pod over",
                two("Always"),
                vec![ended("a", 0), ended("b", 0)],
                true,
                "Succeeded",
            ),
            (
                "one failed, pod over",
                two("Always"),
                vec![ended("a", 0), ended("b", 3)],
                true,
                "Failed",
            ),
            (
                "never, ended well",
                two("Never"),
                vec![ended("a", 0), ended("b", 0)],
                false,
                "Succeeded",
            ),
            (
                "never, one failed",
                two("Never"),
                vec![ended("a", 0), ended("b", 1)],
                false,
                "Failed",
            ),
            (
                "on failure, one failed",
                two("OnFailure"),
                vec![ended("a", 0), ended("b", 1)],
                false,
                "Running",
            ),
            (
                "crashed for good",
                two("Never"),
                vec![ended("a", 0), crashed("b", 1)],
                false,
                "Failed",
            ),
            (
                "init runs",
                with_init("Always"),
                vec![running("i"), waiting("a")],
                false,
                "Pending",
            ),
            (
                "init failed, to run again",
                with_init("Always"),
                vec![ended("i", 1), waiting("a")],
                false,
                "Pending",
            ),
            (
                "init failed for good",
                with_init("Never"),
                vec![ended("i", 1), waiting("a")],
                false,
                "Failed",
            ),
            (
                "init done",
                with_init("Never"),
                vec![ended("i", 0), running("a")],
                false,
                "Running",
            ),
            (
                "sidecar runs on",
                sidecar.clone(),
                vec![running("s"), ended("a", 0)],
                false,
                "Running",
            ),
            (
                "sidecar ended too",
                sidecar.clone(),
                vec![ended("s", 137), ended("a", 0)],
                false,
                "Succeeded",
            ),
        ];
        for (what, spec, statuses, terminal, expected) in table {
            assert_eq!(
                phase_of(spec, &statuses, terminal, false, "api"),
                expected,
                "{what}"
            );
        }
        let all_ended = [ended("a", 0), ended("b", 0)];
        assert_eq!(
            phase_of(two("Always"), &all_ended, true, false, "file"),
            "Running",
            "static"
        );
        let mut starting = running("s");
        starting["started"] = json!(false);
        let statuses = [starting, running("a")];
        assert_eq!(
            phase_of(sidecar.clone(), &statuses, false, false, "api"),
            "Pending"
        );
        assert_eq!(phase_of(sidecar, &statuses, false, true, "api"), "Running");
    }
}
