//! Lists that may be too long for one answer: a gRPC message has at most 16 MiB, and a node that is full of dead
//! containers must still be cleaned up.

use std::sync::Arc;

use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use parking_lot::Mutex;
use tokio::time::{Duration, Instant};

use kubelet_cri::{Code, Error, ImageService, ListedContainer, ListedSandbox, RuntimeService, v1};

/// How long a list that was too long is requested in parts before it is tried as a whole again.
const TRY_WHOLE_AGAIN: Duration = Duration::from_secs(5 * 60);
/// How many lists of single sandboxes are requested in parallel.
const PARALLEL_LISTS: usize = 8;

type Result<T> = std::result::Result<T, Error>;

/// The lists of a runtime. A list that is too long for one answer is requested as a stream (`StreamContainers`, CRI of
/// 1.36). If the runtime has no streams, it is requested in parts: containers by sandbox, sandboxes by state.
pub(crate) struct Lists {
    runtime: Arc<dyn RuntimeService>,
    images: Arc<dyn ImageService>,
    containers: Way,
    sandboxes: Way,
    all_images: Way,
}

/// How a list is requested.
#[derive(Default)]
struct Way(Mutex<Asked>);

#[derive(Clone, Copy, Default)]
enum Asked {
    #[default]
    Whole,
    /// It is too long for one answer, and the runtime has streams.
    Streamed,
    /// The runtime has no streams; this is the time of the last try as a whole.
    InParts(Instant),
}

impl Way {
    /// The way to try first.
    fn first(&self) -> Asked {
        match *self.0.lock() {
            Asked::InParts(since) if since.elapsed() >= TRY_WHOLE_AGAIN => Asked::Whole,
            asked => asked,
        }
    }

    fn is(&self, asked: Asked) {
        *self.0.lock() = asked;
    }
}

impl Lists {
    pub(crate) fn new(runtime: Arc<dyn RuntimeService>, images: Arc<dyn ImageService>) -> Self {
        Self {
            runtime,
            images,
            containers: Way::default(),
            sandboxes: Way::default(),
            all_images: Way::default(),
        }
    }

    /// `ListContainers`
    pub(crate) async fn containers(&self, filter: v1::ContainerFilter) -> Result<Vec<v1::Container>> {
        let mut asked = self.containers.first();
        if let Asked::Whole = asked {
            match self.whole_containers(filter.clone()).await {
                Err(error) if is_too_large(&error) => {
                    tracing::warn!(%error, "the list of containers is too long for one answer; requesting it in parts");
                    asked = Asked::Streamed;
                }
                listed => {
                    self.containers.is(Asked::Whole);
                    return listed;
                }
            }
        }
        if let Asked::Streamed = asked {
            let request = v1::StreamContainersRequest {
                filter: Some(filter.clone()),
            };
            let stream = self.runtime.stream_containers(request).await;
            if let Some(listed) = collect(stream, |part| part.containers).await? {
                self.containers.is(Asked::Streamed);
                return Ok(listed);
            }
            self.containers.is(Asked::InParts(Instant::now()));
        }
        self.containers_by_sandbox(filter).await
    }

    /// `ListContainers` of all, for a relist.
    pub(crate) async fn listed_containers(&self) -> Result<Vec<ListedContainer>> {
        if let Asked::Whole = self.containers.first() {
            let request = v1::ListContainersRequest::default();
            match self.runtime.listed_containers(request).await {
                // The code below finds this out again, and later lists use another way.
                Err(error) if is_too_large(&error) => {}
                listed => return listed,
            }
        }
        let listed = self.containers(v1::ContainerFilter::default()).await?;
        Ok(listed.into_iter().map(Into::into).collect())
    }

    async fn whole_containers(&self, filter: v1::ContainerFilter) -> Result<Vec<v1::Container>> {
        let request = v1::ListContainersRequest { filter: Some(filter) };
        Ok(self.runtime.list_containers(request).await?.containers)
    }

    async fn containers_by_sandbox(&self, filter: v1::ContainerFilter) -> Result<Vec<v1::Container>> {
        // A container that is not running may be in a sandbox of any state.
        let of_pod = v1::PodSandboxFilter {
            label_selector: filter.label_selector.clone(),
            ..Default::default()
        };
        let sandboxes = self.sandboxes(of_pod).await?;
        let lists = futures::stream::iter(sandboxes).map(|sandbox| {
            let filter = v1::ContainerFilter {
                pod_sandbox_id: sandbox.id,
                ..filter.clone()
            };
            self.whole_containers(filter)
        });
        let parts: Vec<_> = lists.buffer_unordered(PARALLEL_LISTS).try_collect().await?;
        Ok(parts.into_iter().flatten().collect())
    }

