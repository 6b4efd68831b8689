//! Lists, watches, and tells what changes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube_client::core::WatchEvent;
use kubelet_core::annotations::API_SOURCE;
use kubelet_core::{Jitter, PodExt, PodKey, PodUid, SourceUpdate};
use serde_json::Value;
use tokio::time::{Instant, sleep};

use crate::source_stream::Words;

use super::requests::{Failure, Requests, Watch};

/// How long the server is asked to watch, at least and at most twice that (`defaultMinWatchTimeout` of client-go).
const MIN_WATCH_TIMEOUT: Duration = Duration::from_secs(5 * 60);
/// A watch shorter than this is one that failed.
const VERY_SHORT_WATCH: Duration = Duration::from_secs(1);
/// The size of a page of a list (`defaultPageSize` of client-go).
const PAGE_SIZE: u32 = 500;
/// The mark of the bookmark that ends the initial events (`metav1.InitialEventsAnnotationKey`).
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// Keeps its listener up to date with the pods of one node.
pub(super) struct Reflector {
    requests: Requests,
    jitter: Jitter,
    backoff: Backoff,
    words: Words,
    known: BTreeMap<PodKey, Version>,
    /// Whether all pods were told once.
    seen: bool,
    /// The trouble that was told last, until it is over.
    trouble: Option<String>,
    /// Where the last list or watch ended.
    resource_version: Option<String>,
    /// The server lists from its store, page by page, even where it could do so from memory.
    paged: bool,
}

/// What is kept of a pod.
#[derive(PartialEq, Eq)]
struct Version {
    uid: PodUid,
    /// Empty where the server told none: then each word of the pod is news.
    resource_version: String,
}

type Listed = BTreeMap<PodKey, Arc<Pod>>;

/// What to do when a watch is over.
enum Then {
    /// Go on from where it ended.
    Watch,
    /// The same, but not at once.
    WatchLater,
    List,
}

impl Reflector {
    pub(super) fn new(requests: Requests, jitter: Jitter, words: Words) -> Self {
        Self {
            requests,
            backoff: Backoff::new(jitter.clone()),
            jitter,
            words,
            known: BTreeMap::new(),
            seen: false,
            trouble: None,
            resource_version: None,
            paged: false,
        }
    }

    /// Never ends.
    pub(super) async fn run(mut self) {
        loop {
            if let Err(failure) = self.list_and_watch().await {
                self.tell_trouble(failure).await;
            }
            self.backoff.wait().await;
        }
    }

    /// Ends when all has to be listed again.
    async fn list_and_watch(&mut self) -> Result<(), Failure> {
        let mut at_hand = match self.watch_list().await {
            Ok(watch) => Some(watch),
            Err(failure) if failure.is_passing() => return Err(failure),
            Err(failure) => {
                tracing::debug!(source = API_SOURCE, "no streaming list, hence a list: {failure}");
                self.list().await?;
                None
            }
        };
        loop {
            let watch = match at_hand.take() {
                Some(watch) => watch,
                None => {
                    let from = self.resource_version.as_deref();
                    match self.requests.watch(from, false, self.lasting()).await {
                        Ok(watch) => watch,
                        Err(failure) if failure.is_passing() => {
                            self.tell_trouble(failure).await;
                            self.backoff.wait().await;
                            continue;
                        }
                        Err(failure) if failure.is_expired() => return Ok(()),
                        Err(failure) => return Err(failure),
                    }
                }
            };
            self.tell_recovery().await;
            match self.follow(watch).await {
                Then::Watch => {}
                Then::WatchLater => self.backoff.wait().await,
                Then::List => return Ok(()),
            }
        }
    }

    /// Has all pods told by a watch that goes on with what changes.
    async fn watch_list(&mut self) -> Result<Watch, Failure> {
        let mut from = self.resource_version.clone();
        loop {
            match self.watch_list_from(from.as_deref()).await {
                Err(failure)
                    if from.is_some() && (failure.is_expired() || failure.is_too_large_version()) =>
                {
                    from = None;
                }
                done => return done,
            }
        }
    }

