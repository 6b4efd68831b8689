//! The trait of what probes a container, and its input and output.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{Container, Pod, PodStatus as ApiPodStatus, Probe};

use super::{ProbeKind, ProbeResult};
use crate::ContainerId;

/// The place of a container in its pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) init: bool,
    pub(super) index: usize,
}

impl Place {
    /// The containers that can have probes: regular ones, then sidecars.
    pub(super) fn all(pod: &Pod) -> impl Iterator<Item = (Place, &Container)> {
        let spec = pod.spec.as_ref();
        let regular = spec.map_or(&[][..], |spec| &spec.containers);
        let init = spec.and_then(|spec| spec.init_containers.as_deref());
        let sidecars = init.unwrap_or_default().iter().enumerate();
        let sidecars =
            sidecars.filter(|(_, container)| crate::restart_rules::is_restartable_init_container(container));
        let regular = regular.iter().enumerate();
        regular
            .map(|(index, container)| (Place { init: false, index }, container))
            .chain(sidecars.map(|(index, container)| (Place { init: true, index }, container)))
    }

    pub(super) fn container(self, pod: &Pod) -> Option<&Container> {
        let spec = pod.spec.as_ref()?;
        match self.init {
            false => spec.containers.get(self.index),
            true => spec.init_containers.as_ref()?.get(self.index),
        }
    }
}

/// One container and one of its probes. Cheap to clone.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ProbeTarget {
    /// The kind of the probe.
    pub kind: ProbeKind,
    /// Its pod.
    pub pod: Arc<Pod>,
    /// The pod's status that was reported last; it contains the pod's IP.
    pub status: Arc<ApiPodStatus>,
    /// The container's id.
    pub container_id: ContainerId,
    place: Place,
}

/// The default of `timeoutSeconds`.
const DEFAULT_TIMEOUT_SECONDS: i32 = 1;

impl ProbeTarget {
    /// The target for the probe of this kind of the container with this name; `None` if there is no such probe. Of the
    /// init containers, only restartable ones are probed.
    pub fn new(
        kind: ProbeKind,
        pod: Arc<Pod>,
        status: Arc<ApiPodStatus>,
        container: &str,
        container_id: ContainerId,
    ) -> Option<Self> {
        let found = Place::all(&pod).find(|(_, found)| found.name == container && kind.of(found).is_some());
        let (place, _) = found?;
        Some(Self::at(kind, pod, status, place, container_id))
    }

    pub(super) fn at(
        kind: ProbeKind,
        pod: Arc<Pod>,
        status: Arc<ApiPodStatus>,
        place: Place,
        container_id: ContainerId,
    ) -> Self {
        Self {
            kind,
            pod,
            status,
            container_id,
            place,
        }
    }

    /// The container's spec.
    pub fn container(&self) -> Option<&Container> {
        self.place.container(&self.pod)
    }

    /// The probe.
    pub fn probe(&self) -> Option<&Probe> {
        self.kind.of(self.container()?)
    }

    /// The pod's IP; empty if it has none yet.
    pub fn pod_ip(&self) -> &str {
        self.status.pod_ip.as_deref().unwrap_or_default()
    }

    /// The field path for events, e.g. `spec.containers{main}`.
    pub(super) fn field_path(&self) -> String {
        let name = self.container().map_or("", |container| &container.name);
        match self.place.init {
            false => format!("spec.containers{{{name}}}"),
            true => format!("spec.initContainers{{{name}}}"),
        }
    }

    /// The time limit of one attempt (`timeoutSeconds`).
    pub fn timeout(&self) -> Duration {
        let seconds = self.probe().and_then(|probe| probe.timeout_seconds);
        let seconds = seconds
            .filter(|seconds| *seconds > 0)
            .unwrap_or(DEFAULT_TIMEOUT_SECONDS);
        Duration::from_secs(u64::try_from(seconds).unwrap_or_default())
    }
}

/// The outcome of one attempt (`probe.Result` with its output and error).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeOutcome {
    /// The probe succeeded.
    Success,
    /// The probe succeeded with a warning.
    Warning {
        /// The warning.
        output: String,
    },
    /// The probe failed: a wrong answer, or none in time.
    Failure {
        /// The answer or the error; may be empty.
        output: String,
    },
    /// The attempt could not be made or was interrupted, so the state of the container is unknown. There are up to
    /// three attempts; then the result is ignored.
    Errored {
        /// The result in events: `Unknown`, or `Failure` if the container had started to answer.
        result: ProbeResult,
        /// The error.
        error: String,
    },
}

impl ProbeOutcome {
    /// An unknown result, with its reason.
    pub fn unknown(error: impl fmt::Display) -> Self {
        ProbeOutcome::Errored {
            result: ProbeResult::Unknown,
            error: error.to_string(),
        }
    }

    /// A failure, with its reason.
    pub fn failure(output: impl Into<String>) -> Self {
        ProbeOutcome::Failure {
            output: output.into(),
        }
    }
}

/// Probes containers: runs a command in a container, or calls it over the network. `kubelet-cri` has an implementation;
/// implement it yourself if your containers are probed in another way.
#[async_trait]
pub trait Prober: Send + Sync + 'static {
    /// Makes one attempt, within the target's [timeout](ProbeTarget::timeout).
    ///
    /// # Cancel safety
    ///
    /// Must be cancel safe: an attempt is dropped when its pod ends.
    async fn probe(&self, target: &ProbeTarget) -> ProbeOutcome;
}

#[async_trait]
impl<P: Prober + ?Sized> Prober for Arc<P> {
    async fn probe(&self, target: &ProbeTarget) -> ProbeOutcome {
        (**self).probe(target).await
    }
}

#[async_trait]
impl<P: Prober + ?Sized> Prober for Box<P> {
    async fn probe(&self, target: &ProbeTarget) -> ProbeOutcome {
        (**self).probe(target).await
    }
}

/// The number of attempts before an error is reported (`maxProbeRetries`).
const MAX_PROBE_RETRIES: usize = 3;

/// Makes up to three attempts, until one has a result (`runProbeWithRetries`).
pub(super) async fn probe_with_retries(prober: &dyn Prober, target: &ProbeTarget) -> ProbeOutcome {
    let mut outcome = prober.probe(target).await;
    for _ in 1..MAX_PROBE_RETRIES {
        if !matches!(outcome, ProbeOutcome::Errored { .. }) {
            break;
        }
        outcome = prober.probe(target).await;
    }
    outcome
}
