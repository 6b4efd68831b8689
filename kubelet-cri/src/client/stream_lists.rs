//! Lists that come as streams (the gate `CRIListStreaming`), so that they may be longer than one message.

use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use futures::TryStreamExt;
use futures::stream::BoxStream;

use super::CriClient;
use crate::error::Error;
use crate::services::{ImageService, RuntimeService};
use crate::v1::*;

type Batches<B> = Result<BoxStream<'static, Result<B, Error>>, Error>;

/// A request of a list that a runtime may also send as a stream.
#[async_trait]
pub(super) trait StreamedList: Sync {
    /// The call for the stream.
    const STREAM: &'static str;
    type Item: Send;
    type Response;
    type Batch: Send + 'static;

    /// Whether the lists of its service are requested as streams.
    fn is_on(client: &CriClient) -> &AtomicBool;
    async fn batches(&self, client: &CriClient) -> Batches<Self::Batch>;
    fn items(batch: Self::Batch) -> Vec<Self::Item>;
    fn response(&self, items: Vec<Self::Item>) -> Self::Response;
}

macro_rules! streamed {
    ($($is_on:ident: $list:ident { $($filter:ident)? } -> $response:ident { $items:ident: $item:ident },
       $service:ident::$method:ident $call:literal $request:ident -> $batch:ident { $part:ident };)*) => { $(
        #[async_trait]
        impl StreamedList for $list {
            const STREAM: &'static str = $call;
            type Item = $item;
            type Response = $response;
            type Batch = $batch;

            fn is_on(client: &CriClient) -> &AtomicBool {
                &client.$is_on
            }

            async fn batches(&self, client: &CriClient) -> Batches<$batch> {
                let request = $request { $($filter: self.$filter.clone())? };
                $service::$method(client, request).await
            }

            fn items(batch: $batch) -> Vec<$item> {
                batch.$part
            }

            fn response(&self, $items: Vec<$item>) -> $response {
                $response { $items }
            }
        }
    )* };
}

streamed! {
    stream_lists: ListPodSandboxRequest { filter } -> ListPodSandboxResponse { items: PodSandbox },
        RuntimeService::stream_pod_sandboxes "StreamPodSandboxes" StreamPodSandboxesRequest -> StreamPodSandboxesResponse { pod_sandboxes };
    stream_lists: ListContainersRequest { filter } -> ListContainersResponse { containers: Container },
        RuntimeService::stream_containers "StreamContainers" StreamContainersRequest -> StreamContainersResponse { containers };
    stream_lists: ListContainerStatsRequest { filter } -> ListContainerStatsResponse { stats: ContainerStats },
        RuntimeService::stream_container_stats "StreamContainerStats" StreamContainerStatsRequest -> StreamContainerStatsResponse { container_stats };
    stream_lists: ListPodSandboxStatsRequest { filter } -> ListPodSandboxStatsResponse { stats: PodSandboxStats },
        RuntimeService::stream_pod_sandbox_stats "StreamPodSandboxStats" StreamPodSandboxStatsRequest -> StreamPodSandboxStatsResponse { pod_sandbox_stats };
    stream_lists: ListPodSandboxMetricsRequest {} -> ListPodSandboxMetricsResponse { pod_metrics: PodSandboxMetrics },
        RuntimeService::stream_pod_sandbox_metrics "StreamPodSandboxMetrics" StreamPodSandboxMetricsRequest -> StreamPodSandboxMetricsResponse { pod_sandbox_metrics };
    stream_images: ListImagesRequest { filter } -> ListImagesResponse { images: Image },
        ImageService::stream_images "StreamImages" StreamImagesRequest -> StreamImagesResponse { images };
}

impl CriClient {
    /// All items of the list, read from a stream. `None` if lists are not to be streamed, or if the service has no
    /// streams: its later lists are not requested as streams any more.
    ///
    /// An error in the middle of a stream is an error of the list, and the next list is a stream again.
    pub(super) async fn streamed<Q: StreamedList>(&self, list: &Q) -> Result<Option<Vec<Q::Item>>, Error> {
        if !Q::is_on(self).load(Ordering::Relaxed) {
            return Ok(None);
        }
        let batches = async { list.batches(self).await?.try_collect::<Vec<_>>().await };
        match batches.await {
            Ok(batches) => Ok(Some(batches.into_iter().flat_map(Q::items).collect())),
            // A runtime may report this only when the stream is read.
            Err(error) if error.is_unimplemented() => {
                Q::is_on(self).store(false, Ordering::Relaxed);
                tracing::info!("{} not implemented, falling back to whole lists", Q::STREAM);
                Ok(None)
            }
            Err(error) => {
                tracing::error!(%error, "{} recv failed", Q::STREAM);
                Err(error)
            }
        }
    }
}
