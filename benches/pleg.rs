//! The relist of the generic PLEG over a runtime in memory: time and allocations of one whole turn, from one list
//! to the next, with 0, some and all pods changed.
//!
//! `cargo bench -p benches --bench pleg`
//!
//! Time is virtual, so that the wait for the next list takes none; "0 pods" shows what a turn costs by itself. A turn
//! includes what the runtime does itself, such as cloning the `Arc`s of a list; "runtime alone" shows how long that takes.
//!
//! Idle pods are listed in three ways:
//!
//! * "idle": each list has the same `Arc`s.
//! * "idle, two lists": two lists of equal pods take turns, and no pod is built or freed.
//! * "idle, new list": the runtime builds each list. Of such a turn, "relist" is the time from the list to the wake of
//!   those who wait for it in the cache; "runtime alone" is the time to build the list, and "afterwards" the time to
//!   free the old one.
#![allow(missing_docs, reason = "criterion's macros make public items")]
#![allow(clippy::panic, reason = "a bench ends where it cannot go on")]
#![allow(clippy::print_stdout, reason = "allocations are no measure of criterion's")]

use std::alloc::System;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use futures::FutureExt;
use kubelet_core::runtime::{
    Container, ContainerState, ContainerStatus, PodStatus, RuntimePod, Sandbox, SandboxState, SandboxStatus,
};
use kubelet_core::{ContainerId, PodCache, PodKey, PodUid, Result, RuntimeReader};
use kubelet_pleg::GenericPleg;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use tokio::runtime::Runtime;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Returns prepared lists in turn and prepared statuses, and measures the time from one list to the next.
struct Prepared {
    lists: Vec<Vec<Arc<RuntimePod>>>,
    /// Returns copies of the lists instead, which share no strings.
    builds_new_lists: bool,
    statuses: FxHashMap<PodUid, Arc<PodStatus>>,
    watch: Mutex<StopWatch>,
    stopped: Notify,
}

#[derive(Default)]
struct StopWatch {
    turn: usize,
    /// The number of lists before the measurement, and of those to measure.
    ahead: u64,
    measured: u64,
    started: Option<(std::time::Instant, usize)>,
    stopped: Option<Measured>,
    /// When the last turn began, and the shortest turn.
    lap: Option<std::time::Instant>,
    shortest: Option<Duration>,
    /// When the last list was returned.
    handed_out: Option<std::time::Instant>,
}

#[derive(Clone, Copy)]
struct Measured {
    time: Duration,
    shortest: Duration,
    allocations: usize,
}

#[async_trait]
impl RuntimeReader for Prepared {
    async fn pods(&self, _all: bool) -> Result<Vec<Arc<RuntimePod>>> {
        let turn = self.lap();
        let list = &self.lists[turn % self.lists.len()];
        let list = match self.builds_new_lists {
            true => list.iter().map(|pod| Arc::new(rebuilt(pod))).collect(),
            false => list.clone(),
        };
        self.watch.lock().handed_out = Some(std::time::Instant::now());
        Ok(list)
    }

    async fn pod_status(&self, pod: &RuntimePod) -> Result<Arc<PodStatus>> {
        let status = self.statuses.get(&pod.uid);
        Ok(status
            .unwrap_or_else(|| panic!("{} was not listed", pod.uid))
            .clone())
    }
}

impl Prepared {
    fn new(lists: Vec<Vec<Arc<RuntimePod>>>, builds_new_lists: bool) -> Arc<Self> {
        let pods = lists.iter().flatten();
        let statuses = pods.map(|pod| (pod.uid.clone(), Arc::new(status(pod))));
        Arc::new(Self {
            statuses: statuses.collect(),
            lists,
            builds_new_lists,
            watch: Mutex::default(),
            stopped: Notify::new(),
        })
    }