    async fn watch_list_from(&mut self, resource_version: Option<&str>) -> Result<Watch, Failure> {
        let mut watch = self
            .requests
            .watch(resource_version, true, self.lasting())
            .await?;
        let mut listed = Listed::new();
        while let Some(event) = watch.next().await {
            match event {
                Ok(WatchEvent::Added(pod) | WatchEvent::Modified(pod)) => {
                    if let Some(pod) = self.decode(pod).await {
                        listed.insert(pod.key(), Arc::new(pod));
                    }
                }
                Ok(WatchEvent::Deleted(pod)) => {
                    if let Some(pod) = self.decode(pod).await {
                        listed.remove(&pod.key());
                    }
                }
                Ok(WatchEvent::Bookmark(bookmark)) => {
                    let metadata = bookmark.metadata;
                    if metadata
                        .annotations
                        .get(INITIAL_EVENTS_END)
                        .is_some_and(|end| end == "true")
                    {
                        self.tell_all(listed, Some(metadata.resource_version)).await;
                        return Ok(watch);
                    }
                }
                Ok(WatchEvent::Error(status)) => return Err(Failure::Refused(status)),
                Err(error) => return Err(error.into()),
            }
        }
        Err(Failure::Unfinished)
    }

    /// Lists all pods, page by page.
    async fn list(&mut self) -> Result<(), Failure> {
        let from = self.resource_version.clone().unwrap_or_else(|| "0".into());
        match self.list_from(Some(&from)).await {
            Err(failure) if failure.is_expired() || failure.is_too_large_version() => {
                self.list_from(None).await
            }
            done => done,
        }
    }

    async fn list_from(&mut self, resource_version: Option<&str>) -> Result<(), Failure> {
        // A page of what is no older than a certain version would come from the server's store; all of it can come
        // from its memory.
        let first = matches!(resource_version, None | Some("0"));
        let limit = (first || self.paged).then_some(PAGE_SIZE);
        let mut page = self.requests.list(resource_version, limit, None).await?;
        let mut listed = Listed::new();
        loop {
            for pod in page.items {
                if let Some(pod) = self.decode(pod).await {
                    listed.insert(pod.key(), Arc::new(pod));
                }
            }
            let token = page.metadata.continue_.filter(|token| !token.is_empty());
            let Some(token) = token else {
                self.tell_all(listed, page.metadata.resource_version).await;
                return Ok(());
            };
            self.paged |= resource_version == Some("0");
            page = match self.requests.list(None, limit, Some(&token)).await {
                Ok(page) => page,
                // The pages were taken too slowly: all at once.
                Err(failure) if failure.is_expired() => {
                    listed.clear();
                    self.requests.list(None, None, None).await?
                }
                Err(failure) => return Err(failure),
            };
        }
    }

    /// Tells what a watch says, until it is over.
    async fn follow(&mut self, mut watch: Watch) -> Then {
        while let Some(event) = watch.next().await {
            match event {
                Ok(WatchEvent::Added(pod) | WatchEvent::Modified(pod)) => {
                    if let Some(pod) = self.decode(pod).await {
                        self.note_version(pod.metadata.resource_version.as_deref());
                        self.tell_applied(pod).await;
                    }
                }
                Ok(WatchEvent::Deleted(pod)) => {
                    if let Some(pod) = self.decode(pod).await {
                        self.note_version(pod.metadata.resource_version.as_deref());
                        self.tell_deleted(&pod).await;
                    }
                }
                Ok(WatchEvent::Bookmark(bookmark)) => {
                    self.note_version(Some(&bookmark.metadata.resource_version));
                }
                Ok(WatchEvent::Error(status)) => {
                    let failure = Failure::Refused(status);
                    if failure.is_passing() {
                        return Then::WatchLater;
                    }
                    if !failure.is_expired() {
                        tracing::warn!(source = API_SOURCE, "the watch of pods ended: {failure}");
                    }
                    return Then::List;
                }
                Err(error) => {
                    tracing::debug!(source = API_SOURCE, "the watch of pods broke: {error}");
                    break;
                }
            }
        }
        if watch.age() >= VERY_SHORT_WATCH {
            Then::Watch
        } else if watch.heard() {
            Then::WatchLater
        } else {
            Then::List
        }
    }

