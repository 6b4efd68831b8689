//! `GetContainerEvents` of the adapter: the adapter's own changes, and the runtime's hints about ended containers.

use futures::stream::{self, BoxStream, StreamExt};

use super::{CriAdapter, Result, response};
use crate::v1;
use crate::v1::ContainerEventType as EventType;
use crate::verbs::ContainerKey;
use crate::verbs::events::hints;

/// A container, or a sandbox, changed.
#[derive(Clone, Debug)]
pub(super) struct Change {
    sandbox_id: String,
    id: String,
    kind: EventType,
}

impl CriAdapter {
    /// Publishes a change to all subscribers. For a sandbox, `sandbox_id` and `id` are equal.
    pub(super) fn changed(&self, sandbox_id: &str, id: &str, kind: EventType) {
        // An error means that there are no subscribers.
        let _ = self.inner.changes.send(Change {
            sandbox_id: sandbox_id.to_owned(),
            id: id.to_owned(),
            kind,
        });
    }

    /// Events from now on. `ended` are the runtime's hints.
    pub(super) fn event_stream(
        &self,
        ended: BoxStream<'static, ContainerKey>,
    ) -> BoxStream<'static, Result<v1::ContainerEventResponse>> {
        let own = hints(self.inner.changes.subscribe());
        let adapter = self.clone();
        let ended = ended.filter_map(move |key| {
            let adapter = adapter.clone();
            async move { adapter.ended(&key).await }
        });
        let adapter = self.clone();
        stream::select(own, ended.boxed())
            .then(move |change| {
                let adapter = adapter.clone();
                async move { Ok(adapter.event(change).await) }
            })
            .boxed()
    }

    /// The change behind a hint of the runtime, if the container has really ended.
    async fn ended(&self, key: &ContainerKey) -> Option<Change> {
        let entry = self.inner.records.container_by_key(key)?;
        let (view, _) = self.view("GetContainerEvents", &entry).await.ok()?;
        (view.state == v1::ContainerState::ContainerExited).then(|| Change {
            sandbox_id: entry.sandbox_id.clone(),
            id: entry.id.clone(),
            kind: EventType::ContainerStoppedEvent,
        })
    }

    async fn event(&self, change: Change) -> v1::ContainerEventResponse {
        const CALL: &str = "GetContainerEvents";
        let mut status = None;
        if let Some(sandbox) = self.inner.records.sandbox(&change.sandbox_id) {
            // Hints, too: who needs the addresses asks for the status.
            let addresses = self.addresses(CALL, &sandbox).await.unwrap_or_default();
            status = Some(response::sandbox_status(&sandbox, addresses));
        }
        let created_at = self.now();
        let containers = self.statuses_of(CALL, &change.sandbox_id).await;
        v1::ContainerEventResponse {
            container_id: change.id,
            container_event_type: change.kind as i32,
            created_at,
            pod_sandbox_status: status,
            containers_statuses: containers.unwrap_or_default(),
        }
    }
}
