//! [`Subscription`]: an open watch in the store.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use serde_json::Value;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TryRecvError;

use super::change::{Change, EventType};
use super::list_options::ListOptions;
use super::selection::{Interest, Selection};
use super::{Store, index, node_name};
use crate::resource::Resource;
use crate::status_error::StatusError;

/// How many events may wait for a watcher. A watch that falls further behind is closed, and its client resumes it.
const WATCHER_CAPACITY: usize = 1024;

/// How a watch ends, or stops delivering.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Ending {
    /// It closes cleanly, as after its timeout.
    Closed = 1,
    /// The connection breaks.
    Broken = 2,
    /// It stays open but delivers nothing more, and does not time out.
    Silent = 3,
}

/// One event for one watcher.
#[derive(Debug, Clone)]
pub(crate) enum Event {
    /// An object that existed when the watch began.
    Initial(Arc<Value>),
    /// A change, and its type for this watcher.
    Change(Arc<Change>, EventType),
    /// All objects that existed when the watch began have been sent, up to this revision.
    InitialEnd(u64),
}

/// What a watch receives.
#[derive(Debug)]
pub(crate) struct Subscription {
    pub(crate) events: Events,
}

/// Events in order: first the existing objects, then the changes.
#[derive(Debug)]
pub(crate) struct Events {
    first: VecDeque<Event>,
    receiver: mpsc::Receiver<(Arc<Change>, EventType)>,
    ending: Arc<AtomicU8>,
    /// The revision of the store when the watch began.
    since: u64,
}

impl Events {
    /// The revision of the store when the watch began. The first events go up to it, so no bookmark may be older.
    pub(crate) fn since(&self) -> u64 {
        self.since
    }

    /// The next event; `None` after the last. Cancel safe.
    pub(crate) async fn next(&mut self) -> Option<Event> {
        if let Some(event) = self.first.pop_front() {
            return Some(event);
        }
        let (change, event) = self.receiver.recv().await?;
        Some(Event::Change(change, event))
    }

    /// The next event, if one is waiting.
    pub(crate) fn try_next(&mut self) -> Option<Event> {
        if let Some(event) = self.first.pop_front() {
            return Some(event);
        }
        match self.receiver.try_recv() {
            Ok((change, event)) => Some(Event::Change(change, event)),
            Err(TryRecvError::Empty | TryRecvError::Disconnected) => None,
        }
    }

    /// How it was ended, if it was.
    pub(crate) fn ending(&self) -> Option<Ending> {
        match self.ending.load(Ordering::Acquire) {
            1 => Some(Ending::Closed),
            2 => Some(Ending::Broken),
            3 => Some(Ending::Silent),
            _ => None,
        }
    }
}

/// The watches of one resource, by what they select.
#[derive(Debug, Default)]
pub(super) struct Subscribers {
    by_interest: BTreeMap<Interest, Vec<Subscriber>>,
}

#[derive(Debug)]
struct Subscriber {
    /// The resource in whose form it shows the objects.
    resource: &'static Resource,
    selection: Selection,
    /// The revision of the store when the watch began. The watch starts with what it needs of the changes up to it.
    since: u64,
    sender: mpsc::Sender<(Arc<Change>, EventType)>,
    ending: Arc<AtomicU8>,
}

impl Subscribers {
    /// Sends a change to all watchers that select it, and drops those that are gone or too slow.
    pub(super) fn notify(&mut self, change: &Arc<Change>) {
        if self.by_interest.is_empty() {
            return;
        }
        let mut interests = vec![Interest::All];
        let mut add = |interest: Interest| {
            if !interests.contains(&interest) {
                interests.push(interest);
            }
        };
        for object in [change.old.as_ref(), change.new_object()].into_iter().flatten() {
            if let Some(name) = object["metadata"]["name"].as_str() {
                add(Interest::Name(name.to_owned()));
            }
            if let Some(node) = node_name(object) {
                add(Interest::Node(node.to_owned()));
            }
        }
        for interest in interests {
            let Some(subscribers) = self.by_interest.get_mut(&interest) else {
                continue;
            };
            subscribers.retain(|subscriber| subscriber.notify(change));
            if subscribers.is_empty() {
                self.by_interest.remove(&interest);
            }
        }
    }

