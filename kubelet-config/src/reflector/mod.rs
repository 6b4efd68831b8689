//! Lists the objects of one kind on an API server, watches them and sends their changes, as client-go's
//! `Reflector`.

mod requests;

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use kube_client::Resource;
use kube_client::core::WatchEvent;
use kubelet_core::Jitter;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::{Instant, sleep};

pub(crate) use self::requests::Requests;
use self::requests::{Failure, Watch};

/// A watch shorter than this is one that failed.
const VERY_SHORT_WATCH: Duration = Duration::from_secs(1);
/// The size of a page of a list (`defaultPageSize` of client-go).
const PAGE_SIZE: u32 = 500;
/// The mark of the bookmark that ends the initial events (`metav1.InitialEventsAnnotationKey`).
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// A kind of object that can be watched.
pub(crate) trait Object: Resource<DynamicType = ()> + DeserializeOwned {}

impl<K: Resource<DynamicType = ()> + DeserializeOwned> Object for K {}

/// Why an object cannot be read, and which field is to blame.
pub(crate) type Unreadable = serde_path_to_error::Error<serde_json::Error>;

/// The receiver of changes.
pub(crate) trait Listener<K> {
    /// Returns when it is ready for the next change.
    async fn changed(&mut self, change: Change<K>);

    /// Reads an object, without what the listener does not keep. It is called before each object is sent.
    fn read(&self, object: Value) -> Result<K, Unreadable>;
}

/// A change that a listener gets.
pub(crate) enum Change<K> {
    /// All there are, in the order of their keys.
    All(Vec<Arc<K>>),
    /// A new object, or a new version of one.
    Applied(Arc<K>),
    /// An object is gone.
    Deleted(Arc<K>),
    /// The server cannot be reached. The objects stay, but they may be old.
    Unavailable(String),
    /// The server can be reached again, and the objects are current.
    Available,
    /// An object that cannot be understood.
    Problem { item: String, message: String },
}

/// An object's namespace and name. The former is empty where the kind has none.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    pub(crate) namespace: Arc<str>,
    pub(crate) name: Arc<str>,
}

impl Key {
    pub(crate) fn new(namespace: &str, name: &str) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    pub(crate) fn of(object: &impl Resource) -> Self {
        let of = |text: &Option<String>| Arc::from(text.as_deref().unwrap_or_default());
        Self {
            namespace: of(&object.meta().namespace),
            name: of(&object.meta().name),
        }
    }
}

/// Keeps its listener up to date with the objects of one kind.
pub(crate) struct Reflector<K, L> {
    requests: Requests,
    jitter: Jitter,
    backoff: Backoff,
    listener: L,
    kind: PhantomData<fn() -> K>,
    known: BTreeMap<Key, Version>,
    /// Whether all objects were sent once.
    seen: bool,
    /// The problem that was reported last, until it is over.
    trouble: Option<String>,
    /// Where the last list or watch ended.
    resource_version: Option<String>,
    /// The server lists from its store, page by page, even where it could do so from memory.
    paged: bool,
}

/// What is kept of an object.
#[derive(PartialEq, Eq)]
struct Version {
    uid: Arc<str>,
    /// Empty if the server sent none: then each event of the object is a change.
    resource_version: String,
}

type Listed<K> = BTreeMap<Key, Arc<K>>;

/// What to do when a watch is over.
enum Then {
    /// Go on from where it ended.
    Watch,
    /// The same, but not at once.
    WatchLater,
    List,
}

impl<K: Object, L: Listener<K>> Reflector<K, L> {
    pub(crate) fn new(requests: Requests, jitter: Jitter, listener: L) -> Self {
        Self {
            requests,
            backoff: Backoff::new(jitter.clone()),
            jitter,
            listener,
            kind: PhantomData,
            known: BTreeMap::new(),
            seen: false,
            trouble: None,
            resource_version: None,
            paged: false,
        }
    }

