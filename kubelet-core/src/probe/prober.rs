//! The seam: what probes a container, and what it is told.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{Container, Pod, PodStatus as ApiPodStatus, Probe};

use super::{ProbeKind, ProbeResult};
use crate::ContainerId;

/// Where a container stands in its pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) init: bool,
    pub(super) index: usize,
}

impl Place {
    /// The containers that may be probed: the regular ones, then the sidecars.
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

/// A container to be probed once. Cheap to clone.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ProbeTarget {
    /// Which of its probes.
    pub kind: ProbeKind,
    /// Its pod.
    pub pod: Arc<Pod>,
    /// The pod's status as it was reported last: the pod's IP is there.
    pub status: Arc<ApiPodStatus>,
    /// Its id.
    pub container_id: ContainerId,
    place: Place,
}

/// What is taken where the API server has set no default.
const DEFAULT_TIMEOUT_SECONDS: i32 = 1;

impl ProbeTarget {
    /// The container of this name with a probe of this kind; `None` if the pod has none. Init containers are
    /// probed if they are restartable.
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

    /// The pod's IP; empty while it has none.
    pub fn pod_ip(&self) -> &str {
        self.status.pod_ip.as_deref().unwrap_or_default()
    }

    /// The part of the pod that events about it name, e.g. `spec.containers{main}`.
    pub(super) fn field_path(&self) -> String {
        let name = self.container().map_or("", |container| &container.name);
        match self.place.init {
            false => format!("spec.containers{{{name}}}"),
            true => format!("spec.initContainers{{{name}}}"),
        }
    }

    /// How long one attempt may take (`timeoutSeconds`).
    pub fn timeout(&self) -> Duration {
        let seconds = self.probe().and_then(|probe| probe.timeout_seconds);
        let seconds = seconds
            .filter(|seconds| *seconds > 0)
            .unwrap_or(DEFAULT_TIMEOUT_SECONDS);
        Duration::from_secs(u64::try_from(seconds).unwrap_or_default())
    }
}

/// What came of one attempt (`probe.Result` with its output and error).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeOutcome {
    /// It answered as it should.
    Success,
    /// It answered, and something about it is to be told: counts as success.
    Warning {
        /// What is to be told.
        output: String,
    },
    /// It answered wrongly, or not in time.
    Failure {
        /// What it said, or what went wrong; empty if nothing is to be said.
        output: String,
    },
    /// The attempt could not be made or was cut short: nothing is known of the container. It is made again,
    /// three times in all, and then its result is thrown away.
    Errored {
        /// What events call the result: `Unknown`, or `Failure` where it had begun to answer.
        result: ProbeResult,
        /// What went wrong.
        error: String,
    },
}

impl ProbeOutcome {
    /// Nothing is known, for this reason.
    pub fn unknown(error: impl fmt::Display) -> Self {
        ProbeOutcome::Errored {
            result: ProbeResult::Unknown,
            error: error.to_string(),
        }
    }

    /// It failed, for this reason.
    pub fn failure(output: impl Into<String>) -> Self {
        ProbeOutcome::Failure {
            output: output.into(),
        }
    }
}

/// Probes containers: runs a command in one, or calls it over the network. `kubelet-cri` has the kubelet's;
/// an agent whose containers can be asked in another way brings its own.
#[async_trait]
pub trait Prober: Send + Sync + 'static {
    /// Makes one attempt, within the target's [timeout](ProbeTarget::timeout).
    ///
    /// # Cancel safety
    ///
    /// Must be so: an attempt is dropped when its pod ends.
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

/// Attempts before an error is told (`maxProbeRetries`).
const MAX_PROBE_RETRIES: usize = 3;

/// Up to three attempts, until one comes to a result (`runProbeWithRetries`).
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