    pub(super) fn end(&mut self, ending: Ending) {
        for subscribers in self.by_interest.values_mut() {
            subscribers.retain(|subscriber| {
                subscriber.ending.store(ending as u8, Ordering::Release);
                ending == Ending::Silent && !subscriber.sender.is_closed()
            });
        }
    }

    pub(super) fn count(&self) -> usize {
        let open = |s: &&Subscriber| !s.sender.is_closed();
        self.by_interest.values().flatten().filter(open).count()
    }

    fn add(
        &mut self,
        resource: &'static Resource,
        selection: Selection,
        since: u64,
        events: VecDeque<Event>,
    ) -> Subscription {
        let (sender, receiver) = mpsc::channel(WATCHER_CAPACITY);
        let ending = Arc::new(AtomicU8::new(0));
        // A watch on a name that never changes again gets no events, so watches that were closed are dropped here.
        self.by_interest.retain(|_, subscribers| {
            subscribers.retain(|subscriber| !subscriber.sender.is_closed());
            !subscribers.is_empty()
        });
        let subscribers = self.by_interest.entry(selection.interest()).or_default();
        subscribers.push(Subscriber {
            resource,
            selection,
            since,
            sender,
            ending: ending.clone(),
        });
        Subscription {
            events: Events {
                first: events,
                receiver,
                ending,
                since,
            },
        }
    }
}

impl Subscriber {
    /// Whether the watcher stays.
    fn notify(&self, change: &Arc<Change>) -> bool {
        if self.ending.load(Ordering::Acquire) == Ending::Silent as u8 {
            return !self.sender.is_closed();
        }
        if change.revision <= self.since {
            return !self.sender.is_closed();
        }
        match change.event(self.resource, &self.selection) {
            Some(event) => self.sender.try_send((change.clone(), event)).is_ok(),
            None => true,
        }
    }
}

impl Store {
    /// Opens a watch with these options.
    ///
    /// # Errors
    ///
    /// 410 for a revision that is no longer kept. The watch reports it as an event.
    pub(crate) fn watch(
        &mut self,
        resource: &'static Resource,
        selection: Selection,
        options: &ListOptions,
    ) -> Result<Subscription, StatusError> {
        let asked = options.revision()?;
        let now = self.revision;
        let Some(index) = index(resource) else {
            return Err(StatusError::not_found(resource, ""));
        };
        let mut first = VecDeque::new();
        let from_present = options.send_initial_events.unwrap_or(asked == 0);
        if from_present {
            if options.send_initial_events == Some(true) {
                self.reaches(asked)?;
            }
            let present = ListOptions::default();
            let listed = self.list(resource, &selection, &present)?;
            first.extend(listed.items.into_iter().map(Event::Initial));
            if options.send_initial_events == Some(true) && options.allow_watch_bookmarks {
                first.push_back(Event::InitialEnd(now));
            }
        } else if asked != 0 {
            let kind = &self.kinds[index];
            if asked < kind.compacted {
                let message = format!("too old resource version: {asked} ({})", kind.compacted);
                return Err(StatusError::new(410, "Expired", message));
            }
            let newer = kind.history.partition_point(|change| change.revision <= asked);
            let newer = kind.history.range(newer..);
            first.extend(newer.filter_map(|change| {
                let event = change.event(resource, &selection)?;
                Some(Event::Change(change.clone(), event))
            }));
        }
        Ok(self.kinds[index].subscribers.add(resource, selection, now, first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_knows_the_revision_that_it_began_with() {
        let mut store = Store::new(10);
        store.restore(Vec::new()).unwrap();
        let maps = Resource::find("", "v1", "configmaps").unwrap();
        let map = serde_json::json!({"metadata": {"name": "a", "namespace": "default"}});
        store.commit(maps, "default", "a", None, Some(map)).unwrap();
        let options = ListOptions {
            send_initial_events: Some(true),
            allow_watch_bookmarks: true,
            ..ListOptions::default()
        };
        let mut events = store.watch(maps, Selection::default(), &options).unwrap().events;
        assert!(store.delivered() < events.since(), "the change is not written");
        assert!(matches!(events.try_next(), Some(Event::Initial(_))));
        assert!(matches!(events.try_next(), Some(Event::InitialEnd(revision)) if revision == events.since()));
    }
}
