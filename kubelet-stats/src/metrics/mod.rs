//! What the server of a node answers: the summary as JSON; the metrics of cgroups, of pods and of volumes as Prometheus text.
//!
//! Metrics are written straight from a [`Snapshot`], those of cgroups piece by piece. Names, labels, types, help texts and
//! numbers are those that the kubelet shows by default, in the same order.

mod cadvisor;
mod containers;
mod from_cri;
mod machine;
mod resource;
mod text;
mod volumes;

use std::iter;
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::jiff::Timestamp;
use kubelet_core::runtime::streaming::StreamError;
use kubelet_core::stats::{MetricPieces, RuntimeUsages, StatsProvider, Summary};
use serde::Serialize;
use serde_json::ser::{PrettyFormatter, Serializer};

use crate::reading::Snapshot;
use crate::{DEFAULT_AGE, NodeSummary, Result};

/// The usage as text: a [`StatsProvider`] for the server of a node. Cheap to clone.
#[derive(Clone)]
pub struct Endpoints {
    summary: NodeSummary,
    max_age: Duration,
    resource_max_age: Duration,
}

impl Endpoints {
    /// Endpoints that show this summary, and what its collector reads. The configuration of the summary decides whether stalls
    /// are shown, and whether `/metrics/cadvisor` shows the metrics of cgroups or those of the runtime.
    pub fn new(summary: NodeSummary) -> Self {
        Self {
            summary,
            max_age: DEFAULT_AGE,
            resource_max_age: DEFAULT_AGE,
        }
    }

    /// Sets how old the readings of `/metrics/cadvisor` may be. The default is 15 s ([`DEFAULT_AGE`]).
    #[must_use]
    pub fn max_age(mut self, age: Duration) -> Self {
        self.max_age = age;
        self
    }

    /// Sets how old the readings of `/metrics/resource` may be. The default is 15 s ([`DEFAULT_AGE`]): two scrapes within that time
    /// show the same numbers, as with the kubelet. `Duration::ZERO`: each scrape reads anew.
    #[must_use]
    pub fn resource_max_age(mut self, age: Duration) -> Self {
        self.resource_max_age = age;
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
        let machine = self.summary.collector().machine().await;
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
            true => self.summary.cpu_and_memory_summary().await,
            false => self.summary.summary(false).await,
        };
        to_json(&summary.map_err(StreamError::other)?)
    }

    async fn cadvisor_metrics(&self) -> Result<MetricPieces, StreamError> {
        let (collector, shown) = (self.summary.collector(), self.summary.config());
        if let (true, Some(runtime)) = (shown.pod_and_container_stats_from_cri, &shown.runtime) {
            return Ok(Box::new(iter::once(self.runtime_metrics(&**runtime).await)));
        }
        let snapshot = Self::or_log(collector.snapshot(self.max_age).await, "cgroups");
        let machine = match &snapshot {
            Some(snapshot) => Some((snapshot.machine.clone(), snapshot.version.clone())),
            None => Self::or_log(collector.machine().await, "machine"),
        };
        let config = collector.config();
        let with_psi = shown.psi && config.cgroups.has_psi();
        let pieces = cadvisor::Pieces::new(machine, snapshot.as_deref(), with_psi, config.clock.now());
        Ok(Box::new(pieces))
    }

    async fn resource_metrics(&self) -> Result<Vec<u8>, StreamError> {
        let summary = self.summary.cpu_and_memory_within(self.resource_max_age).await;
        if let Err(error) = &summary {
            tracing::warn!(%error, "get the usage for /metrics/resource");
        }
        Ok(resource::write(summary.ok().as_ref()))
    }

    async fn volume_metrics(&self) -> Vec<u8> {
        let shown = self.summary.config();
        match (&shown.pods, &shown.volumes) {
            (Some(pods), Some(usages)) => volumes::write(&volumes::of_pods(&**pods, &**usages).await),
            _ => Vec::new(),
        }
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

/// The text of `/metrics/cadvisor` for a snapshot with all [details](crate::source::Detail), without any I/O. `now` is the time of `container_last_seen`; with
/// `with_psi` stalls are shown.
pub fn cadvisor_text(snapshot: &Snapshot, with_psi: bool, now: Timestamp) -> Vec<u8> {
    let machine = (snapshot.machine.clone(), snapshot.version.clone());
    cadvisor::Pieces::new(Some(machine), Some(snapshot), with_psi, now).whole()
}

/// The text of `/metrics/resource` for a summary, without any I/O.
pub fn resource_text(summary: &Summary) -> Vec<u8> {
    resource::write(Some(summary))
}
