//! `ImageService`

use async_trait::async_trait;
use futures::stream::BoxStream;
use kubelet_cri::{Error, ImageService, v1};
use tokio::time::sleep;

use super::lists::batches;
use super::stats::info;
use super::{Call, MemoryCri, Subject};

type Result<T> = std::result::Result<T, Error>;
type Stream<T> = BoxStream<'static, Result<T>>;

#[async_trait]
impl ImageService for MemoryCri {
    /// Lists all images: containerd ignores the filter.
    async fn list_images(&self, request: v1::ListImagesRequest) -> Result<v1::ListImagesResponse> {
        let call = Call::ListImages;
        self.serve(call, Subject::default(), &request, async {
            self.latency(call).await;
            let images = self.inner.state.lock().images.list();
            Ok(v1::ListImagesResponse { images })
        })
        .await
    }

    async fn stream_images(
        &self,
        request: v1::StreamImagesRequest,
    ) -> Result<Stream<v1::StreamImagesResponse>> {
        let call = Call::StreamImages;
        self.serve(call, Subject::default(), &request, async {
            self.latency(call).await;
            let images = self.inner.state.lock().images.list();
            Ok(batches(images, |images| v1::StreamImagesResponse { images }))
        })
        .await
    }

    async fn image_status(&self, request: v1::ImageStatusRequest) -> Result<v1::ImageStatusResponse> {
        let call = Call::ImageStatus;
        let about = Subject::image(request.image.as_ref());
        self.serve(call, about.clone(), &request, async {
            self.latency(call).await;
            let state = self.inner.state.lock();
            let image = state.images.find(call.name(), &about.image)?;
            let image = image.map(|image| image.message());
            let info = info(request.verbose && image.is_some(), "{}".to_owned());
            Ok(v1::ImageStatusResponse { image, info })
        })
        .await
    }

    async fn pull_image(&self, request: v1::PullImageRequest) -> Result<v1::PullImageResponse> {
        let call = Call::PullImage;
        let about = Subject::image(request.image.as_ref());
        self.serve(call, about, &request, async {
            let pull = self.inner.state.lock().images.pull(&request);
            let takes = pull.as_ref().ok().and_then(|pull| pull.takes);
            match takes {
                None => self.latency(call).await,
                Some(takes) if takes.is_zero() => {}
                Some(takes) => sleep(takes).await,
            }
            let image_ref = self.inner.state.lock().images.pulled(pull?);
            Ok(v1::PullImageResponse { image_ref })
        })
        .await
    }

    async fn remove_image(&self, request: v1::RemoveImageRequest) -> Result<v1::RemoveImageResponse> {
        let call = Call::RemoveImage;
        let about = Subject::image(request.image.as_ref());
        self.serve(call, about.clone(), &request, async {
            self.latency(call).await;
            self.inner.state.lock().images.remove(call.name(), &about.image)?;
            Ok(v1::RemoveImageResponse {})
        })
        .await
    }

    async fn image_fs_info(&self, request: v1::ImageFsInfoRequest) -> Result<v1::ImageFsInfoResponse> {
        let call = Call::ImageFsInfo;
        self.serve(call, Subject::default(), &request, async {
            self.latency(call).await;
            Ok(self.filesystems())
        })
        .await
    }
}
