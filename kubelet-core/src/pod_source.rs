//! Pod sources, and the stream that they are merged into.

use std::collections::HashSet;
use std::sync::Arc;

use async_trait::async_trait;
use futures::stream::{BoxStream, Stream, StreamExt};
use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::{PodUid, Result};

/// A named stream of pods to run, from one place: a folder, a URL, an API server, your own.
///
/// Any `Stream<Item = Vec<Arc<Pod>>>` makes one, see [`StreamSource`].
pub trait PodSource: Send + 'static {
    /// The source's name: the value of the annotation `kubernetes.io/config.source` on its pods.
    fn name(&self) -> &str;

    /// The source's updates. Dropping the stream stops the source. If the stream ends, its pods stay: a source that
    /// sends nothing is not an empty source.
    fn updates(self: Box<Self>) -> BoxStream<'static, SourceUpdate>;
}

/// One update of a source.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum SourceUpdate {
    /// All current pods of this source. A pod that is missing here has been removed. The first snapshot, even an empty
    /// one, marks the source as *seen*.
    Snapshot(Vec<Arc<Pod>>),
    /// This pod is new or has changed; the others are unchanged. Only after a first snapshot.
    Applied(Arc<Pod>),
    /// This pod was removed; the others are unchanged. Only after a first snapshot.
    Deleted(PodUid),
    /// The source cannot be read at present. Its last pods stay.
    Unavailable {
        /// The reason, for humans.
        message: String,
    },
    /// The source can be read again, without a change of its pods.
    Available,
    /// One item of the source is invalid and was skipped; the others are unaffected.
    Problem {
        /// The item: a file, a URL, an index in the list.
        item: String,
        /// The problem.
        message: String,
    },
}

/// A [`PodSource`] made from any stream of full snapshots.
///
/// The pods need a UID, and the defaults of the API: `kubelet_config::manifest::set_defaults` sets them.
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
    /// A source with this name that reads its snapshots from `snapshots`.
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

/// What to do with the pods of a [`PodUpdate`] (`types.PodOperation`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PodOperation {
    /// These are all pods of the source.
    Set,
    /// These pods are new.
    Add,
    /// These pods are to end gracefully: their `deletionTimestamp` was set.
    Delete,
    /// These pods are gone from the source.
    Remove,
    /// These pods changed in a way that affects how they run.
    Update,
    /// Only the status of these pods changed, and not by this agent.
    Reconcile,
}

/// One step of the merged stream (`types.PodUpdate`).
#[derive(Clone, Debug, PartialEq)]
pub struct PodUpdate {
    /// The operation.
    pub op: PodOperation,
    /// The pods. Empty in the first update of a source without pods: it marks the source as seen.
    pub pods: Vec<Arc<Pod>>,
    /// Their source.
    pub source: Arc<str>,
}

/// All sources, merged into one ordered stream of updates. Answers to the kubelet's `config.PodConfig`,
/// and is implemented by that type of `kubelet-config`.
#[async_trait]
pub trait PodUpdates: Send + 'static {
    /// The names of all sources.
    fn sources(&self) -> Vec<Arc<str>>;

    /// Reads the sources and sends the merged updates until `shutdown`. A full channel delays the sources; nothing is
    /// lost.
    async fn run(
        self: Box<Self>,
        updates: mpsc::Sender<PodUpdate>,
        shutdown: CancellationToken,
    ) -> Result<()>;
}

/// Which sources the sync loop has received updates from (`config.SourcesReady`). A cheap handle.
///
/// Before the first update of a source, it is unknown which pods it lists.
#[derive(Clone, Debug, Default)]
pub struct SourcesReady {
    expected: Arc<[Arc<str>]>,
    seen: Arc<Mutex<HashSet<Arc<str>>>>,
}

impl SourcesReady {
    /// No update was received from any of these sources.
    pub fn new(expected: impl IntoIterator<Item = Arc<str>>) -> Self {
        Self {
            expected: expected.into_iter().collect(),
            seen: Arc::default(),
        }
    }

    /// An update of this source was received.
    pub fn add(&self, source: &Arc<str>) {
        let mut seen = self.seen.lock();
        if !seen.contains(source) {
            seen.insert(source.clone());
        }
    }

    /// Whether an update of this source was received.
    pub fn is_ready(&self, source: &str) -> bool {
        self.seen.lock().contains(source)
    }

    /// The sources without an update so far.
    pub fn silent(&self) -> Vec<String> {
        let seen = self.seen.lock();
        let silent = self.expected.iter().filter(|source| !seen.contains(*source));
        silent.map(|source| source.to_string()).collect()
    }

    /// Whether every source has sent an update.
    pub fn all_ready(&self) -> bool {
        let seen = self.seen.lock();
        self.expected.iter().all(|source| seen.contains(source))
    }
}
