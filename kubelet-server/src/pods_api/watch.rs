//! The events of a watch.

use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use futures::stream::BoxStream;
use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1::Pod;
use kubelet_core::{PodExt, PodKey, PodUid, PodWatch};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tonic::Status;

use super::v1alpha1::{EventType, WatchPodsEvent};
use super::{Shared, encode};

/// The watches there are. Each has a queue of the pods whose status has changed.
#[derive(Default)]
pub(super) struct Watches(Mutex<Vec<Weak<Statuses>>>);

/// Pods whose status has changed since the watch last looked, each once.
#[derive(Default)]
struct Statuses {
    queue: Mutex<VecDeque<PodUid>>,
    changed: Notify,
}

impl Watches {
    pub(super) fn push(&self, uid: &PodUid) {
        self.0.lock().retain(|watch| {
            let Some(watch) = watch.upgrade() else {
                return false;
            };
            let mut queue = watch.queue.lock();
            if !queue.contains(uid) {
                queue.push_back(uid.clone());
                watch.changed.notify_one();
            }
            true
        });
    }

    fn add(&self) -> Arc<Statuses> {
        let watch = Arc::default();
        self.0.lock().push(Arc::downgrade(&watch));
        watch
    }
}

impl Statuses {
    async fn next(&self) -> PodUid {
        loop {
            if let Some(uid) = self.queue.lock().pop_front() {
                return uid;
            }
            self.changed.notified().await;
        }
    }
}

/// The events of one watch: what exists, the end of it, then changes. It computes each event when its client can take it.
pub struct PodEvents(BoxStream<'static, Result<WatchPodsEvent, Status>>);

impl PodEvents {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let watch = Watch {
            statuses: shared.watches.add(),
            pods: shared.pods.watch(),
            shared,
            sent: HashMap::new(),
        };
        Self(futures::stream::once(watch.start()).flatten().boxed())
    }
}

impl Stream for PodEvents {
    type Item = Result<WatchPodsEvent, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_next_unpin(context)
    }
}

struct Watch {
    shared: Arc<Shared>,
    pods: PodWatch,
    statuses: Arc<Statuses>,
    /// The pods of which the client knows.
    sent: HashMap<PodUid, PodKey>,
}

impl Watch {
    async fn start(mut self) -> impl Stream<Item = Result<WatchPodsEvent, Status>> {
        // The watch begins with the pods that exist. Those that come now are changes.
        let mut existing = Vec::new();
        for _ in 0..self.pods.len() {
            existing.push(self.pods.next().await.0);
        }
        existing.sort_unstable_by(|a, b| a.as_str().cmp(b.as_str()));
        let existing = existing
            .into_iter()
            .map(Some)
            .chain([None])
            .collect::<VecDeque<_>>();
        futures::stream::unfold((self, existing), |(mut watch, mut existing)| async {
            loop {
                let event = match existing.pop_front() {
                    Some(Some(uid)) => watch.event(uid),
                    Some(None) => Some(Ok(WatchPodsEvent {
                        r#type: EventType::InitialSyncComplete.into(),
                        pod: Vec::new(),
                    })),
                    None => {
                        let uid = watch.next_change().await;
                        watch.event(uid)
                    }
                };
                if let Some(event) = event {
                    return Some((event, (watch, existing)));
                }
            }
        })
    }

    async fn next_change(&mut self) -> PodUid {
        tokio::select! {
            (uid, _) = self.pods.next() => uid,
            uid = self.statuses.next() => uid,
        }
    }

    /// `None` if the client knows already: the pod came and went before it was sent.
    fn event(&mut self, uid: PodUid) -> Option<Result<WatchPodsEvent, Status>> {
        let (kind, pod) = match self.shared.pods.pod(&uid) {
            Some(pod) => {
                let known = self.sent.insert(uid, pod.key()).is_some();
                let kind = if known {
                    EventType::Modified
                } else {
                    EventType::Added
                };
                (kind, self.shared.encode(&pod))
            }
            None => (EventType::Deleted, removed(&self.sent.remove(&uid)?, &uid)),
        };
        Some(pod.map(|pod| WatchPodsEvent {
            r#type: kind.into(),
            pod,
        }))
    }
}

/// What is left of a pod.
fn removed(key: &PodKey, uid: &PodUid) -> Result<Vec<u8>, Status> {
    let mut pod = Pod::default();
    pod.metadata.name = Some(key.name.to_string());
    pod.metadata.namespace = Some(key.namespace.to_string());
    pod.metadata.uid = Some(uid.to_string());
    encode::pod(&pod, None).map_err(|error| Status::internal(format!("failed to marshal pod: {error}")))
}
