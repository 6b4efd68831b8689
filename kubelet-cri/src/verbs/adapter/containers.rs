//! What several calls do with containers and sandboxes: read the state, start, stop, remove.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::try_join_all;

use super::records::{ContainerEntry, Phase, SandboxEntry};
use super::response::{self, View};
use super::{CriAdapter, Result, nanos, request};
use crate::error::Error;
use crate::v1;
use crate::v1::ContainerEventType as EventType;
use crate::verbs::{Container, ContainerKey, ErrorClass};

impl CriAdapter {
    /// All containers with their states, from one list of the runtime.
    pub(super) async fn containers(&self, call: &'static str) -> Result<Vec<(Arc<ContainerEntry>, View)>> {
        let records = self.records(call).await?;
        // The phases are read before the list: a container that is started meanwhile may be missing in the list.
        let before: Vec<_> = records
            .containers()
            .into_iter()
            .map(|entry| (entry.phase(), entry))
            .collect();
        let list = self
            .within(call, "", Duration::ZERO, self.inner.runtime.list())
            .await?;
        let live: HashMap<ContainerKey, Container> = list
            .into_iter()
            .map(|container| (container.key.clone(), container))
            .collect();
        let view = |(phase, entry): (Phase, Arc<ContainerEntry>)| {
            let view = self.settle(&entry, phase, live.get(&entry.key))?;
            Some((entry, view))
        };
        Ok(before.into_iter().filter_map(view).collect())
    }

    /// One container with its state, from one inspection by the runtime.
    pub(super) async fn view(
        &self,
        call: &'static str,
        entry: &ContainerEntry,
    ) -> Result<(View, Option<Container>)> {
        let before = entry.phase();
        let inspect = async {
            match self.inner.runtime.inspect(&entry.key).await {
                Ok(container) => Ok(Some(container)),
                Err(error) if error.class == ErrorClass::Gone => Ok(None),
                Err(error) => Err(error),
            }
        };
        let live = self.within(call, &entry.id, Duration::ZERO, inspect).await?;
        match self.settle(entry, before, live.as_ref()) {
            Some(view) => Ok((view, live)),
            None => Err(Error::not_found(call, &entry.id)),
        }
    }

    /// The statuses of all containers of a sandbox.
    pub(super) async fn statuses_of(
        &self,
        call: &'static str,
        sandbox_id: &str,
    ) -> Result<Vec<v1::ContainerStatus>> {
        let sandbox = self.records(call).await?.sandbox(sandbox_id);
        let containers = self.containers(call).await?;
        Ok(containers
            .into_iter()
            .filter(|(entry, _)| entry.sandbox_id == sandbox_id)
            .map(|(entry, view)| response::container_status(sandbox.as_deref(), &entry, view))
            .collect())
    }

    /// A container's state. A started container that the runtime does not list is recorded as lost.
    fn settle(&self, entry: &ContainerEntry, before: Phase, live: Option<&Container>) -> Option<View> {
        if live.is_some() || !matches!(before, Phase::Started { .. }) {
            return View::new(&before, live);
        }
        if self.inner.records.lost(entry, self.now()) {
            tracing::warn!(uid = %entry.key.pod, container = %entry.key.container, id = %entry.id,
                "the runtime does not list the container any more");
        }
        View::new(&entry.phase(), None)
    }

    /// The container of this id, if it runs.
    pub(super) async fn running(&self, call: &'static str, id: &str) -> Result<Arc<ContainerEntry>> {
        let entry = self.container(call, id).await?;
        let (view, _) = self.view(call, &entry).await?;
        if view.state == v1::ContainerState::ContainerRunning {
            return Ok(entry);
        }
        let message = format!("{} is in {} state", entry.key, view.state.as_str_name());
        Err(Error::failed_precondition(call, id, message))
    }

    /// Starts a container and records the outcome. The caller holds the container's turn.
    pub(super) async fn start(
        &self,
        call: &'static str,
        sandbox: &SandboxEntry,
        entry: &ContainerEntry,
    ) -> Result<()> {
        let attempt = StartAttempt {
            adapter: self,
            entry,
            outcome: None,
        };
        attempt.run(call, sandbox).await?;
        self.changed(&entry.sandbox_id, &entry.id, EventType::ContainerStartedEvent);
        Ok(())
    }

    /// Stops a container within its grace.
    pub(super) async fn stop(
        &self,
        call: &'static str,
        entry: &ContainerEntry,
        grace: Duration,
    ) -> Result<()> {
        // Waits for an unfinished start, which could otherwise succeed after the stop.
        drop(entry.turn.lock().await);
        self.stop_now(call, entry, grace).await
    }

    async fn stop_now(&self, call: &'static str, entry: &ContainerEntry, grace: Duration) -> Result<()> {
        let stop = self.inner.runtime.stop(&entry.key, grace);
        gone_is_fine(self.within(call, &entry.id, grace, stop).await)
    }

