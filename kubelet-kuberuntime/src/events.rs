//! Hints from the runtime's own events (`GetContainerEvents`).

use std::collections::HashMap;

use futures::StreamExt;
use futures::stream::BoxStream;
use kubelet_core::{Error, PodUid, Result};

use crate::runtime::CriRuntime;
use kubelet_cri::v1;

type Hints = BoxStream<'static, Result<PodUid>>;

impl CriRuntime {
    /// `None` if the runtime has no events.
    pub(crate) async fn hints(&self) -> Result<Option<Hints>> {
        let events = self.runtime.get_container_events(v1::GetEventsRequest {});
        let events = self.missing.offered("GetContainerEvents", events).await;
        let Some(events) = events.map_err(|error| Error::runtime("GetContainerEvents", error))? else {
            return Ok(None);
        };
        let mut pods = KnownPods::default();
        let hints = events.filter_map(move |event| {
            let hint = match event {
                Ok(event) => pods.of(&event).map(Ok),
                Err(error) if error.is_unimplemented() => Some(Err(Error::Unsupported {
                    what: "GetContainerEvents",
                })),
                Err(error) => Some(Err(Error::runtime("GetContainerEvents", error))),
            };
            std::future::ready(hint)
        });
        Ok(Some(hints.boxed()))
    }
}

/// The pod of each container and sandbox, because the event of a sandbox's removal has only its id.
#[derive(Default)]
struct KnownPods(HashMap<String, PodUid>);

impl KnownPods {
    fn of(&mut self, event: &v1::ContainerEventResponse) -> Option<PodUid> {
        let id = &event.container_id;
        let reported = event
            .pod_sandbox_status
            .as_ref()
            .and_then(|sandbox| sandbox.metadata.as_ref())
            .map(|metadata| PodUid::new(&metadata.uid));
        if event.container_event_type() == v1::ContainerEventType::ContainerDeletedEvent {
            let known = self.0.remove(id);
            return reported.or(known);
        }
        if let (Some(uid), Some(sandbox)) = (&reported, &event.pod_sandbox_status) {
            self.0.insert(id.clone(), uid.clone());
            self.0.insert(sandbox.id.clone(), uid.clone());
        }
        reported.or_else(|| self.0.get(id).cloned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removed_sandbox_is_known_by_its_id() {
        let mut pods = KnownPods::default();
        let started = v1::ContainerEventResponse {
            container_id: "container".into(),
            container_event_type: v1::ContainerEventType::ContainerStartedEvent as i32,
            pod_sandbox_status: Some(v1::PodSandboxStatus {
                id: "sandbox".into(),
                metadata: Some(v1::PodSandboxMetadata {
                    uid: "u".into(),
                    ..Default::default()
                }),
                ..Default::default()
            }),
            ..Default::default()
        };
        assert_eq!(pods.of(&started), Some(PodUid::from("u")));
        for id in ["container", "sandbox"] {
            let deleted = v1::ContainerEventResponse {
                container_id: id.into(),
                container_event_type: v1::ContainerEventType::ContainerDeletedEvent as i32,
                ..Default::default()
            };
            assert_eq!(pods.of(&deleted), Some(PodUid::from("u")));
            assert_eq!(pods.of(&deleted), None);
        }
    }
}
