//! The body of a watch: events, bookmarks, and its end.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use serde_json::Value;
use tokio::time::{Instant, Sleep, sleep_until};
use tower::BoxError;

use super::media::Shape;
use super::shape::Presenter;
use crate::server::Shared;
use crate::store::{Ending, Event, EventType, Events, is_twin, line, shown};

/// How long before its end a watch gets its last bookmark.
const LAST_BOOKMARK: Duration = Duration::from_secs(2);

/// One open watch.
pub(super) struct Watch {
    shared: Arc<Shared>,
    events: Events,
    presenter: Presenter,
    deadline: Instant,
    /// When the next bookmark is due; `None` if there is none.
    bookmark_at: Option<Instant>,
    /// The revision of a bookmark that is due. It is sent once all events up to this revision are sent.
    bookmark: Option<u64>,
    /// A fault that is still to come, and its time.
    fault: Option<(Instant, Ending)>,
    timer: Pin<Box<Sleep>>,
    /// Whether an event was sent already.
    begun: bool,
}

impl Watch {
    pub(super) fn new(
        shared: Arc<Shared>,
        events: Events,
        presenter: Presenter,
        timeout: Duration,
        bookmarks: bool,
        fault: Option<(Ending, Duration)>,
    ) -> Self {
        let now = Instant::now();
        let mut watch = Watch {
            shared,
            events,
            presenter,
            deadline: now + timeout,
            bookmark_at: None,
            bookmark: None,
            fault: fault.map(|(ending, after)| (now + after, ending)),
            timer: Box::pin(sleep_until(now)),
            begun: false,
        };
        if bookmarks {
            watch.bookmark_at = watch.next_bookmark(now);
        }
        watch.set_timer();
        watch
    }

    /// The lines of the watch.
    pub(super) fn into_stream(self) -> impl Stream<Item = Result<Bytes, BoxError>> + Send {
        futures::stream::unfold(self, |mut watch| async move {
            let line = watch.next().await?;
            Some((line, watch))
        })
    }

    async fn next(&mut self) -> Option<Result<Bytes, BoxError>> {
        loop {
            match self.ending() {
                Some(Ending::Broken) => {
                    return Some(Err(io::Error::from(io::ErrorKind::ConnectionReset).into()));
                }
                Some(Ending::Closed) => return None,
                // Until the server ends.
                Some(Ending::Silent) => {
                    while self.events.next().await.is_some() {}
                    if self.ending() == Some(Ending::Silent) {
                        std::future::pending::<()>().await;
                    }
                    continue;
                }
                None => {}
            }
            if let Some(revision) = self.bookmark {
                match self.events.try_next() {
                    Some(event) => return Some(Ok(self.show(event))),
                    None => {
                        self.bookmark = None;
                        return Some(Ok(line("BOOKMARK", &self.presenter.bookmark(revision, false))));
                    }
                }
            }
            tokio::select! {
                biased;
                event = self.events.next() => match event {
                    Some(event) => return Some(Ok(self.show(event))),
                    // It was too slow.
                    None if self.events.ending().is_none() => return None,
                    None => {}
                },
                () = self.timer.as_mut() => {
                    let now = Instant::now();
                    if self.ending().is_some() {
                        continue;
                    }
                    if now >= self.deadline {
                        return None;
                    }
                    // The first events may be newer than what was delivered.
                    self.bookmark = Some(self.shared.delivered().max(self.events.since()));
                    self.bookmark_at = self.next_bookmark(now);
                    self.set_timer();
                }
            }
        }
    }

    /// How it ends: because all watches end, or by its own fault.
    fn ending(&self) -> Option<Ending> {
        let own = self.fault.filter(|(at, _)| *at <= Instant::now());
        match (self.events.ending(), own) {
            (None, Some((_, own))) => Some(own),
            (ending, _) => ending,
        }
    }

    fn show(&mut self, event: Event) -> Bytes {
        let first = !std::mem::replace(&mut self.begun, true);
        match event {
            Event::Initial(object) => self.line(EventType::Added, &object, first),
            Event::InitialEnd(revision) => line("BOOKMARK", &self.presenter.bookmark(revision, true)),
            Event::Change(change, event) => {
                if self.bookmark.is_some_and(|revision| revision < change.revision) {
                    self.bookmark = None;
                }
                if self.presenter.shape == Shape::Object && !is_twin(self.presenter.resource) {
                    change.line(event)
                } else {
                    self.line(event, &shown(self.presenter.resource, change.shown(event)), first)
                }
            }
        }
    }

    fn line(&mut self, event: EventType, object: &Arc<Value>, first: bool) -> Bytes {
        if self.presenter.shape == Shape::Object {
            return line(event.as_str(), object);
        }
        self.presenter.now = self.shared.now();
        line(event.as_str(), &self.presenter.watched(object, first))
    }

    fn next_bookmark(&self, now: Instant) -> Option<Instant> {
        let last = self.deadline.checked_sub(LAST_BOOKMARK)?;
        if last <= now {
            return None;
        }
        Some(last.min(now + self.shared.bookmark_frequency))
    }

    fn set_timer(&mut self) {
        let others = [self.bookmark_at, self.fault.map(|(at, _)| at)];
        let at = others.into_iter().flatten().fold(self.deadline, Instant::min);
        self.timer.as_mut().reset(at);
    }
}
