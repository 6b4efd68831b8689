//! The merger: the cost of a full snapshot and of one pod's change among a thousand pods.
//!
//! `cargo bench -p benches --bench pod_storage`
//!
//! The reference takes 8.5 ms and allocates 5.1 MB for one pod's change among 1,000 two-container pods, on two cores,
//! because it compares the whole set each time.
#![allow(missing_docs, reason = "criterion's macros make public items")]
#![allow(clippy::print_stdout, reason = "a bench prints what it found")]

use std::alloc::System;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use criterion::{Criterion, criterion_group, criterion_main};
use k8s_openapi::api::core::v1::Pod;
use kubelet_config::manifest::{self, Location};
use kubelet_config::{PodConfigNotificationMode, PodStorage, SourceUpdate};
use kubelet_core::{Clock, LogEvents};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// As from an API server, with all defaults.
const MANIFEST: &str = "
apiVersion: v1
kind: Pod
metadata: {name: NAME, namespace: bench, uid: NAME, labels: {app: bench, tier: back}}
spec:
  containers:
  - {name: a, image: 'busybox:IMAGE', command: [sleep, '1000'], env: [{name: A, value: a}, {name: B, value: b}],
     ports: [{containerPort: 80}], resources: {limits: {cpu: 100m, memory: 100Mi}},
     readinessProbe: {httpGet: {path: /, port: 80}}, volumeMounts: [{name: v, mountPath: /v}]}
  - {name: b, image: 'busybox:IMAGE', command: [sleep, '1000'], volumeMounts: [{name: v, mountPath: /v}]}
  volumes: [{name: v, emptyDir: {}}]
";

fn pod(index: usize, image: &str) -> Pod {
    let text = MANIFEST
        .replace("NAME", &format!("pod-{index}"))
        .replace("IMAGE", image);
    match manifest::decode(text.as_bytes(), "node-1", Location::Url("bench:")) {
        Ok(manifest) => manifest.pod,
        Err(error) => unreachable!("{error}"),
    }
}

fn pods(count: usize) -> Vec<Arc<Pod>> {
    (0..count).map(|index| Arc::new(pod(index, "1"))).collect()
}

/// The same pods, decoded again.
fn read_again(pods: &[Arc<Pod>]) -> Vec<Arc<Pod>> {
    pods.iter().map(|pod| Arc::new(Pod::clone(pod))).collect()
}

fn storage(pods: &[Arc<Pod>]) -> PodStorage {
    let mode = PodConfigNotificationMode::Incremental;
    let mut storage = PodStorage::new(mode, Arc::new(LogEvents), Clock::system());
    storage.merge("api", SourceUpdate::Snapshot(pods.to_vec()));
    storage
}

fn merge(criterion: &mut Criterion) {
    for count in [1_000, 10_000] {
        let snapshot = pods(count);
        let mut group = criterion.benchmark_group(format!("{count} pods"));
        let mut full = storage(&snapshot);
        group.bench_function("a snapshot of the same pods", |bencher| {
            bencher.iter(|| full.merge("api", SourceUpdate::Snapshot(black_box(&snapshot).clone())));
        });
        let again = [read_again(&snapshot), read_again(&snapshot)];
        let mut turn = 0;
        group.bench_function("a snapshot of equal pods, decoded again", |bencher| {
            bencher.iter(|| {
                turn += 1;
                full.merge("api", SourceUpdate::Snapshot(black_box(&again[turn % 2]).clone()))
            });
        });
        let mut one = storage(&snapshot);
        let versions = [Arc::new(pod(7, "2")), Arc::new(pod(7, "3"))];
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
    summary();
}

/// The figures, to compare with the reference's, including allocations.
fn summary() {
    println!(
        "\n{:<44} {:>10} {:>13} {:>12}",
        "", "time", "allocations", "bytes"
    );
    println!(
        "{:<44} {:>10} {:>13} {:>12}",
        "the kubelet: one change among 1,000", "8.5 ms", "", "5.1 MB"
    );
    for count in [1_000, 10_000] {
        let snapshot = pods(count);
        let mut storage = storage(&snapshot);
        let versions: Vec<_> = (0..200).map(|turn| pod(7, &turn.to_string())).collect();
        report(&format!("one change among {count}"), versions, |version| {
            storage.merge("api", SourceUpdate::Applied(Arc::new(version)));
        });
        let same = (0..50).map(|_| snapshot.clone()).collect();
        report(&format!("{count} pods, the same"), same, |snapshot| {
            storage.merge("api", SourceUpdate::Snapshot(snapshot));
        });
        let mut equal = self::storage(&snapshot);
        let again = (0..20).map(|_| read_again(&snapshot)).collect();
        report(
            &format!("{count} pods, equal and decoded again"),
            again,
            |snapshot| {
                equal.merge("api", SourceUpdate::Snapshot(snapshot));
            },
        );
    }
}

/// The median of the times, and the allocations of the last run.
fn report<T>(what: &str, inputs: Vec<T>, mut run: impl FnMut(T)) {
    let mut times = Vec::with_capacity(inputs.len());
    let mut last = None;
    for input in inputs {
        let region = Region::new(ALLOCATOR);
        let start = Instant::now();
        run(input);
        times.push(start.elapsed());
        last = Some(region.change());
    }
    times.sort();
    let (median, stats) = (times[times.len() / 2], last.unwrap_or_default());
    let micros = format!("{:.1} µs", median.as_secs_f64() * 1e6);
    println!(
        "{what:<44} {micros:>10} {:>13} {:>12}",
        stats.allocations, stats.bytes_allocated
    );
}

criterion_group!(benches, merge);
criterion_main!(benches);
