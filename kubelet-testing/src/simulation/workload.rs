//! The users of a simulated cluster.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::faults::Time;
use super::turns::Turns;
use crate::Run;
use crate::memory_cri::{ExecReply, MemoryCri, Planned, hash};

/// What users do with pods during a simulation.
///
/// The image of a container defines what it does: `sim/forever`, `sim/job` (exits with 0 after half a minute),
/// `sim/fails` (exits with 1 after 20 s), `sim/crashes` (at once), `sim/comes-round` (succeeds at its third start),
/// `sim/stubborn` (ignores SIGTERM), `sim/slow` (starts and stops slowly), `sim/oom`. Containers that exit do so at
/// their first 16 starts, which is an hour of back-off, or at their first six if the image is named `sim/job-6` and
/// so on. A container with any other image runs until it is stopped. The command `flaps` fails now and then in
/// [busy](crate::Simulation::by_turns) time, until the faults stop; any other command succeeds.
#[derive(Clone, Debug, Default, PartialEq)]
#[must_use]
pub struct Workload {
    pub(super) pods: Vec<Pod>,
    pub(super) churn: Option<Churn>,
}

/// Pods of all kinds that come and go.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Churn {
    /// The approximate number of pods at a time.
    pub(super) pods: usize,
    /// The mean time between actions.
    pub(super) every: Duration,
}

impl Workload {
    /// No pods.
    pub fn none() -> Self {
        Self::default()
    }

    /// Adds these pods, from the start to the end. A pod without a node gets one.
    pub fn pods(pods: impl IntoIterator<Item = Pod>) -> Self {
        Self {
            pods: pods.into_iter().collect(),
            churn: None,
        }
    }

    /// Pods of all kinds, drawn from the seed, about this many at a time, including static pods. About twice a
    /// minute, now and then in quick succession, a user creates a pod, deletes one with some grace period (now and
    /// then right after its creation), replaces one with another of the same name, or changes its labels. A manifest
    /// is edited, removed, or restored, now and then at once.
    pub fn churn(pods: usize) -> Self {
        Self {
            pods: Vec::new(),
            churn: Some(Churn {
                pods,
                every: Duration::from_secs(30),
            }),
        }
    }

    /// Sets the mean time between actions.
    pub fn every(mut self, every: Duration) -> Self {
        if let Some(churn) = &mut self.churn {
            churn.every = every;
        }
        self
    }
}

/// Prints the code for it in a test.
impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.churn {
            Some(churn) => write!(f, "Workload::churn({}).every({})", churn.pods, Time(churn.every)),
            None if self.pods.is_empty() => f.write_str("Workload::none()"),
            None => {
                let names = self
                    .pods
                    .iter()
                    .map(|pod| pod.metadata.name.clone().unwrap_or_default());
                write!(f, "Workload::pods([{}])", names.collect::<Vec<_>>().join(", "))
            }
        }
    }
}

/// Containers that fail for long do so at this many starts, most of them with the longest back-off in between. They
/// outlast a busy hour; more starts would show nothing new.
const LONG: usize = 16;
/// The images for random containers. Those that fail for long are rare.
const IMAGES: [&str; 16] = [
    "sim/forever",
    "sim/forever",
    "sim/forever",
    "sim/stubborn",
    "sim/slow",
    "sim/slow",
    "sim/comes-round",
    "sim/comes-round",
    "sim/comes-round",
    "sim/job",
    "sim/job-6",
    "sim/fails-6",
    "sim/crashes-6",
    "sim/crashes-6",
    "sim/oom-6",
    "sim/crashes",
];
/// The command of probes that fail now and then, while there are faults.
const FLAPS: &str = "flaps";
/// They fail in one of this many periods.
const FLAP_PERIOD: Duration = Duration::from_secs(97);
const FLAP_PERIODS: u64 = 40;

/// Whether there are faults. Clones share the state.
#[derive(Clone, Debug)]
pub(super) struct Weather {
    start: Instant,
    turns: Turns,
    has_calmed_down: Arc<AtomicBool>,
}

impl Weather {
    pub(super) fn new(start: Instant, turns: Turns) -> Self {
        Self {
            start,
            turns,
            has_calmed_down: Arc::default(),
        }
    }

    /// For good.
    pub(super) fn calm_down(&self) {
        self.has_calmed_down.store(true, Ordering::Relaxed);
    }

    fn is_calm(&self) -> bool {
        self.has_calmed_down.load(Ordering::Relaxed) || self.turns.is_quiet(self.start.elapsed())
    }
}