    fn lap(&self) -> usize {
        let mut watch = self.watch.lock();
        watch.turn += 1;
        let now = std::time::Instant::now();
        if let Some(last) = watch.lap.replace(now)
            && watch.started.is_some()
        {
            let turn = now - last;
            watch.shortest = Some(watch.shortest.map_or(turn, |shortest| shortest.min(turn)));
        }
        if watch.ahead > 0 {
            watch.ahead -= 1;
            if watch.ahead == 0 {
                watch.started = Some((std::time::Instant::now(), ALLOCATOR.stats().allocations));
            }
        } else if let Some((time, allocations)) = watch.started {
            watch.measured -= 1;
            if watch.measured == 0 {
                watch.stopped = Some(Measured {
                    time: time.elapsed(),
                    shortest: watch.shortest.take().unwrap_or_default(),
                    allocations: ALLOCATOR.stats().allocations - allocations,
                });
                watch.started = None;
                self.stopped.notify_one();
            }
        }
        watch.turn
    }

    /// Measures this many turns, after the first lists.
    async fn measure(&self, turns: u64) -> Measured {
        {
            let mut watch = self.watch.lock();
            watch.ahead = 3;
            watch.measured = turns;
        }
        loop {
            self.stopped.notified().await;
            if let Some(measured) = self.watch.lock().stopped.take() {
                return measured;
            }
        }
    }
}

fn pods(count: usize) -> Vec<Arc<RuntimePod>> {
    let runtime: Arc<str> = "containerd".into();
    let pod = |index| {
        let uid = format!("8f6f3a52-7c1d-4b0e-9a55-{index:012}");
        let mut pod = RuntimePod::empty(PodUid::from(uid), PodKey::new("bench", format!("pod-{index}")));
        let id = |kind: &str| ContainerId::new(runtime.clone(), format!("{kind:0>8}{index:056}"));
        for name in ["a", "b"] {
            let mut container = Container::new(id(name), name, ContainerState::Running);
            container.image = "registry.example/team/web:1.2.3".to_owned();
            container.image_id = format!("sha256:{:064}", index % 50);
            container.image_ref = format!("registry.example/team/web@sha256:{:064}", index % 50);
            container.sandbox_id = format!("{:0>8}{index:056}", "5");
            pod.containers.push(container);
        }
        pod.sandboxes.push(Sandbox::new(id("5"), SandboxState::Ready));
        Arc::new(pod)
    };
    (0..count).map(pod).collect()
}

/// An equal pod, as a runtime builds it that reuses none.
fn rebuilt(pod: &RuntimePod) -> RuntimePod {
    let id = |id: &ContainerId| ContainerId::new(id.runtime(), id.id());
    let mut built = pod.clone();
    built.uid = PodUid::new(pod.uid.as_str());
    built.key = PodKey::new(&pod.key.namespace, &pod.key.name);
    for container in &mut built.containers {
        container.id = id(&container.id);
    }
    for sandbox in &mut built.sandboxes {
        sandbox.id = id(&sandbox.id);
    }
    built
}

fn status(pod: &RuntimePod) -> PodStatus {
    let mut status = PodStatus::empty(pod.uid.clone(), pod.key.clone(), Instant::now());
    status.ips.push("10.0.0.1".to_owned());
    for container in &pod.containers {
        let container = ContainerStatus::new(container.id.clone(), &*container.name, container.state);
        status.containers.push(container);
    }
    for sandbox in &pod.sandboxes {
        status
            .sandboxes
            .push(SandboxStatus::new(sandbox.id.id(), sandbox.state));
    }
    status
}

/// Two lists that differ in the containers of this many scattered pods; the other pods are the same `Arc`s in both.
fn two_lists(count: usize, changed: usize) -> Vec<Vec<Arc<RuntimePod>>> {
    let first = pods(count);
    let mut second = first.clone();
    for pod in second.iter_mut().step_by(count / changed) {
        for container in &mut Arc::make_mut(pod).containers {
            container.state = ContainerState::Exited;
        }
    }
    vec![first, second]
}

