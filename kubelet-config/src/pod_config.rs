//! The mux: any number of sources, one ordered stream of updates.

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use futures::stream::{self, BoxStream, SelectAll, StreamExt};
use k8s_openapi::api::core::v1::Pod;
use kubelet_core::{Clock, EventRecorder, LogEvents, PodSource, PodUpdate, PodUpdates, SourceUpdate};
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;

use crate::{Error, PodStorage, Result, SourceStatus};

/// How changes are sent (`PodConfigNotificationMode` of the kubelet's `config` package).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PodConfigNotificationMode {
    /// Any change sends `SET` with all pods of the source.
    Snapshot,
    /// Added and removed pods send `SET` with all pods of the source. Changed pods send `UPDATE`, `DELETE` or
    /// `RECONCILE`.
    SnapshotAndUpdates,
    /// A change sends only the changed pods, as `ADD`, `UPDATE`, `DELETE`, `REMOVE` or `RECONCILE`. The kubelet
    /// uses this mode.
    #[default]
    Incremental,
}

/// Merges any number of [`PodSource`]s into one ordered stream of [`PodUpdate`]s. Answers to the kubelet's
/// `config.PodConfig`.
///
/// ```
/// use std::sync::Arc;
/// use futures::stream;
/// use kubelet_config::{PodConfig, StreamSource};
///
/// let config = PodConfig::builder()
///     .source(StreamSource::new("mine", stream::iter([vec![Arc::new(Default::default())]])))
///     .build()?;
/// # Ok::<(), kubelet_config::Error>(())
/// ```
pub struct PodConfig {
    sources: Vec<(Arc<str>, Box<dyn PodSource>)>,
    storage: Arc<Mutex<PodStorage>>,
    sync: Arc<Notify>,
}

impl PodConfig {
    /// Begins with no sources.
    pub fn builder() -> PodConfigBuilder {
        PodConfigBuilder::default()
    }

    /// A handle to read the state of the sources and their pods. It works while the config runs.
    pub fn handle(&self) -> PodConfigHandle {
        PodConfigHandle {
            sources: self.sources.iter().map(|(name, _)| name.clone()).collect(),
            storage: self.storage.clone(),
            sync: self.sync.clone(),
        }
    }

    /// Reads all sources and sends the merged updates, until `shutdown` is cancelled or the receiver is
    /// dropped. Sources that end leave their pods as they are.
    ///
    /// While `updates` is full, no source is read: no update is lost, and none is buffered here. The sources stop
    /// when this call ends.
    ///
    /// # Errors
    /// None at present. For the problems of a source see [`PodConfigHandle::source_status`].
    ///
    /// # Cancel safety
    /// Dropping the future stops the sources. Then only a part of the last update of a source may have been sent.
    pub async fn run(
        self,
        updates: mpsc::Sender<PodUpdate>,
        shutdown: CancellationToken,
    ) -> kubelet_core::Result<()> {
        let Self {
            sources,
            storage,
            sync,
        } = self;
        let mut words: SelectAll<BoxStream<'static, (Arc<str>, Option<SourceUpdate>)>> = sources
            .into_iter()
            .map(|(name, source)| {
                let ended = stream::once(async { None });
                let words = source.updates().map(Some).chain(ended);
                words.map(move |word| (name.clone(), word)).boxed()
            })
            .collect();
        let relay = async {
            let mut ended = false;
            loop {
                let steps = tokio::select! {
                    biased;
                    () = sync.notified() => storage.lock().sync(),
                    word = words.next(), if !ended => match word {
                        Some((source, Some(word))) => storage.lock().merge(&source, word),
                        Some((source, None)) => {
                            storage.lock().end(&source);
                            continue;
                        }
                        None => {
                            ended = true;
                            continue;
                        }
                    },
                };
                for step in steps {
                    if updates.send(step).await.is_err() {
                        return;
                    }
                }
            }
        };
        tokio::select! {
            biased;
            () = shutdown.cancelled() => {}
            () = relay => {}
            () = updates.closed() => {}
        }
        Ok(())
    }
}

#[async_trait]
impl PodUpdates for PodConfig {
    fn sources(&self) -> Vec<Arc<str>> {
        self.sources.iter().map(|(name, _)| name.clone()).collect()
    }

    async fn run(
        self: Box<Self>,
        updates: mpsc::Sender<PodUpdate>,
        shutdown: CancellationToken,
    ) -> kubelet_core::Result<()> {
        PodConfig::run(*self, updates, shutdown).await
    }
}

/// Reads the state of a [`PodConfig`]. Cheap to clone.
#[derive(Clone)]
pub struct PodConfigHandle {
    sources: Arc<[Arc<str>]>,
    storage: Arc<Mutex<PodStorage>>,
    sync: Arc<Notify>,
}

impl PodConfigHandle {
    /// All pods of all sources (`MergedState`).
    pub fn merged_state(&self) -> Vec<Arc<Pod>> {
        self.storage.lock().merged_state()
    }

