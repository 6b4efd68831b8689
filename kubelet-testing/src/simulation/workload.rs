//! What the users of a simulated cluster do.

use std::fmt;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::faults::Time;
use crate::Run;
use crate::memory_cri::MemoryCri;

/// What users do with pods while a simulation runs.
///
/// Containers do what their image is named after: `sim/forever`, `sim/job` (ends well after half a minute), `sim/fails` (ends
/// with 1 after 20 s), `sim/crashes` (at once), `sim/stubborn` (ignores SIGTERM), `sim/slow` (takes its time to start and to stop),
/// `sim/oom`. A container of any other image runs until it is stopped.
#[derive(Clone, Debug, Default, PartialEq)]
#[must_use]
pub struct Workload {
    pub(super) pods: Vec<Pod>,
    pub(super) churn: Option<Churn>,
}

/// Pods of all kinds that come and go.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Churn {
    /// About so many at a time.
    pub(super) pods: usize,
    /// About so often something is done with one.
    pub(super) every: Duration,
}

impl Workload {
    /// No pods.
    pub fn none() -> Self {
        Self::default()
    }

    /// These pods from the start to the end. One without a node gets one.
    pub fn pods(pods: impl IntoIterator<Item = Pod>) -> Self {
        Self {
            pods: pods.into_iter().collect(),
            churn: None,
        }
    }

    /// Pods of all kinds, drawn from the seed, about this many at a time: about twice a minute one is made, deleted with one
    /// grace period or another, made again under its name at once, or labelled anew.
    pub fn churn(pods: usize) -> Self {
        Self {
            pods: Vec::new(),
            churn: Some(Churn {
                pods,
                every: Duration::from_secs(30),
            }),
        }
    }

    /// Something is done about so often.
    pub fn every(mut self, every: Duration) -> Self {
        if let Some(churn) = &mut self.churn {
            churn.every = every;
        }
        self
    }
}

/// As it is written in a test.
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

/// Images whose containers do something of their own.
const IMAGES: [&str; 7] = [
    "sim/forever",
    "sim/job",
    "sim/fails",
    "sim/crashes",
    "sim/stubborn",
    "sim/slow",
    "sim/oom",
];

/// Teaches a runtime what the containers of each image do.
pub(super) fn script(runtime: &MemoryCri) {
    let seconds = Duration::from_secs;
    runtime.script_image("sim/job", [Run::exits(0).after(seconds(30))]);
    runtime.script_image("sim/fails", [Run::exits(1).after(seconds(20))]);
    runtime.script_image("sim/crashes", [Run::exits(2)]);
    runtime.script_image("sim/stubborn", [Run::forever().ignores_stop()]);
    runtime.script_image(
        "sim/slow",
        [Run::forever().start_takes(seconds(5)).stop_takes(seconds(8), 0)],
    );
    runtime.script_image("sim/oom", [Run::oom_killed().after(seconds(45))]);
    runtime.script_image("sim/setup", [Run::exits(0).after(seconds(2))]);
}

/// A pod of a kind drawn from `rng`.
pub(super) fn random_pod(name: &str, node: &str, rng: &mut fastrand::Rng) -> Value {
    let image = |rng: &mut fastrand::Rng| IMAGES[rng.usize(..IMAGES.len())];
    let containers: Vec<Value> = (0..rng.usize(1..=3))
        .map(|n| json!({"name": format!("c{n}"), "image": image(rng)}))
        .collect();
    let mut init: Vec<Value> = (0..rng.usize(0..=1))
        .map(|n| json!({"name": format!("i{n}"), "image": "sim/setup"}))
        .collect();
    if rng.u8(..4) == 0 {
        init.push(json!({"name": "sidecar", "image": "sim/forever", "restartPolicy": "Always"}));
    }
    let grace = [0, 2, 10, 30][rng.usize(..4)];
    let policies = ["Always", "Always", "OnFailure", "Never"];
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "nodeName": node,
            "containers": containers,
            "initContainers": init,
            "restartPolicy": policies[rng.usize(..policies.len())],
            "terminationGracePeriodSeconds": grace,
            "hostNetwork": rng.u8(..8) == 0,
        },
    })
}
