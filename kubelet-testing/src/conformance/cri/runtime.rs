//! The runtime itself.

use kubelet_cri::v1;

use crate::conformance::bench::Bench;
use crate::conformance::verdict::{Outcome, Seen, ensure};

pub(super) async fn it_has_a_name_and_a_version(bench: &mut Bench) -> Outcome {
    let services = bench.services();
    let request = v1::VersionRequest {
        version: "0.1.0".to_owned(),
    };
    let version = bench
        .answer("Version", services.runtime.version(request))
        .await??;
    let name = &version.runtime_name;
    let one_word = !name.is_empty() && !name.contains(|c: char| c.is_whitespace() || c == ':' || c == '/');
    ensure!(
        one_word,
        "its name {name:?} cannot be the first part of a container id"
    );
    ensure!(
        !version.runtime_version.is_empty(),
        "it has no version: {version:?}"
    );
    ensure!(
        version.runtime_api_version == "v1",
        "its API version is not v1: {version:?}"
    );
    Ok(())
}

pub(super) async fn it_says_that_it_is_ready(bench: &mut Bench) -> Outcome {
    let services = bench.services();
    let request = v1::StatusRequest { verbose: false };
    let status = bench
        .answer("Status", services.runtime.status(request))
        .await??
        .status;
    let status = status.ok_or_else(|| Seen::new("Status gave no status"))?;
    for wanted in ["RuntimeReady", "NetworkReady"] {
        let found = status
            .conditions
            .iter()
            .find(|condition| condition.r#type == wanted);
        let ready = found.is_some_and(|condition| condition.status);
        ensure!(ready, "its condition {wanted} is {found:?}");
    }
    Ok(())
}

pub(super) async fn it_says_what_is_used_on_disk(bench: &mut Bench) -> Outcome {
    let services = bench.services();
    let info = services.images.image_fs_info(v1::ImageFsInfoRequest {});
    let info = bench.answer("ImageFsInfo", info).await??;
    ensure!(
        !info.image_filesystems.is_empty(),
        "no file system of images: {info:?}"
    );
    for usage in info.image_filesystems.iter().chain(&info.container_filesystems) {
        let folder = usage.fs_id.as_ref().map_or("", |id| &id.mountpoint);
        ensure!(!folder.is_empty(), "a file system without a folder: {usage:?}");
        ensure!(
            usage.used_bytes.is_some() && usage.timestamp > 0,
            "nothing was measured: {usage:?}"
        );
    }
    Ok(())
}