    /// Sends all pods again (`Sync`): one `SET` for each seen source, in order with the other updates. It is for a
    /// consumer that lost updates. The kubelet's sync loop does not accept `SET`.
    pub fn sync(&self) {
        self.sync.notify_one();
    }

    /// The state of a source.
    pub fn source_status(&self, source: &str) -> SourceStatus {
        self.storage.lock().source_status(source)
    }

    /// Whether every source has listed all its pods at least once (`SeenAllSources`).
    pub fn seen_all_sources(&self) -> bool {
        let storage = self.storage.lock();
        self.sources
            .iter()
            .all(|source| storage.source_status(source).is_seen())
    }
}

/// Builds a [`PodConfig`].
#[derive(Default)]
pub struct PodConfigBuilder {
    sources: Vec<Box<dyn PodSource>>,
    mode: PodConfigNotificationMode,
    recorder: Option<Arc<dyn EventRecorder>>,
    clock: Clock,
}

impl PodConfigBuilder {
    /// Whether it has a source.
    pub fn has_sources(&self) -> bool {
        !self.sources.is_empty()
    }

    /// Adds a source. Its name must be unique.
    #[must_use]
    pub fn source(mut self, source: impl PodSource) -> Self {
        self.sources.push(Box::new(source));
        self
    }

    /// Adds the sources of static pods that a configuration names: `staticPodPath` and `staticPodURL`, for the node of this
    /// name (`makePodSourceConfig`).
    ///
    /// # Errors
    ///
    /// [`Error::Misconfigured`] if the URL or its headers cannot be used.
    #[cfg(all(feature = "file", feature = "http"))]
    pub fn static_pods(mut self, config: &crate::KubeletConfiguration, node_name: &str) -> Result<Self> {
        use crate::{FileSource, HttpSource};

        if !config.static_pod_path.is_empty() {
            let source = FileSource::new(&config.static_pod_path, node_name);
            let frequency = config.file_check_frequency.try_into().unwrap_or_default();
            self = self.source(source.check_frequency(frequency));
        }
        if !config.static_pod_url.is_empty() {
            let source = HttpSource::new(&config.static_pod_url, node_name)?;
            let frequency = config.http_check_frequency.try_into().unwrap_or_default();
            let source = source.headers(&config.static_pod_url_header)?;
            self = self.source(source.check_frequency(frequency));
        }
        Ok(self)
    }

    /// Adds a source with this name that gets its updates from a channel (`Channel`). The channel holds one update;
    /// the next `send` waits until that one is merged. The source ends when all senders are dropped.
    ///
    /// ```
    /// use kubelet_config::{PodConfig, SourceUpdate};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let (config, mine) = PodConfig::builder().channel("mine");
    /// let config = config.build()?;
    /// mine.send(SourceUpdate::Snapshot(vec![])).await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn channel(self, source: impl Into<String>) -> (Self, mpsc::Sender<SourceUpdate>) {
        let (sender, words) = mpsc::channel(1);
        let name = source.into();
        (self.source(ChannelSource { name, words }), sender)
    }

    /// How changes are sent. Default: [`Incremental`](PodConfigNotificationMode::Incremental).
    #[must_use]
    pub fn mode(mut self, mode: PodConfigNotificationMode) -> Self {
        self.mode = mode;
        self
    }

    /// The recorder of events about skipped pods. Default: [`LogEvents`].
    #[must_use]
    pub fn recorder(mut self, recorder: Arc<dyn EventRecorder>) -> Self {
        self.recorder = Some(recorder);
        self
    }

    /// What dates the annotation `kubernetes.io/config.seen`. Default: the system's clock.
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// The finished config.
    ///
    /// # Errors
    /// [`Error::Misconfigured`] if a source has no name or two have the same; all such problems at once.
    pub fn build(self) -> Result<PodConfig> {
        let mut problems = Vec::new();
        let mut names = BTreeSet::new();
        let mut sources = Vec::with_capacity(self.sources.len());
        for (index, source) in self.sources.into_iter().enumerate() {
            let name = Arc::<str>::from(source.name());
            if name.is_empty() {
                problems.push(format!("the pod source at index {index} has no name"));
            } else if !names.insert(name.clone()) {
                problems.push(format!("two pod sources are named {name:?}"));
            }
            sources.push((name, source));
        }
        if !problems.is_empty() {
            return Err(Error::Misconfigured { problems });
        }
        let recorder = self.recorder.unwrap_or_else(|| Arc::new(LogEvents));
        let storage = PodStorage::new(self.mode, recorder, self.clock);
        Ok(PodConfig {
            sources,
            storage: Arc::new(Mutex::new(storage)),
            sync: Arc::default(),
        })
    }
}

/// A source that gets its updates from a channel.
struct ChannelSource {
    name: String,
    words: mpsc::Receiver<SourceUpdate>,
}

impl PodSource for ChannelSource {
    fn name(&self) -> &str {
        &self.name
    }

    fn updates(self: Box<Self>) -> BoxStream<'static, SourceUpdate> {
        let mut words = self.words;
        stream::poll_fn(move |context| words.poll_recv(context)).boxed()
    }
}
