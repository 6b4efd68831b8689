//! The merger: what a full snapshot and one pod's change cost among a thousand pods.
//!
//! `cargo bench -p benches --bench pod_storage`
#![allow(missing_docs, reason = "criterion's macros make public items")]

use std::hint::black_box;
use std::sync::Arc;

use criterion::{Criterion, criterion_group, criterion_main};
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use kubelet_config::{PodConfigNotificationMode, PodStorage, SourceUpdate};
use kubelet_core::{Clock, LogEvents};

fn pod(index: usize, image: &str) -> Arc<Pod> {
    let mut pod = Pod::default();
    pod.metadata.namespace = Some("bench".into());
    pod.metadata.name = Some(format!("pod-{index}"));
    pod.metadata.uid = Some(format!("uid-{index}"));
    let container = |name: &str| Container {
        name: name.into(),
        image: Some(image.into()),
        ..Container::default()
    };
    pod.spec = Some(PodSpec {
        containers: vec![container("a"), container("b")],
        ..PodSpec::default()
    });
    Arc::new(pod)
}

fn storage(pods: &[Arc<Pod>]) -> PodStorage {
    let mode = PodConfigNotificationMode::Incremental;
    let mut storage = PodStorage::new(mode, Arc::new(LogEvents), Clock::system());
    storage.merge("api", SourceUpdate::Snapshot(pods.to_vec()));
    storage
}

fn merge(criterion: &mut Criterion) {
    for count in [1_000, 10_000] {
        let pods: Vec<Arc<Pod>> = (0..count).map(|index| pod(index, "busybox")).collect();
        let mut group = criterion.benchmark_group(format!("{count} pods"));
        let mut full = storage(&pods);
        group.bench_function("snapshot in which nothing changed", |bencher| {
            bencher.iter(|| full.merge("api", SourceUpdate::Snapshot(black_box(&pods).clone())));
        });
        let mut one = storage(&pods);
        let versions = [pod(7, "busybox:1"), pod(7, "busybox:2")];
        let mut turn = 0;
        group.bench_function("one pod's change", |bencher| {
            bencher.iter(|| {
                turn += 1;
                one.merge(
                    "api",
                    SourceUpdate::Applied(black_box(&versions[turn % 2]).clone()),
                )
            });
        });
        group.finish();
    }
}

criterion_group!(benches, merge);
criterion_main!(benches);
