//! Where pods come from, and the one stream that they are merged into.

use std::collections::HashSet;
use std::sync::Arc;

use async_trait::async_trait;
use futures::stream::{BoxStream, Stream, StreamExt};
use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::{PodUid, Result};

/// A named stream of what should run, as one place says it: a folder, a URL, an API server, your own.
///
/// Any `Stream<Item = Vec<Arc<Pod>>>` makes one, see [`StreamSource`].
pub trait PodSource: Send + 'static {
    /// The source's name: the value of the annotation `kubernetes.io/config.source` on its pods.
    fn name(&self) -> &str;

    /// The source's updates. The source stops when the stream is dropped. A stream that ends leaves its
    /// pods as they are: a silent source is not an empty one.
    fn updates(self: Box<Self>) -> BoxStream<'static, SourceUpdate>;
}

/// One word from a source.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum SourceUpdate {
    /// All pods of this source, now. A pod that is not among them is no more. The first one, even empty,
    /// makes the source *seen*.
    Snapshot(Vec<Arc<Pod>>),
    /// This pod is new or has changed; the others are as they were. Only after a first snapshot.
    Applied(Arc<Pod>),
    /// This pod is no more; the others are as they were. Only after a first snapshot.
    Deleted(PodUid),
    /// The source cannot be read at present. What it said last stands.
    Unavailable {
        /// Why, for humans.
        message: String,
    },
    /// The source can be read again, and what it said last is what it says.
    Available,
    /// One item of the source is bad and was passed over; the others are untouched.
    Problem {
        /// Which: the file, the URL, the index in the list.
        item: String,
        /// What is wrong with it.
        message: String,
    },
}

/// A [`PodSource`] made of any stream of full snapshots.
///
/// ```
/// use std::sync::Arc;
/// use futures::stream;
/// use kubelet_core::{PodSource, StreamSource};
///
/// let source = StreamSource::new("mine", stream::iter([vec![Arc::new(Default::default())]]));
/// assert_eq!(source.name(), "mine");
/// ```
pub struct StreamSource<S> {
    name: String,
    snapshots: S,
}

impl<S> StreamSource<S> {
    /// The source of this name whose snapshots come from `snapshots`.
    pub fn new(name: impl Into<String>, snapshots: S) -> Self {
        Self {
            name: name.into(),
            snapshots,
        }
    }
}

impl<S: Stream<Item = Vec<Arc<Pod>>> + Send + 'static> PodSource for StreamSource<S> {
    fn name(&self) -> &str {
        &self.name
    }

    fn updates(self: Box<Self>) -> BoxStream<'static, SourceUpdate> {
        self.snapshots.map(SourceUpdate::Snapshot).boxed()
    }
}

/// What is to be done with the pods of a [`PodUpdate`] (`types.PodOperation`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PodOperation {
    /// These are all pods of the source.
    Set,
    /// These are new.
    Add,
    /// These are to end gracefully: their `deletionTimestamp` was set.
    Delete,
    /// These are gone from the source.
    Remove,
    /// These changed in what matters to running them.
    Update,
    /// Only the status of these changed, and not by us.
    Reconcile,
}

/// One step of the merged stream (`types.PodUpdate`).
#[derive(Clone, Debug, PartialEq)]
pub struct PodUpdate {
    /// What is to be done.
    pub op: PodOperation,
    /// With which pods. Empty in the first update of a source that has none: it marks the source as seen.
    pub pods: Vec<Arc<Pod>>,
    /// The source they came from.
    pub source: Arc<str>,
}

/// All sources, merged into one ordered stream of updates. Answers to the kubelet's `config.PodConfig`,
/// and is implemented by that type of `kubelet-config`.
#[async_trait]
pub trait PodUpdates: Send + 'static {
    /// The names of all sources that will speak.
    fn sources(&self) -> Vec<Arc<str>>;

    /// Reads the sources and sends the merged updates until `shutdown`. A full channel holds the sources
    /// back; nothing is lost.
    async fn run(
        self: Box<Self>,
        updates: mpsc::Sender<PodUpdate>,
        shutdown: CancellationToken,
    ) -> Result<()>;
}

/// Which sources have been heard by the sync loop (`config.SourcesReady`). A cheap handle.
///
/// Until a source was heard, that it does not list a pod means nothing.
#[derive(Clone, Debug, Default)]
pub struct SourcesReady {
    expected: Arc<[Arc<str>]>,
    seen: Arc<Mutex<HashSet<Arc<str>>>>,
}

impl SourcesReady {
    /// None of these sources has been heard yet.
    pub fn new(expected: impl IntoIterator<Item = Arc<str>>) -> Self {
        Self {
            expected: expected.into_iter().collect(),
            seen: Arc::default(),
        }
    }

    /// The source was heard.
    pub fn add(&self, source: &Arc<str>) {
        let mut seen = self.seen.lock();
        if !seen.contains(source) {
            seen.insert(source.clone());
        }
    }

    /// Whether this source was heard.
    pub fn is_ready(&self, source: &str) -> bool {
        self.seen.lock().contains(source)
    }

    /// The sources that were not heard yet.
    pub fn silent(&self) -> Vec<String> {
        let seen = self.seen.lock();
        let silent = self.expected.iter().filter(|source| !seen.contains(*source));
        silent.map(|source| source.to_string()).collect()
    }

    /// Whether every source was heard.
    pub fn all_ready(&self) -> bool {
        let seen = self.seen.lock();
        self.expected.iter().all(|source| seen.contains(source))
    }
}