/// Scripts the images in a runtime.
pub(super) fn script(runtime: &MemoryCri, weather: &Weather) {
    let seconds = Duration::from_secs;
    let ends = [
        ("sim/job", Run::exits(0).after(seconds(30))),
        ("sim/fails", Run::exits(1).after(seconds(20))),
        ("sim/crashes", Run::exits(2)),
        ("sim/oom", Run::oom_killed().after(seconds(45))),
    ];
    for (image, run) in ends {
        let times = |times| std::iter::repeat_n(run.clone(), times).chain([Run::forever()]);
        runtime.script_image(format!("{image}-6"), times(6));
        runtime.script_image(image, times(LONG));
    }
    runtime.script_image("sim/stubborn", [Run::forever().ignores_stop()]);
    runtime.script_image(
        "sim/slow",
        [Run::forever().start_takes(seconds(5)).stop_takes(seconds(8), 0)],
    );
    let comes_round = [Run::exits(1), Run::exits(1).after(seconds(3)), Run::forever()];
    runtime.script_image("sim/comes-round", comes_round);
    runtime.script_image("sim/setup", [Run::exits(0).after(seconds(2))]);
    runtime.script_image(
        "sim/setup-fails",
        [Run::exits(1), Run::exits(0).after(seconds(4))],
    );
    let weather = weather.clone();
    let fails_now = move |container: &Planned, command: &[String]| {
        let flaps = command.first().is_some_and(|program| program == FLAPS) && !weather.is_calm();
        let turn = || weather.start.elapsed().as_secs() / FLAP_PERIOD.as_secs();
        flaps && hash(turn(), container.pod_uid()).is_multiple_of(FLAP_PERIODS)
    };
    runtime.script_exec_where(fails_now, [ExecReply::exits(1).stderr("not now")]);
}

/// A pod of a random kind.
pub(super) fn random_pod(name: &str, node: &str, rng: &mut fastrand::Rng) -> Value {
    let containers: Vec<Value> = (0..rng.usize(1..=3))
        .map(|n| random_container(&format!("c{n}"), rng))
        .collect();
    let mut init: Vec<Value> = (0..rng.usize(0..=2))
        .map(|n| {
            let image = ["sim/setup", "sim/setup", "sim/setup-fails"][rng.usize(..3)];
            json!({"name": format!("i{n}"), "image": image, "imagePullPolicy": "IfNotPresent"})
        })
        .collect();
    if rng.u8(..4) == 0 {
        let mut sidecar = json!({"name": "sidecar", "image": "sim/forever", "restartPolicy": "Always"});
        if rng.bool() {
            sidecar["startupProbe"] = random_probe("true", rng);
        }
        init.insert(rng.usize(..=init.len()), sidecar);
    }
    let grace = [0, 2, 10, 30][rng.usize(..4)];
    let policies = ["Always", "Always", "OnFailure", "Never"];
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "nodeName": node,
            "containers": containers,
            "initContainers": init,
            "restartPolicy": policies[rng.usize(..policies.len())],
            "terminationGracePeriodSeconds": grace,
            "dnsPolicy": "Default",
            "hostNetwork": rng.u8(..8) == 0,
            "shareProcessNamespace": rng.u8(..8) == 0,
        },
    });
    let spec = &mut pod["spec"];
    if rng.u8(..8) == 0 {
        spec["activeDeadlineSeconds"] = rng.u32(30..3600).into();
    }
    if rng.u8(..4) == 0 {
        spec["volumes"] = json!([{"name": "data", "emptyDir": {}}]);
        spec["containers"][0]["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
    }
    if rng.u8(..24) == 0 {
        // More than the node has, so the agent rejects it.
        spec["containers"][0]["resources"] = json!({"requests": {"cpu": "1k"}, "limits": {"cpu": "1k"}});
    }
    pod
}

fn random_container(name: &str, rng: &mut fastrand::Rng) -> Value {
    let image = IMAGES[rng.usize(..IMAGES.len())];
    let pull = ["IfNotPresent", "IfNotPresent", "Always"][rng.usize(..3)];
    let mut container = json!({"name": name, "image": image, "imagePullPolicy": pull});
    for kind in ["readinessProbe", "livenessProbe", "startupProbe"] {
        if rng.u8(..8) == 0 {
            let command = if kind == "startupProbe" { "true" } else { FLAPS };
            container[kind] = random_probe(command, rng);
        }
    }
    if rng.u8(..12) == 0 {
        container["lifecycle"] = json!({"preStop": {"exec": {"command": ["true"]}}});
    }
    if rng.u8(..12) == 0 {
        container["lifecycle"]["postStart"] = json!({"exec": {"command": ["true"]}});
    }
    container
}

fn random_probe(command: &str, rng: &mut fastrand::Rng) -> Value {
    let mut probe = match rng.u8(..4) {
        0 => json!({"tcpSocket": {"port": 80}}),
        _ => json!({"exec": {"command": [command]}}),
    };
    probe["periodSeconds"] = [10, 30, 60][rng.usize(..3)].into();
    probe["initialDelaySeconds"] = [0, 5, 40][rng.usize(..3)].into();
    probe
}