    fn note_version(&mut self, version: Option<&str>) {
        if let Some(version) = version.filter(|version| !version.is_empty()) {
            self.resource_version = Some(version.to_owned());
        }
    }

    fn lasting(&self) -> Duration {
        self.jitter.apply(MIN_WATCH_TIMEOUT, 1.0)
    }

    /// Tells all pods, unless they are what they were.
    async fn tell_all(&mut self, listed: Listed, resource_version: Option<String>) {
        self.note_version(resource_version.as_deref());
        let known: BTreeMap<_, _> = listed
            .iter()
            .map(|(key, pod)| (key.clone(), Version::of(pod)))
            .collect();
        let same = self.seen && known == self.known && known.values().all(Version::is_told);
        self.known = known;
        if same {
            self.tell_recovery().await;
            return;
        }
        self.seen = true;
        self.trouble = None;
        self.words
            .say(SourceUpdate::Snapshot(listed.into_values().collect()))
            .await;
    }

    async fn tell_applied(&mut self, pod: Pod) {
        let version = Version::of(&pod);
        let known = self.known.get(&pod.key());
        if version.is_told() && known == Some(&version) {
            return;
        }
        self.known.insert(pod.key(), version);
        self.words.say(SourceUpdate::Applied(Arc::new(pod))).await;
    }

    async fn tell_deleted(&mut self, pod: &Pod) {
        let key = pod.key();
        if let Some(known) = self.known.get(&key)
            && known.uid.as_str() == pod.uid_str()
        {
            self.known.remove(&key);
            self.words.say(SourceUpdate::Deleted(pod.uid())).await;
        }
    }

    /// One trouble is told once, however often it is met.
    async fn tell_trouble(&mut self, failure: Failure) {
        let message = failure.to_string();
        if self.trouble.as_ref() != Some(&message) {
            self.trouble = Some(message.clone());
            self.words.say(SourceUpdate::Unavailable { message }).await;
        }
    }

    async fn tell_recovery(&mut self) {
        if self.trouble.take().is_some() {
            self.words.say(SourceUpdate::Available).await;
        }
    }

    /// The pod that the server tells. `None`, and told, if it is not one.
    async fn decode(&self, told: Value) -> Option<Pod> {
        let text = |pointer| told.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let item = format!("pod {}/{}", text("/metadata/namespace"), text("/metadata/name"));
        match serde_path_to_error::deserialize(told) {
            Ok(pod) => Some(pod),
            Err(error) => {
                let message = format!("cannot be understood: {error}");
                self.words.say(SourceUpdate::Problem { item, message }).await;
                None
            }
        }
    }
}

impl Version {
    fn of(pod: &Pod) -> Self {
        Self {
            uid: pod.uid(),
            resource_version: pod.metadata.resource_version.clone().unwrap_or_default(),
        }
    }

    fn is_told(&self) -> bool {
        !self.resource_version.is_empty()
    }
}

/// Waits ever longer, with jitter; anew from the start after a quiet time (client-go's reflector back-off).
struct Backoff {
    jitter: Jitter,
    next: Duration,
    last: Option<Instant>,
}

impl Backoff {
    /// `defaultBackoffInit`
    const INIT: Duration = Duration::from_millis(800);
    /// `defaultBackoffMax`, before jitter
    const MAX: Duration = Duration::from_secs(30);
    /// `defaultBackoffReset`
    const RESET: Duration = Duration::from_secs(2 * 60);
    /// `defaultBackoffFactor`
    const FACTOR: u32 = 2;
    /// `defaultBackoffJitter`
    const JITTER: f64 = 1.0;

    fn new(jitter: Jitter) -> Self {
        Self {
            jitter,
            next: Self::INIT,
            last: None,
        }
    }

    async fn wait(&mut self) {
        if self.last.is_some_and(|last| last.elapsed() > Self::RESET) {
            self.next = Self::INIT;
        }
        self.last = Some(Instant::now());
        let delay = self.jitter.apply(self.next, Self::JITTER);
        self.next = (self.next * Self::FACTOR).min(Self::MAX);
        sleep(delay).await;
    }
}
