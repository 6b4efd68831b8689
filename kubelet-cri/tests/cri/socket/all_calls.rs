//! Every call of the protocol, with every field of its messages.

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use futures::TryStreamExt;
use kubelet_cri::v1::*;
use kubelet_cri::{Code, Error, ImageService, RuntimeService};
use prost::Message;

use super::calls::{image_calls, runtime_calls};
use super::sample::{POOL, sample};
use super::toy::{Do, Served, toy_and_client};

type Result<T> = std::result::Result<T, Error>;

#[tokio::test]
async fn every_call_brings_every_field_there_and_back() {
    let (_folder, toy, served, client) = toy_and_client().await;
    let mut called = BTreeSet::new();

    macro_rules! call_all {
        ($service:ident $($kind:ident $method:ident $call:ident($request:ident) -> $response:ident;)*) => {
            $({
                let sent = sample(stringify!($request));
                let answer = sample(stringify!($response));
                toy.on(stringify!($call), Do::Answer(answer.clone()));

                let request = $request::decode(sent.as_slice()).unwrap();
                let got = $service::$method(&client, request).await.unwrap();

                for got in call_all!(@$kind got) {
                    assert_eq!(got.encode_to_vec(), answer, "the answer of {}", stringify!($call));
                }
                assert_eq!(toy.requests(), [(stringify!($call), sent)], "the request of {}", stringify!($call));
                called.insert(concat!("runtime.v1.", stringify!($service), ".", stringify!($call)).to_string());
            })*
        };
        (@unary $got:ident) => { [$got] };
        (@stream $got:ident) => {{
            let got: Vec<_> = $got.try_collect().await.unwrap();
            assert_eq!(got.len(), 2);
            got
        }};
    }
    runtime_calls!(call_all);
    image_calls!(call_all);

    let all: BTreeSet<String> = POOL
        .services()
        .flat_map(|s| s.methods().map(|m| m.full_name().to_string()).collect::<Vec<_>>())
        .collect();
    assert_eq!(called, all);
    assert_eq!(all.len(), 41);
    served.stop().await;
}

/// The required methods of a runtime.
struct Least;

macro_rules! least_services {
    ($($service:ident { $($method:ident($request:ident) -> $response:ident;)* })*) => {
        $(#[async_trait]
        impl $service for Least {
            $(async fn $method(&self, _: $request) -> Result<$response> {
                Ok($response::default())
            })*
        })*
    };
}

least_services! {
    RuntimeService {
        version(VersionRequest) -> VersionResponse;
        run_pod_sandbox(RunPodSandboxRequest) -> RunPodSandboxResponse;
        stop_pod_sandbox(StopPodSandboxRequest) -> StopPodSandboxResponse;
        remove_pod_sandbox(RemovePodSandboxRequest) -> RemovePodSandboxResponse;
        pod_sandbox_status(PodSandboxStatusRequest) -> PodSandboxStatusResponse;
        list_pod_sandbox(ListPodSandboxRequest) -> ListPodSandboxResponse;
        create_container(CreateContainerRequest) -> CreateContainerResponse;
        start_container(StartContainerRequest) -> StartContainerResponse;
        stop_container(StopContainerRequest) -> StopContainerResponse;
        remove_container(RemoveContainerRequest) -> RemoveContainerResponse;
        list_containers(ListContainersRequest) -> ListContainersResponse;
        container_status(ContainerStatusRequest) -> ContainerStatusResponse;
        status(StatusRequest) -> StatusResponse;
    }
    ImageService {
        list_images(ListImagesRequest) -> ListImagesResponse;
        image_status(ImageStatusRequest) -> ImageStatusResponse;
        pull_image(PullImageRequest) -> PullImageResponse;
        remove_image(RemoveImageRequest) -> RemoveImageResponse;
    }
}

#[tokio::test]
async fn what_a_runtime_leaves_out_is_unimplemented() {
    let folder = tempfile::tempdir().unwrap();
    let least = Arc::new(Least);
    let served = Served::start_services(least.clone(), least, folder.path().join("cri.sock")).await;
    let client = kubelet_cri::CriClient::builder(served.path.to_str().unwrap())
        .connect_lazy()
        .unwrap();
    let mut unimplemented = 0;

    macro_rules! call_all {
        ($service:ident $($kind:ident $method:ident $call:ident($request:ident) -> $response:ident;)*) => {
            $({
                let direct = $service::$method(&Least, $request::default()).await;
                let remote = $service::$method(&client, $request::default()).await;
                // A stream may report the error as its first item.
                let remote = call_all!(@$kind remote);
                if let Err(error) = direct {
                    assert!(error.is_unimplemented(), "{error}");
                    assert_eq!(error.call_name(), Some(stringify!($call)));
                    let remote = remote.err().unwrap();
                    assert_eq!((remote.code(), remote.call_name()), (Code::Unimplemented, Some(stringify!($call))));
                    assert_eq!(remote.message(), error.message());
                    unimplemented += 1;
                } else if let Err(error) = remote {
                    // An empty answer is invalid here, but it shows that the call exists.
                    assert!(matches!(error, Error::InvalidResponse { .. }), "{error}");
                }
            })*
        };
        (@unary $remote:ident) => { $remote };
        (@stream $remote:ident) => {
            match $remote {
                Ok(stream) => stream.try_collect::<Vec<_>>().await,
                Err(error) => Err(error),
            }
        };
    }
    runtime_calls!(call_all);
    image_calls!(call_all);
    assert_eq!(unimplemented, 41 - 17);
    served.stop().await;
}
