//! Container events and their watchers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{BoxStream, StreamExt, unfold};
use kubelet_cri::{Code, Error, v1};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::Inner;
use super::faults::EventFault;

/// How many events a watcher may fall behind. containerd's event channel has this size, and drops further events.
const CAPACITY: usize = 1000;
/// How long an event waits for the next one to overtake it.
const OVERTAKEN_WITHIN: Duration = Duration::from_secs(1);

/// The watchers, and the events on their way to each.
#[derive(Debug, Default)]
pub(super) struct Watchers {
    queues: BTreeMap<u64, Queue>,
    next: u64,
}

#[derive(Debug, Default)]
struct Queue {
    /// Ordered by arrival time, then by number.
    events: BTreeMap<(Instant, u64), v1::ContainerEventResponse>,
    turn: u64,
    /// Events that wait for another one to overtake them.
    held: Vec<(Instant, u64)>,
}

/// What a watcher gets.
enum Next {
    Event(Box<v1::ContainerEventResponse>),
    /// No event before this time, unless something happens.
    Nothing(Option<Instant>),
    /// The runtime has crashed.
    Gone,
}

impl Watchers {
    pub(super) fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// Breaks all streams.
    pub(super) fn break_all(&mut self) {
        self.queues.clear();
    }

    pub(super) fn subscribe(&mut self) -> u64 {
        self.next += 1;
        self.queues.insert(self.next, Queue::default());
        self.next
    }

    pub(super) fn send(
        &mut self,
        now: Instant,
        event: &v1::ContainerEventResponse,
        fault: Option<EventFault>,
    ) {
        for queue in self.queues.values_mut() {
            queue.send(now, event, fault);
        }
    }
}

impl Queue {
    fn send(&mut self, now: Instant, event: &v1::ContainerEventResponse, fault: Option<EventFault>) {
        let at = match fault {
            Some(EventFault::Lost) => return,
            Some(EventFault::Late(by)) => now + by,
            Some(EventFault::Reordered) => now + OVERTAKEN_WITHIN,
            Some(EventFault::Twice) | None => now,
        };
        let key = self.push(at, event.clone());
        match fault {
            Some(EventFault::Twice) => {
                self.push(at, event.clone());
            }
            Some(EventFault::Reordered) => {
                self.held.extend(key);
                return;
            }
            _ => {}
        }
        for held in std::mem::take(&mut self.held) {
            if let Some(event) = self.events.remove(&held) {
                self.push(now, event);
            }
        }
    }

    fn push(&mut self, at: Instant, event: v1::ContainerEventResponse) -> Option<(Instant, u64)> {
        if self.events.len() >= CAPACITY {
            tracing::warn!(
                container = event.container_id,
                "too many events are waiting, one is dropped"
            );
            return None;
        }
        self.turn += 1;
        let key = (at, self.turn);
        self.events.insert(key, event);
        Some(key)
    }
}

/// A watcher; it stops watching when dropped.
struct Watcher {
    runtime: Arc<Inner>,
    number: u64,
    changes: watch::Receiver<()>,
}

impl Watcher {
    async fn next(mut self) -> Option<(Result<v1::ContainerEventResponse, Error>, Option<Self>)> {
        loop {
            self.changes.borrow_and_update();
            match self.look() {
                Next::Event(event) => return Some((Ok(*event), Some(self))),
                Next::Gone => {
                    let error = Error::call(Code::Unavailable, "GetContainerEvents", "", super::LOST);
                    return Some((Err(error), None));
                }
                Next::Nothing(Some(until)) => {
                    tokio::select! {
                        biased;
                        () = sleep_until(until) => {}
                        _ = self.changes.changed() => {}
                    }
                }
                Next::Nothing(None) => {
                    let _ = self.changes.changed().await;
                }
            }
        }
    }

    fn look(&self) -> Next {
        let now = Instant::now();
        let mut state = self.runtime.state.lock();
        state.settle(now);
        let next_due = state.next_due();
        let Some(queue) = state.watchers.queues.get_mut(&self.number) else {
            return Next::Gone;
        };
        match queue.events.first_key_value().map(|((at, _), _)| *at) {
            Some(at) if at <= now => match queue.events.pop_first() {
                Some((_, event)) => Next::Event(Box::new(event)),
                None => Next::Nothing(None),
            },
            at => Next::Nothing([at, next_due].into_iter().flatten().min()),
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.runtime.state.lock().watchers.queues.remove(&self.number);
    }
}

/// The events from now on.
pub(super) fn watch(runtime: Arc<Inner>) -> BoxStream<'static, Result<v1::ContainerEventResponse, Error>> {
    let changes = runtime.changes.subscribe();
    let number = runtime.state.lock().watchers.subscribe();
    let watcher = Watcher {
        runtime,
        number,
        changes,
    };
    unfold(Some(watcher), |watcher| async { watcher?.next().await }).boxed()
}
