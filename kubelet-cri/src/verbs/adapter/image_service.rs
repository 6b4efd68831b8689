//! `ImageService` of the adapter. Without the capability `Images`, every image counts as present.

use std::time::Duration;

use async_trait::async_trait;

use super::{CriAdapter, Result, request};
use crate::error::Error;
use crate::services::ImageService;
use crate::v1;
use crate::verbs::ImageInfo;

#[async_trait]
impl ImageService for CriAdapter {
    async fn list_images(&self, request: v1::ListImagesRequest) -> Result<v1::ListImagesResponse> {
        let Some(images) = self.inner.runtime.images() else {
            return Ok(v1::ListImagesResponse::default());
        };
        let wanted = request
            .filter
            .and_then(|filter| filter.image)
            .map(|spec| spec.image);
        let wanted = wanted.filter(|image| !image.is_empty());
        let mut list = self
            .within("ListImages", "", Duration::ZERO, images.list())
            .await?;
        list.retain(|image| {
            let is_it = |name: &String| image.id == *name || image.names.contains(name);
            wanted.as_ref().is_none_or(is_it)
        });
        Ok(v1::ListImagesResponse {
            images: list.into_iter().map(to_cri).collect(),
        })
    }

    async fn image_status(&self, request: v1::ImageStatusRequest) -> Result<v1::ImageStatusResponse> {
        const CALL: &str = "ImageStatus";
        let image = named(CALL, request.image)?;
        let found = match self.inner.runtime.images() {
            None => Some(ImageInfo::named(image)),
            Some(images) => {
                self.within(CALL, &image, Duration::ZERO, images.status(&image))
                    .await?
            }
        };
        Ok(v1::ImageStatusResponse {
            image: found.map(to_cri),
            ..Default::default()
        })
    }

    async fn pull_image(&self, request: v1::PullImageRequest) -> Result<v1::PullImageResponse> {
        const CALL: &str = "PullImage";
        let image = named(CALL, request.image)?;
        let image_ref = match self.inner.runtime.images() {
            None => image,
            Some(images) => {
                let pulled = match request.auth.and_then(request::login) {
                    Some(login) => images.pull_with_login(&image, &login).await,
                    None => images.pull(&image).await,
                };
                pulled.map_err(|error| error.into_call(CALL, &image))?.id
            }
        };
        Ok(v1::PullImageResponse { image_ref })
    }

    async fn remove_image(&self, request: v1::RemoveImageRequest) -> Result<v1::RemoveImageResponse> {
        const CALL: &str = "RemoveImage";
        let image = named(CALL, request.image)?;
        if let Some(images) = self.inner.runtime.images() {
            let removed = self
                .within(CALL, &image, Duration::ZERO, images.remove(&image))
                .await;
            match removed {
                Err(error) if !error.is_not_found() => return Err(error),
                _ => {}
            }
        }
        Ok(v1::RemoveImageResponse {})
    }

    /// A Go kubelet and `critest` refuse a runtime that does not answer this call.
    async fn image_fs_info(&self, _request: v1::ImageFsInfoRequest) -> Result<v1::ImageFsInfoResponse> {
        const CALL: &str = "ImageFsInfo";
        let containers = self.containers_usage(CALL).await?;
        let images = match self.images_usage(CALL).await? {
            Some(images) => images,
            // One file system has containers and images.
            None => containers.clone(),
        };
        Ok(v1::ImageFsInfoResponse {
            image_filesystems: vec![images],
            container_filesystems: vec![containers],
        })
    }
}

fn named(call: &'static str, spec: Option<v1::ImageSpec>) -> Result<String> {
    let image = spec.map(|spec| spec.image).filter(|image| !image.is_empty());
    image.ok_or_else(|| Error::invalid_argument(call, "", "the image has no name"))
}

fn to_cri(image: ImageInfo) -> v1::Image {
    v1::Image {
        id: image.id,
        repo_tags: image.names,
        // A kubelet refuses an image of size 0. An image of which only the name is known has the size of one byte.
        size: image.size.max(1),
        uid: image.uid.map(|value| v1::Int64Value { value }),
        pinned: image.pinned,
        ..Default::default()
    }
}
