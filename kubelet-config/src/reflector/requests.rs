//! What is asked of the API server, and how it may fail.

use std::borrow::Cow;
use std::error::Error;
use std::future::ready;
use std::io;
use std::time::Duration;

use form_urlencoded::Serializer;
use futures::io::AsyncBufReadExt;
use futures::stream::{BoxStream, StreamExt};
use http::Request;
use http::header::{ACCEPT_ENCODING, HeaderValue};
use kube_client::core::{ObjectList, WatchEvent};
use kube_client::{Client, core::Status};
use serde_json::Value;
use tokio::time::{Instant, timeout, timeout_at};

use crate::error_chain::error_chain;

/// How long the server is asked to watch, at least and at most twice that (`defaultMinWatchTimeout` of client-go).
const MIN_WATCH_TIMEOUT: Duration = Duration::from_secs(5 * 60);
/// The API server gives up on a list after a minute (`--request-timeout`).
const LIST_TIMEOUT: Duration = Duration::from_secs(65);
/// The API server ends a watch when its time is over. If it does not end even then, the connection is dead.
const WATCH_MARGIN: Duration = Duration::from_secs(10);
/// An API server sends something each minute, at least a bookmark (`defaultBookmarkFrequency`). A connection
/// without data for so long is dead.
const SILENCE: Duration = Duration::from_secs(3 * 60);

/// Asks for the objects of one kind.
pub(crate) struct Requests {
    client: Client,
    path: Cow<'static, str>,
    field_selector: Option<String>,
    pub(super) min_watch_timeout: Duration,
}

/// Why a request came to nothing.
#[derive(Debug)]
pub(super) enum Failure {
    /// The server said no.
    Refused(Box<Status>),
    /// The server did not answer, or nothing that can be understood.
    Silent(String),
    /// The server ended the stream before the list was complete.
    Unfinished,
}

impl Requests {
    /// Those at `path`, `/api/v1/pods`, that a field selector chooses.
    pub(crate) fn new(
        client: Client,
        path: impl Into<Cow<'static, str>>,
        field_selector: Option<String>,
    ) -> Self {
        Self {
            client,
            path: path.into(),
            field_selector,
            min_watch_timeout: MIN_WATCH_TIMEOUT,
        }
    }

    /// The least time that the server is asked to watch, if it is not to be five minutes.
    pub(crate) fn with_min_watch_timeout(mut self, least: Duration) -> Self {
        self.min_watch_timeout = least;
        self
    }

    /// One page of all objects. Each is decoded on its own: one that cannot be must not hide the others.
    pub(super) async fn list(
        &self,
        resource_version: Option<&str>,
        limit: Option<u32>,
        continue_token: Option<&str>,
    ) -> Result<ObjectList<Value>, Failure> {
        let limit = limit.map(|limit| limit.to_string());
        let request = self.get([
            ("continue", continue_token),
            ("limit", limit.as_deref()),
            ("resourceVersion", resource_version),
        ])?;
        let text = timeout(LIST_TIMEOUT, self.client.request_text(request))
            .await
            .map_err(|_| Failure::Silent(format!("no answer within {} s", LIST_TIMEOUT.as_secs())))??;
        serde_json::from_str(&text)
            .map_err(|error| Failure::Silent(format!("cannot decode the list: {error}")))
    }

    /// What changes since `resource_version`; with `initial_events`, all objects first.
    pub(super) async fn watch(
        &self,
        resource_version: Option<&str>,
        initial_events: bool,
        lasting: Duration,
    ) -> Result<Watch, Failure> {
        let seconds = lasting.as_secs().to_string();
        let mut request = self.get([
            ("allowWatchBookmarks", Some("true")),
            ("resourceVersion", resource_version),
            ("resourceVersionMatch", initial_events.then_some("NotOlderThan")),
            ("sendInitialEvents", initial_events.then_some("true")),
            ("timeoutSeconds", Some(&seconds)),
            ("watch", Some("true")),
        ])?;
        // Servers that compress do so event by event, which the client's layers cannot read.
        let headers = request.headers_mut();
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        let started = Instant::now();
        let deadline = started + lasting + WATCH_MARGIN;
        // Some proxies hold back the head of an answer until the first event. The first events of a list come at once, however long the
        // watch then lasts.
        let limit = match initial_events {
            true => lasting.min(LIST_TIMEOUT),
            false => lasting,
        };
        let head_by = deadline.min(started + limit + WATCH_MARGIN);
        let answer = timeout_at(head_by, self.client.request_stream(request))
            .await
            .map_err(|_| Failure::Silent(format!("no answer within {} s", limit.as_secs())))??;
        // Not `request_events`: that keeps a buffer of 8 KiB and more for as long as the watch goes on, and these are many.
        let events = answer.lines().filter_map(|line| ready(event(line)));
        Ok(Watch {
            events: events.boxed(),
            started,
            deadline,
            received: false,
        })
    }