    /// `ListPodSandbox`
    pub(crate) async fn sandboxes(&self, filter: v1::PodSandboxFilter) -> Result<Vec<v1::PodSandbox>> {
        let mut asked = self.sandboxes.first();
        if let Asked::Whole = asked {
            match self.whole_sandboxes(filter.clone()).await {
                Err(error) if is_too_large(&error) => {
                    tracing::warn!(%error, "the list of sandboxes is too long for one answer; requesting it in parts");
                    asked = Asked::Streamed;
                }
                listed => {
                    self.sandboxes.is(Asked::Whole);
                    return listed;
                }
            }
        }
        if let Asked::Streamed = asked {
            let request = v1::StreamPodSandboxesRequest {
                filter: Some(filter.clone()),
            };
            let stream = self.runtime.stream_pod_sandboxes(request).await;
            if let Some(listed) = collect(stream, |part| part.pod_sandboxes).await? {
                self.sandboxes.is(Asked::Streamed);
                return Ok(listed);
            }
            self.sandboxes.is(Asked::InParts(Instant::now()));
        }
        self.sandboxes_by_state(filter).await
    }

    /// `ListPodSandbox` of all, for a relist.
    pub(crate) async fn listed_sandboxes(&self) -> Result<Vec<ListedSandbox>> {
        if let Asked::Whole = self.sandboxes.first() {
            let request = v1::ListPodSandboxRequest::default();
            match self.runtime.listed_sandboxes(request).await {
                Err(error) if is_too_large(&error) => {}
                listed => return listed,
            }
        }
        let listed = self.sandboxes(v1::PodSandboxFilter::default()).await?;
        Ok(listed.into_iter().map(Into::into).collect())
    }

    async fn whole_sandboxes(&self, filter: v1::PodSandboxFilter) -> Result<Vec<v1::PodSandbox>> {
        let request = v1::ListPodSandboxRequest { filter: Some(filter) };
        Ok(self.runtime.list_pod_sandbox(request).await?.items)
    }

    async fn sandboxes_by_state(&self, filter: v1::PodSandboxFilter) -> Result<Vec<v1::PodSandbox>> {
        if filter.state.is_some() {
            return self.whole_sandboxes(filter).await;
        }
        let mut all = Vec::new();
        for state in [
            v1::PodSandboxState::SandboxReady,
            v1::PodSandboxState::SandboxNotready,
        ] {
            let of_state = v1::PodSandboxFilter {
                state: Some(v1::PodSandboxStateValue { state: state as i32 }),
                ..filter.clone()
            };
            all.extend(self.whole_sandboxes(of_state).await?);
        }
        // A sandbox may have changed its state in between.
        all.sort_by(|a, b| a.id.cmp(&b.id));
        all.dedup_by(|a, b| a.id == b.id);
        Ok(all)
    }

    /// `ListImages`
    pub(crate) async fn images(&self) -> Result<Vec<v1::Image>> {
        let mut problem = Error::unimplemented("StreamImages");
        if let Asked::Whole = self.all_images.first() {
            match self.images.list_images(v1::ListImagesRequest::default()).await {
                Ok(listed) => return Ok(listed.images),
                Err(error) if is_too_large(&error) => problem = error,
                Err(error) => return Err(error),
            }
        }
        let stream = self
            .images
            .stream_images(v1::StreamImagesRequest::default())
            .await;
        let listed = collect(stream, |part| part.images).await?;
        self.all_images.is(match listed {
            Some(_) => Asked::Streamed,
            None => Asked::Whole,
        });
        listed.ok_or(problem)
    }
}

/// All items of a stream; `None` if the runtime has no such stream, which it may report only when the stream is read.
async fn collect<P, T>(
    stream: Result<BoxStream<'static, Result<P>>>,
    items: impl Fn(P) -> Vec<T>,
) -> Result<Option<Vec<T>>> {
    let read = async { stream?.try_collect::<Vec<P>>().await };
    match read.await {
        Ok(parts) => Ok(Some(parts.into_iter().flat_map(items).collect())),
        Err(error) if error.is_unimplemented() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether the error is that the answer is too large, in the words of grpc-go or tonic.
fn is_too_large(error: &Error) -> bool {
    let message = error.message();
    matches!(error.code(), Code::ResourceExhausted | Code::OutOfRange)
        && (message.contains("larger than max") || message.contains("too large"))
}
