//! What the server of a node answers: the summary as JSON; the metrics of cgroups, of pods and of volumes as Prometheus text.
//!
//! Metrics are written straight from a [`Snapshot`](crate::Snapshot) into one buffer. Names, labels, types, help texts and
//! numbers are those that the kubelet shows by default, in the same order.

mod cadvisor;
mod containers;
mod from_cri;
mod machine;
mod resource;
mod text;
mod volumes;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::jiff::Timestamp;
use kubelet_core::runtime::streaming::StreamError;
use kubelet_core::stats::{RuntimeUsages, StatsProvider, Summary, SummaryProvider};
use serde::Serialize;
use serde_json::ser::{PrettyFormatter, Serializer};

use crate::reading::{Machine, Snapshot, SystemVersion};
use crate::{Collector, Result};

/// How often cAdvisor reads a cgroup (`defaultHousekeepingInterval`).
const HOUSEKEEPING_INTERVAL: Duration = Duration::from_secs(10);

/// The usage as text: [`StatsProvider`] on a [`Collector`] and a [`SummaryProvider`]. Cheap to clone.
#[derive(Clone)]
pub struct Endpoints {
    collector: Collector,
    summaries: Arc<dyn SummaryProvider>,
    max_age: Duration,
    with_psi: bool,
    from_runtime: Option<Arc<dyn RuntimeUsages>>,
}

impl Endpoints {
    /// Endpoints as the kubelet has them by default.
    pub fn new(collector: Collector, summaries: Arc<dyn SummaryProvider>) -> Self {
        Self {
            collector,
            summaries,
            max_age: HOUSEKEEPING_INTERVAL,
            with_psi: true,
            from_runtime: None,
        }
    }

    /// Sets how old the readings of `/metrics/cadvisor` may be. The default is 10 s: cAdvisor reads each cgroup this often.
    #[must_use]
    pub fn max_age(mut self, age: Duration) -> Self {
        self.max_age = age;
        self
    }

    /// Sets whether stalls are shown, where the kernel reports them (feature gate `KubeletPSI`). By default, they are.
    #[must_use]
    pub fn psi(mut self, enabled: bool) -> Self {
        self.with_psi = enabled;
        self
    }

    /// Shows the metrics that this runtime reports, in place of those of cgroups (feature gate `PodAndContainerStatsFromCRI`).
    #[must_use]
    pub fn from_runtime(mut self, runtime: Arc<dyn RuntimeUsages>) -> Self {
        self.from_runtime = Some(runtime);
        self
    }

    /// The metrics of the runtime. What it cannot report is left out.
    async fn runtime_metrics(&self, runtime: &dyn RuntimeUsages) -> Vec<u8> {
        let (descriptors, metrics) = futures::join!(runtime.metric_descriptors(), runtime.metrics());
        let mut text = text::Text::default();
        match (descriptors, metrics) {
            (Ok(descriptors), Ok(metrics)) => from_cri::write(&descriptors, &metrics, &mut text),
            (Err(error), _) | (_, Err(error)) => tracing::warn!(%error, "list the metrics of the runtime"),
        }
        let machine = self.collector.machine().await;
        if let Err(error) = &machine {
            tracing::warn!(%error, "read the machine");
        }
        machine::write(machine.as_ref().ok().map(|(machine, _)| &**machine), &mut text);
        text.into_bytes()
    }

    /// Takes errors for nothing, and logs them: what else there is must be shown.
    fn or_log<T>(result: Result<T>, what: &str) -> Option<T> {
        result
            .inspect_err(|error| tracing::warn!(%error, "read the usage for /metrics/cadvisor: {what}"))
            .ok()
    }
}

#[async_trait]
impl StatsProvider for Endpoints {
    async fn summary(&self, only_cpu_and_memory: bool) -> Result<Vec<u8>, StreamError> {
        let summary = match only_cpu_and_memory {
            true => self.summaries.cpu_and_memory().await,
            false => self.summaries.get(false).await,
        };
        to_json(&summary.map_err(StreamError::other)?)
    }

    async fn cadvisor_metrics(&self) -> Result<Vec<u8>, StreamError> {
        if let Some(runtime) = &self.from_runtime {
            return Ok(self.runtime_metrics(&**runtime).await);
        }
        let snapshot = Self::or_log(self.collector.snapshot(self.max_age).await, "cgroups");
        let machine = match &snapshot {
            Some(snapshot) => Some((snapshot.machine.clone(), snapshot.version.clone())),
            None => Self::or_log(self.collector.machine().await, "machine"),
        };
        let config = self.collector.config();
        let with_psi = self.with_psi && config.cgroups.has_psi();
        let machine = machine
            .as_ref()
            .map(|(machine, version)| (&**machine, &**version));
        Ok(cadvisor::write(
            machine,
            snapshot.as_deref(),
            with_psi,
            config.clock.now(),
        ))
    }

    async fn resource_metrics(&self) -> Result<Vec<u8>, StreamError> {
        let summary = self.summaries.cpu_and_memory().await;
        if let Err(error) = &summary {
            tracing::warn!(%error, "get the usage for /metrics/resource");
        }
        Ok(resource::write(summary.ok().as_ref()))
    }
}

/// A summary as JSON, as the kubelet writes it: indented by one space.
///
/// # Errors
///
/// None is known: all keys are strings.
pub fn to_json(summary: &Summary) -> Result<Vec<u8>, StreamError> {
    let mut json = Vec::with_capacity(4096);
    let mut serializer = Serializer::with_formatter(&mut json, PrettyFormatter::with_indent(b" "));
    summary.serialize(&mut serializer).map_err(StreamError::other)?;
    Ok(json)
}

/// The text of `/metrics/cadvisor` for a snapshot, without any I/O. `now` is the time of `container_last_seen`; with
/// `with_psi` stalls are shown.
pub fn cadvisor_text(snapshot: &Snapshot, with_psi: bool, now: Timestamp) -> Vec<u8> {
    let machine: (&Machine, &SystemVersion) = (&snapshot.machine, &snapshot.version);
    cadvisor::write(Some(machine), Some(snapshot), with_psi, now)
}

/// The text of `/metrics/resource` for a summary, without any I/O.
pub fn resource_text(summary: &Summary) -> Vec<u8> {
    resource::write(Some(summary))
}

/// `kubelet_volume_stats_*` for a summary, as text without any I/O. The kubelet shows them at `/metrics`.
pub fn volume_text(summary: &Summary) -> Vec<u8> {
    volumes::write(summary)
}