    fn get<'a>(
        &'a self,
        query: impl IntoIterator<Item = (&'static str, Option<&'a str>)>,
    ) -> Result<Request<Vec<u8>>, Failure> {
        let selector = ("fieldSelector", self.field_selector.as_deref());
        let query = std::iter::once(selector).chain(query);
        let query = query.filter_map(|(key, value)| Some((key, value?)));
        let query = Serializer::new(String::new()).extend_pairs(query).finish();
        Request::get(format!("{}?{query}", self.path))
            .body(Vec::new())
            .map_err(|error| Failure::Silent(error.to_string()))
    }
}

/// The event of a line of a watch. `None` if the connection ended in the line or before it.
fn event(line: io::Result<String>) -> Option<kube_client::Result<WatchEvent<Value>>> {
    let line = match line {
        Ok(line) => line,
        Err(error) if is_end(&error) => return None,
        Err(error) => return Some(Err(kube_client::Error::ReadEvents(error))),
    };
    match serde_json::from_str(&line) {
        Ok(event) => Some(Ok(event)),
        Err(error) if error.is_eof() => None,
        Err(error) => Some(Err(match serde_json::from_str::<Status>(&line) {
            Ok(status) => kube_client::Error::Api(status.boxed()),
            Err(_) => kube_client::Error::SerdeError(error),
        })),
    }
}

/// Whether the connection just ended: some layers call that an error, and wrap it.
fn is_end(error: &io::Error) -> bool {
    const DEEPEST: usize = 16;
    let is_eof = |error: &io::Error| error.kind() == io::ErrorKind::UnexpectedEof;
    if is_eof(error) || error.to_string().contains("unexpected EOF during chunk") {
        return true;
    }
    let mut cause = error.get_ref().map(|cause| cause as &(dyn Error + 'static));
    for _ in 0..DEEPEST {
        let Some(error) = cause else {
            return false;
        };
        if error.downcast_ref().is_some_and(is_eof) {
            return true;
        }
        cause = error.source();
    }
    false
}

/// A watch under way.
pub(super) struct Watch {
    events: BoxStream<'static, kube_client::Result<WatchEvent<Value>>>,
    started: Instant,
    deadline: Instant,
    received: bool,
}

impl Watch {
    /// The next event. `None`: the watch is over, or said nothing for too long.
    pub(super) async fn next(&mut self) -> Option<kube_client::Result<WatchEvent<Value>>> {
        let until = self.deadline.min(Instant::now() + SILENCE);
        let event = timeout_at(until, self.events.next()).await.ok()?;
        self.received |= event.is_some();
        event
    }

    /// Whether it said anything.
    pub(super) fn received(&self) -> bool {
        self.received
    }

    /// For how long it went on.
    pub(super) fn age(&self) -> Duration {
        self.started.elapsed()
    }
}

impl Failure {
    /// The server no longer has what it is asked to go on from.
    pub(super) fn is_expired(&self) -> bool {
        matches!(self, Failure::Refused(status) if status.code == 410 || status.reason == "Expired" || status.reason == "Gone")
    }

    /// The server does not have yet, or never had, what it is asked to go on from.
    pub(super) fn is_too_large_version(&self) -> bool {
        let Failure::Refused(status) = self else {
            return false;
        };
        let causes = status.details.iter().flat_map(|details| &details.causes);
        causes.into_iter().any(|cause| {
            cause.reason == "ResourceVersionTooLarge" || cause.message == "Too large resource version"
        })
    }

    /// No answer, or the server is overloaded. Retry the same request.
    pub(super) fn is_passing(&self) -> bool {
        match self {
            Failure::Refused(status) => status.code == 429,
            Failure::Silent(_) => true,
            Failure::Unfinished => false,
        }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::Refused(status) => {
                let (reason, code) = (&status.reason, status.code);
                write!(f, "the API server refuses: {} ({reason}, {code})", status.message)
            }
            Failure::Silent(why) => f.write_str(why),
            Failure::Unfinished => f.write_str("the watch ended before the list was complete"),
        }
    }
}

impl From<kube_client::Error> for Failure {
    fn from(error: kube_client::Error) -> Self {
        match error {
            kube_client::Error::Api(status) => Failure::Refused(status),
            other => Failure::Silent(error_chain(&other)),
        }
    }
}
