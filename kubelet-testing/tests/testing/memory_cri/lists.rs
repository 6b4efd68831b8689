//! Lists: their order, their filters, their batches.

use futures::TryStreamExt;
use kubelet_cri::{ImageService, RuntimeService, v1};
use kubelet_testing::MemoryCri;
use kubelet_testing::memory_cri::Latency;

use super::rig::*;

async fn containers(runtime: &MemoryCri, filter: v1::ContainerFilter) -> Vec<String> {
    let request = v1::ListContainersRequest { filter: Some(filter) };
    let list = runtime.list_containers(request).await.unwrap().containers;
    list.into_iter()
        .map(|container| container.metadata.unwrap())
        .map(|metadata| format!("{}#{}", metadata.name, metadata.attempt))
        .collect()
}

async fn sandboxes(runtime: &MemoryCri, filter: v1::PodSandboxFilter) -> Vec<String> {
    let request = v1::ListPodSandboxRequest { filter: Some(filter) };
    let list = runtime.list_pod_sandbox(request).await.unwrap().items;
    list.into_iter()
        .map(|sandbox| sandbox.metadata.unwrap().name)
        .collect()
}

#[tokio::test(start_paused = true)]
async fn lists_are_filtered_by_id_state_label_and_sandbox() {
    let runtime = instant();
    let web = run(&runtime, "web", 0).await.unwrap();
    let db = run(&runtime, "db", 0).await.unwrap();
    let main = started(&runtime, &web, "main", 0).await;
    create(&runtime, &web, "side", 0).await.unwrap();
    create(&runtime, &db, "main", 1).await.unwrap();
    stop_sandbox(&runtime, &db).await.unwrap();

    let state = |state: v1::ContainerState| Some(v1::ContainerStateValue { state: state as i32 });
    let label = |key: &str, value: &str| [(key.to_owned(), value.to_owned())].into();
    let all = v1::ContainerFilter::default();
    for (filter, expected) in [
        (all.clone(), vec!["main#0", "side#0", "main#1"]),
        (
            v1::ContainerFilter {
                id: main[..9].to_owned(),
                ..all.clone()
            },
            vec!["main#0"],
        ),
        (
            v1::ContainerFilter {
                id: "nope".to_owned(),
                ..all.clone()
            },
            vec![],
        ),
        (
            v1::ContainerFilter {
                state: state(v1::ContainerState::ContainerRunning),
                ..all.clone()
            },
            vec!["main#0"],
        ),
        (
            v1::ContainerFilter {
                state: state(v1::ContainerState::ContainerCreated),
                ..all.clone()
            },
            vec!["side#0", "main#1"],
        ),
        (
            v1::ContainerFilter {
                pod_sandbox_id: web[..9].to_owned(),
                ..all.clone()
            },
            vec!["main#0", "side#0"],
        ),
        (
            v1::ContainerFilter {
                label_selector: label("container", "main"),
                ..all.clone()
            },
            vec!["main#0", "main#1"],
        ),
        (
            v1::ContainerFilter {
                id: main,
                pod_sandbox_id: db.clone(),
                ..all.clone()
            },
            vec![],
        ),
    ] {
        assert_eq!(containers(&runtime, filter.clone()).await, expected, "{filter:?}");
    }

    let all = v1::PodSandboxFilter::default();
    let state = |state: v1::PodSandboxState| Some(v1::PodSandboxStateValue { state: state as i32 });
    for (filter, expected) in [
        (all.clone(), vec!["web", "db"]),
        (
            v1::PodSandboxFilter {
                id: db[..9].to_owned(),
                ..all.clone()
            },
            vec!["db"],
        ),
        (
            v1::PodSandboxFilter {
                id: "nope".to_owned(),
                ..all.clone()
            },
            vec![],
        ),
        (
            v1::PodSandboxFilter {
                state: state(v1::PodSandboxState::SandboxReady),
                ..all.clone()
            },
            vec!["web"],
        ),
        (
            v1::PodSandboxFilter {
                label_selector: label("pod", "db"),
                ..all.clone()
            },
            vec!["db"],
        ),
    ] {
        assert_eq!(sandboxes(&runtime, filter.clone()).await, expected, "{filter:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn streams_are_the_lists_in_batches() {
    let runtime = with_image(builder().latency(Latency::none()).build());
    for pod in 0..250 {
        let sandbox = run(&runtime, &format!("pod-{pod}"), 0).await.unwrap();
        started(&runtime, &sandbox, "main", 0).await;
    }
    macro_rules! batches {
        ($call:ident($request:ident).$field:ident) => {{
            let stream = runtime.$call(v1::$request::default()).await.unwrap();
            let batches: Vec<_> = stream.try_collect().await.unwrap();
            batches.iter().map(|batch| batch.$field.len()).collect::<Vec<_>>()
        }};
    }
    assert_eq!(
        batches!(stream_pod_sandboxes(StreamPodSandboxesRequest).pod_sandboxes),
        [100, 100, 50]
    );
    assert_eq!(
        batches!(stream_containers(StreamContainersRequest).containers),
        [100, 100, 50]
    );
    assert_eq!(
        batches!(stream_container_stats(StreamContainerStatsRequest).container_stats),
        [100, 100, 50]
    );
    assert_eq!(
        batches!(stream_pod_sandbox_stats(StreamPodSandboxStatsRequest).pod_sandbox_stats),
        [100, 100, 50]
    );
    assert_eq!(
        batches!(stream_pod_sandbox_metrics(StreamPodSandboxMetricsRequest).pod_sandbox_metrics),
        [100, 100, 50]
    );
    assert_eq!(batches!(stream_images(StreamImagesRequest).images), [2]);
}

#[tokio::test(start_paused = true)]
async fn no_two_things_are_made_at_the_same_time() {
    let runtime = instant();
    let sandbox = run(&runtime, "web", 0).await.unwrap();
    for attempt in 0..3 {
        create(&runtime, &sandbox, "main", attempt).await.unwrap();
    }
    let made: Vec<_> = runtime
        .containers()
        .iter()
        .map(|container| container.created_at)
        .collect();
    assert!(made.is_sorted_by(|one, next| one < next), "{made:?}");
}
