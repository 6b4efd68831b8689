//! Images.

use kubelet_cri::v1;

use crate::conformance::bench::Bench;
use crate::conformance::program::Program;
use crate::conformance::verdict::{Outcome, Seen, ensure};

fn spec(image: &str) -> Option<v1::ImageSpec> {
    Some(v1::ImageSpec {
        image: image.to_owned(),
        ..Default::default()
    })
}

async fn status(bench: &Bench, image: &str) -> Outcome<Option<v1::Image>> {
    let services = bench.services();
    let request = v1::ImageStatusRequest {
        image: spec(image),
        verbose: false,
    };
    Ok(bench
        .answer("ImageStatus", services.images.image_status(request))
        .await??
        .image)
}

pub(super) async fn an_image_at_hand_has_id_and_size(bench: &mut Bench) -> Outcome {
    let image = bench.workload(&Program::Forever).image;
    let found = status(bench, &image).await?;
    let found = found.ok_or_else(|| {
        Seen::new(format!(
            "there is no {image:?}, which the fixture's workloads name"
        ))
    })?;
    ensure!(
        !found.id.is_empty() && found.size > 0,
        "image {image:?} has no id or no size: {found:?}"
    );
    let by_id = status(bench, &found.id).await?;
    let same = by_id.as_ref().is_some_and(|by_id| by_id.id == found.id);
    ensure!(
        same,
        "image {image:?} is {found:?}; asked for by its id: {by_id:?}"
    );
    Ok(())
}

pub(super) async fn what_is_listed_is_at_hand(bench: &mut Bench) -> Outcome {
    let services = bench.services();
    let list = services.images.list_images(v1::ListImagesRequest::default());
    for listed in bench.answer("ListImages", list).await??.images {
        let found = status(bench, &listed.id).await?;
        ensure!(
            found.is_some(),
            "the list has {listed:?}; asked for by its id there is none"
        );
    }
    Ok(())
}

pub(super) async fn removal_of_what_is_not_there_is_a_success(bench: &mut Bench) -> Outcome {
    let services = bench.services();
    let request = v1::RemoveImageRequest {
        image: spec("localhost/there-is-no-such-image:1"),
    };
    bench
        .answer("RemoveImage", services.images.remove_image(request))
        .await??;
    Ok(())
}