    /// Removes a container; kills it first if it runs.
    pub(super) async fn remove(&self, call: &'static str, entry: &ContainerEntry) -> Result<()> {
        let _turn = entry.turn.lock().await;
        let records = self.records(call).await?;
        if records.container(&entry.id).is_none() {
            return Ok(());
        }
        self.stop_now(call, entry, Duration::ZERO).await?;
        let removal = Removal {
            entry,
            before: Some(entry.replace_phase(Phase::Removing)),
        };
        let remove = self.inner.runtime.remove(&entry.key);
        gone_is_fine(self.within(call, &entry.id, Duration::ZERO, remove).await)?;
        let removed = records.remove_container(entry);
        removed.map_err(|error| Error::internal(call, &entry.id, error.to_string()))?;
        removal.done();
        self.changed(&entry.sandbox_id, &entry.id, EventType::ContainerDeletedEvent);
        Ok(())
    }

    /// Marks a sandbox as stopped, kills what runs in it, and ends its pod.
    pub(super) async fn stop_sandbox(&self, call: &'static str, sandbox: &SandboxEntry) -> Result<()> {
        let records = self.records(call).await?;
        let stopped = records.stop_sandbox(sandbox);
        let was_ready = stopped.map_err(|error| Error::internal(call, &sandbox.id, error.to_string()))?;
        let containers = records.containers_of(&sandbox.id);
        try_join_all(
            containers
                .iter()
                .map(|entry| self.stop(call, entry, Duration::ZERO)),
        )
        .await?;
        self.end_pod(call, sandbox).await?;
        if was_ready {
            self.changed(&sandbox.id, &sandbox.id, EventType::ContainerStoppedEvent);
        }
        Ok(())
    }

    /// The usage of a container.
    pub(super) async fn stats(
        &self,
        call: &'static str,
        entry: &ContainerEntry,
    ) -> Result<v1::ContainerStats> {
        let Some(stats) = self.inner.runtime.stats() else {
            return Err(self.missing(call, &entry.id, "stats"));
        };
        let usage = self
            .within(call, &entry.id, Duration::ZERO, stats.usage(&entry.key))
            .await?;
        let timestamp = nanos(usage.at);
        let value = |value: u64| Some(v1::UInt64Value { value });
        Ok(v1::ContainerStats {
            attributes: Some(v1::ContainerAttributes {
                id: entry.id.clone(),
                metadata: entry.config.metadata.clone(),
                labels: entry.config.labels.clone(),
                annotations: entry.config.annotations.clone(),
            }),
            cpu: Some(v1::CpuUsage {
                timestamp,
                usage_core_nano_seconds: value(u64::try_from(usage.cpu.as_nanos()).unwrap_or(u64::MAX)),
                ..Default::default()
            }),
            memory: Some(v1::MemoryUsage {
                timestamp,
                working_set_bytes: value(usage.memory_working_set_bytes),
                rss_bytes: usage.memory_rss_bytes.and_then(value),
                usage_bytes: usage.memory_usage_bytes.and_then(value),
                ..Default::default()
            }),
            ..Default::default()
        })
    }
}

/// One try to start a container. Its outcome is recorded in every case, even if the call is dropped.
struct StartAttempt<'a> {
    adapter: &'a CriAdapter,
    entry: &'a ContainerEntry,
    outcome: Option<Phase>,
}

impl StartAttempt<'_> {
    async fn run(mut self, call: &'static str, sandbox: &SandboxEntry) -> Result<()> {
        let spec = request::container_spec(sandbox, self.entry);
        let start = self.adapter.inner.runtime.start(&spec);
        let answer = self
            .adapter
            .within(call, &self.entry.id, Duration::ZERO, start)
            .await;
        self.outcome = Some(match &answer {
            Ok(container) => Phase::Started {
                at: nanos(container.state.started_at()),
            },
            Err(error) => self.failed(error.message()),
        });
        answer.map(drop)
    }

    fn failed(&self, message: String) -> Phase {
        Phase::Failed {
            at: self.adapter.now(),
            message,
        }
    }
}

impl Drop for StartAttempt<'_> {
    fn drop(&mut self) {
        let outcome = self.outcome.take();
        let outcome = outcome.unwrap_or_else(|| self.failed("the start was cancelled".to_owned()));
        self.adapter.inner.records.set_phase(self.entry, outcome);
    }
}

/// One try to remove a container. If it does not succeed, the container keeps its phase.
struct Removal<'a> {
    entry: &'a ContainerEntry,
    before: Option<Phase>,
}

impl Removal<'_> {
    fn done(mut self) {
        self.before = None;
    }
}

impl Drop for Removal<'_> {
    fn drop(&mut self) {
        if let Some(before) = self.before.take() {
            self.entry.replace_phase(before);
        }
    }
}

pub(super) fn gone_is_fine(answer: Result<()>) -> Result<()> {
    match answer {
        Err(error) if error.is_not_found() => Ok(()),
        answer => answer,
    }
}