    /// Never ends.
    pub(crate) async fn run(mut self) {
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
                tracing::debug!(kind = %K::kind(&()), "the server has no streaming list, falling back to a list: {failure}");
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

    /// Gets all objects through a watch that then continues with their changes.
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
        let mut listed = Listed::<K>::new();
        while let Some(event) = watch.next().await {
            match event {
                Ok(WatchEvent::Added(object) | WatchEvent::Modified(object)) => {
                    if let Some(object) = self.decode(object).await {
                        listed.insert(Key::of(&object), Arc::new(object));
                    }
                }
                Ok(WatchEvent::Deleted(object)) => {
                    if let Some(object) = self.decode(object).await {
                        listed.remove(&Key::of(&object));
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

    /// Lists all objects, page by page.
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
        let mut listed = Listed::<K>::new();
        loop {
            for object in page.items {
                if let Some(object) = self.decode(object).await {
                    listed.insert(Key::of(&object), Arc::new(object));
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

    /// Sends the events of a watch until it ends.
    async fn follow(&mut self, mut watch: Watch) -> Then {
        while let Some(event) = watch.next().await {
            match event {
                Ok(WatchEvent::Added(object) | WatchEvent::Modified(object)) => {
                    if let Some(object) = self.decode(object).await {
                        self.note_version(object.meta().resource_version.as_deref());
                        self.tell_applied(object).await;
                    }
                }
                Ok(WatchEvent::Deleted(object)) => {
                    if let Some(object) = self.decode(object).await {
                        self.note_version(object.meta().resource_version.as_deref());
                        self.tell_deleted(object).await;
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
                        tracing::warn!(kind = %K::kind(&()), "the watch ended: {failure}");
                    }
                    return Then::List;
                }
                Err(error) => {
                    tracing::debug!(kind = %K::kind(&()), "the watch broke: {error}");
                    break;
                }
            }
        }
        if watch.age() >= VERY_SHORT_WATCH {
            Then::Watch
        } else if watch.received() {
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
        self.jitter.apply(self.requests.min_watch_timeout, 1.0)
    }

    /// Sends all objects, unless nothing changed.
    async fn tell_all(&mut self, listed: Listed<K>, resource_version: Option<String>) {
        self.note_version(resource_version.as_deref());
        let known: BTreeMap<_, _> = listed
            .iter()
            .map(|(key, object)| (key.clone(), Version::of(&**object)))
            .collect();
        let same = self.seen && known == self.known && known.values().all(Version::is_sent);
        self.known = known;
        if same {
            self.tell_recovery().await;
            return;
        }
        self.seen = true;
        self.trouble = None;
        self.listener
            .changed(Change::All(listed.into_values().collect()))
            .await;
    }

    async fn tell_applied(&mut self, object: K) {
        let (key, version) = (Key::of(&object), Version::of(&object));
        if version.is_sent() && self.known.get(&key) == Some(&version) {
            return;
        }
        self.known.insert(key, version);
        self.listener.changed(Change::Applied(Arc::new(object))).await;
    }

    async fn tell_deleted(&mut self, object: K) {
        let key = Key::of(&object);
        if let Some(known) = self.known.get(&key)
            && known.uid == Version::of(&object).uid
        {
            self.known.remove(&key);
            self.listener.changed(Change::Deleted(Arc::new(object))).await;
        }
    }

    /// Reports a problem once, however often it occurs.
    async fn tell_trouble(&mut self, failure: Failure) {
        let message = failure.to_string();
        if self.trouble.as_ref() != Some(&message) {
            self.trouble = Some(message.clone());
            self.listener.changed(Change::Unavailable(message)).await;
        }
    }

    async fn tell_recovery(&mut self) {
        if self.trouble.take().is_some() {
            self.listener.changed(Change::Available).await;
        }
    }

    /// Decodes an object, without its `managedFields`: they take more memory than the rest, and a node does not
    /// read them. `None` if it cannot be decoded; that is reported.
    async fn decode(&mut self, mut object: Value) -> Option<K> {
        if let Some(metadata) = object.pointer_mut("/metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
        let text = |pointer| {
            object
                .pointer(pointer)
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        let key = [text("/metadata/namespace"), text("/metadata/name")];
        let key = key
            .into_iter()
            .filter(|part| !part.is_empty())
            .collect::<Vec<_>>()
            .join("/");
        match self.listener.read(object) {
            Ok(object) => Some(object),
            Err(error) => {
                let item = format!("{} {key}", K::kind(&()).to_lowercase());
                let message = format!("cannot be decoded: {error}");
                self.listener.changed(Change::Problem { item, message }).await;
                None
            }
        }
    }
}

impl Version {
    fn of(object: &impl Resource) -> Self {
        let metadata = object.meta();
        Self {
            uid: Arc::from(metadata.uid.as_deref().unwrap_or_default()),
            resource_version: metadata.resource_version.clone().unwrap_or_default(),
        }
    }

    fn is_sent(&self) -> bool {
        !self.resource_version.is_empty()
    }
}

/// An exponential back-off with jitter that resets after a quiet time (client-go's reflector back-off).
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