fn bench(criterion: &mut Criterion, name: &str, lists: Vec<Vec<Arc<RuntimePod>>>) {
    let runtime = Prepared::new(lists, false);
    let tokio = virtual_time();
    let pleg = GenericPleg::new(runtime.clone(), PodCache::new());
    let mut events = pleg.handle().subscribe();
    let shutdown = CancellationToken::new();
    let watching = tokio.spawn(pleg.run(shutdown.clone()));
    let taking = tokio.spawn(async move { while events.next().await.is_some() {} });

    // Even: as many turns from the first list to the second as back.
    let measured = tokio.block_on(runtime.measure(100));
    let (allocations, shortest) = (measured.allocations / 100, measured.shortest);
    println!("relist, {name}: {allocations} allocations, shortest of 100 turns {shortest:.1?}");
    criterion.bench_function(&format!("relist, {name}"), |bencher| {
        bencher.iter_custom(|turns| tokio.block_on(runtime.measure(turns)).time);
    });
    shutdown.cancel();
    let _ = tokio.block_on(async { (watching.await, taking.await) });
}

fn virtual_time() -> Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap_or_else(|error| panic!("{error}"))
}

/// The parts of a turn in which the runtime builds a new list.
fn bench_new_lists(criterion: &mut Criterion, count: usize) {
    let list = pods(count);
    criterion.bench_function(&format!("runtime alone, {count} pods in a new list"), |bencher| {
        let build = || -> Vec<_> { list.iter().map(|pod| Arc::new(rebuilt(pod))).collect() };
        bencher.iter_with_large_drop(build);
    });

    let runtime = Prepared::new(vec![list], true);
    let tokio = virtual_time();
    let cache = PodCache::new();
    let pleg = GenericPleg::new(runtime.clone(), cache.clone());
    let shutdown = CancellationToken::new();
    let watching = tokio.spawn(pleg.run(shutdown.clone()));
    // This pod does not exist, so only a full list answers for it. Virtual time passes once the old list is freed.
    let absent = PodUid::from("absent");
    let relist = || {
        tokio.block_on(async {
            let _nothing = cache.get_newer_than(&absent, Instant::now()).await;
            let handed_out = runtime.watch.lock().handed_out;
            handed_out.map_or(Duration::ZERO, |at| at.elapsed())
        })
    };
    let name = format!("relist, {count} pods, idle, new list");
    let shortest = (0..103).map(|_| relist()).skip(3).min().unwrap_or_default();
    println!("{name}: shortest of 100 relists {shortest:.1?}");
    criterion.bench_function(&name, |bencher| {
        bencher.iter_custom(|turns| (0..turns).map(|_| relist()).sum());
    });
    criterion.bench_function(&format!("whole turn, {count} pods, idle, new list"), |bencher| {
        bencher.iter_custom(|turns| tokio.block_on(runtime.measure(turns)).time);
    });
    shutdown.cancel();
    let _ = tokio.block_on(watching);

    criterion.bench_function(&format!("afterwards, {count} pods freed"), |bencher| {
        let list = &runtime.lists[0];
        bencher.iter_batched(
            || -> Vec<_> { list.iter().map(|pod| Arc::new(rebuilt(pod))).collect() },
            drop,
            BatchSize::PerIteration,
        );
    });
}

fn relist(criterion: &mut Criterion) {
    bench(criterion, "0 pods", vec![Vec::new()]);
    for count in [1_000, 5_000] {
        let list = pods(count);
        criterion.bench_function(&format!("runtime alone, {count} pods listed"), |bencher| {
            bencher.iter(|| black_box(&list).clone());
        });
        bench(criterion, &format!("{count} pods, idle"), vec![list]);
        bench(
            criterion,
            &format!("{count} pods, idle, two lists"),
            vec![pods(count), pods(count)],
        );
        bench_new_lists(criterion, count);
    }
    let runtime = Prepared::new(vec![pods(1_000)], false);
    criterion.bench_function("runtime alone, 1000 statuses", |bencher| {
        bencher.iter(|| {
            for pod in black_box(&runtime.lists[0]) {
                let _ = black_box(runtime.pod_status(pod).now_or_never());
            }
        });
    });
    for changed in [10, 1_000] {
        bench(
            criterion,
            &format!("1000 pods, {changed} changed"),
            two_lists(1_000, changed),
        );
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
        .sample_size(30);
    targets = relist
}
criterion_main!(benches);
