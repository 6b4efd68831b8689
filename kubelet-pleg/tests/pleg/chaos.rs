//! A runtime that changes, fails and hangs at random. Once it calms down, cache and runtime agree, each
//! container that ended was told once, and nobody waits any more.
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use super::fake::{FakeRuntime, GUARD, Hints, Running, container, sandbox};
use kubelet_core::runtime::{ContainerState, PodStatus, RuntimePod, SandboxState};
use kubelet_core::{ContainerId, PodKey, PodLifecycleEventType, PodUid};
use proptest::prelude::*;
use tokio::time::{Instant, sleep, timeout};

const PODS: usize = 4;

#[derive(Clone, Debug)]
enum Op {
    Create(usize),
    Start(usize),
    Exit(usize),
    RemoveExited(usize),
    NewSandbox(usize),
    StopSandbox(usize),
    RemovePod(usize),
    FailStatus(usize, bool),
    HangStatus(usize, bool),
    FailLists(bool),
    HangLists(bool),
    SlowLists(u64),
    HangPodList(usize, bool),
    FailPodList(usize, bool),
    /// A hint: for a change that was, one told before, or one still to come; none is sent but by this.
    Hint(usize),
    /// Several hints, however old.
    HintBurst(Vec<usize>),
    BreakHints,
    EndHints,
    RefuseHints(bool),
    RequestRelist(usize),
    RequestReinspect(usize),
    Wait(usize),
    TakeEvents,
    Pass(u64),
}

fn op() -> impl Strategy<Value = Op> {
    let pod = 0..PODS;
    prop_oneof![
        3 => pod.clone().prop_map(Op::Create),
        4 => pod.clone().prop_map(Op::Start),
        4 => pod.clone().prop_map(Op::Exit),
        2 => pod.clone().prop_map(Op::RemoveExited),
        1 => pod.clone().prop_map(Op::NewSandbox),
        1 => pod.clone().prop_map(Op::StopSandbox),
        1 => pod.clone().prop_map(Op::RemovePod),
        2 => (pod.clone(), any::<bool>()).prop_map(|(pod, on)| Op::FailStatus(pod, on)),
        2 => (pod.clone(), any::<bool>()).prop_map(|(pod, on)| Op::HangStatus(pod, on)),
        1 => any::<bool>().prop_map(Op::FailLists),
        1 => any::<bool>().prop_map(Op::HangLists),
        1 => (0u64..1500).prop_map(Op::SlowLists),
        1 => (pod.clone(), any::<bool>()).prop_map(|(pod, on)| Op::HangPodList(pod, on)),
        1 => (pod.clone(), any::<bool>()).prop_map(|(pod, on)| Op::FailPodList(pod, on)),
        8 => (0..PODS + 1).prop_map(Op::Hint),
        2 => prop::collection::vec(0..PODS + 1, 0..8).prop_map(Op::HintBurst),
        1 => Just(Op::BreakHints),
        1 => Just(Op::EndHints),
        1 => any::<bool>().prop_map(Op::RefuseHints),
        3 => pod.clone().prop_map(Op::RequestRelist),
        1 => pod.clone().prop_map(Op::RequestReinspect),
        2 => pod.prop_map(Op::Wait),
        1 => Just(Op::TakeEvents),
        1 => (1u64..60).prop_map(|seconds| Op::Pass(seconds * 1000)),
        12 => (0u64..2500).prop_map(Op::Pass),
    ]
}

/// The pods as they should be. Ids are never used twice.
#[derive(Default)]
struct Model {
    pods: BTreeMap<usize, RuntimePod>,
    ids: usize,
    /// Everything that ever was, and whether it has ended.
    ended: HashMap<ContainerId, bool>,
}

impl Model {
    fn apply(&mut self, op: &Op, runtime: &FakeRuntime) {
        let (Op::Create(pod)
        | Op::Start(pod)
        | Op::Exit(pod)
        | Op::RemoveExited(pod)
        | Op::NewSandbox(pod)
        | Op::StopSandbox(pod)
        | Op::RemovePod(pod)) = *op
        else {
            return;
        };
        self.ids += 1;
        let id = self.ids.to_string();
        let uid = uid(pod);
        let changed = self
            .pods
            .entry(pod)
            .or_insert_with(|| RuntimePod::empty(uid.clone(), PodKey::new("default", uid.as_str())));
        let containers = &mut changed.containers;
        match op {
            Op::Create(_) => containers.insert(0, container(&id, ContainerState::Created)),
            Op::Start(_) => step(containers, ContainerState::Created, ContainerState::Running),
            Op::Exit(_) => step(containers, ContainerState::Running, ContainerState::Exited),
            Op::RemoveExited(_) => containers.retain(|container| container.state != ContainerState::Exited),
            Op::NewSandbox(_) => changed.sandboxes.insert(0, sandbox(&id, SandboxState::Ready)),
            Op::StopSandbox(_) => {
                for sandbox in &mut changed.sandboxes {
                    sandbox.state = SandboxState::NotReady;
                }
            }
            _ => (containers.clear(), changed.sandboxes.clear()).0,
        }
        for ended in self.ended.values_mut() {
            *ended = true;
        }
        if changed.is_empty() {
            self.pods.remove(&pod);
            runtime.remove(uid.as_str());
        } else {
            runtime.put(changed.clone());
        }
        for pod in self.pods.values() {
            for container in &pod.containers {
                let ended = container.state == ContainerState::Exited;
                self.ended.insert(container.id.clone(), ended);
            }
            for sandbox in &pod.sandboxes {
                let ended = sandbox.state == SandboxState::NotReady;
                self.ended.insert(sandbox.id.clone(), ended);
            }
        }
    }
}

fn step(containers: &mut [kubelet_core::runtime::Container], from: ContainerState, to: ContainerState) {
    if let Some(container) = containers.iter_mut().find(|container| container.state == from) {
        container.state = to;
    }
}

fn uid(pod: usize) -> PodUid {
    PodUid::new(format!("pod-{pod}"))
}

fn generic(runtime: FakeRuntime) -> Running {
    Running::with(runtime, |pleg| {
        pleg.with_inspection_deadline(Duration::from_secs(5))
            .with_relist_threshold(Duration::from_secs(10))
            .with_max_concurrent_inspections(2)
    })
}

fn evented(runtime: FakeRuntime) -> Running {
    runtime.hints(Hints::Open);
    Running::evented(runtime, |pleg| {
        pleg.with_inspection_deadline(Duration::from_secs(5))
            .with_relist_threshold(Duration::from_secs(10))
            .with_max_concurrent_inspections(2)
    })
}

/// One that lists as rarely as can be when the storm begins.
async fn trusted(runtime: FakeRuntime) -> Running {
    let mut pleg = evented(runtime);
    pleg.relisted().await;
    pleg.runtime.run("first", &[]);
    pleg.runtime.hint("first");
    pleg.next().await;
    sleep(Duration::from_secs(900)).await;
    pleg
}

async fn play(ops: Vec<Op>, mut pleg: Running) {
    let runtime = pleg.runtime.clone();
    let (mut model, mut events, mut waiters) = (Model::default(), Vec::new(), Vec::new());
    for op in ops {
        match op {
            Op::FailStatus(pod, on) => runtime.fail_status(uid(pod).as_str(), on),
            Op::HangStatus(pod, on) => runtime.hang_status(uid(pod).as_str(), on),
            Op::FailLists(on) => runtime.fail_lists(on),
            Op::HangLists(on) => runtime.hang_lists(on),
            Op::SlowLists(millis) => runtime.slow_lists(Duration::from_millis(millis)),
            Op::HangPodList(pod, on) => runtime.hang_pod_list(uid(pod).as_str(), on),
            Op::FailPodList(pod, on) => runtime.fail_pod_list(uid(pod).as_str(), on),
            Op::Hint(pod) => runtime.hint(uid(pod).as_str()),
            Op::HintBurst(pods) => pods.into_iter().for_each(|pod| runtime.hint(uid(pod).as_str())),
            Op::BreakHints => runtime.break_hints(),
            Op::EndHints => runtime.end_hints(),
            Op::RefuseHints(on) => runtime.hints(if on { Hints::Refused } else { Hints::Open }),
            Op::RequestRelist(pod) => pleg.handle.request_relist(&uid(pod)),
            Op::RequestReinspect(pod) => pleg.handle.request_reinspect(&uid(pod)),
            Op::Wait(pod) => {
                let (cache, now) = (pleg.cache.clone(), Instant::now());
                waiters.push(tokio::spawn(
                    async move { cache.get_newer_than(&uid(pod), now).await },
                ));
            }
            Op::TakeEvents => events.append(&mut pleg.pending().await),
            Op::Pass(millis) => sleep(Duration::from_millis(millis)).await,
            change => model.apply(&change, &runtime),
        }
    }

    runtime.calm();
    for pod in 0..PODS {
        let uid = uid(pod);
        let status = loop {
            if let Ok(status) = pleg.seen(uid.as_str()).await {
                break status;
            }
        };
        agree(&status, model.pods.get(&pod));
    }
    for waiter in waiters {
        let _status_or_error = timeout(GUARD, waiter).await.unwrap().unwrap();
    }
    events.append(&mut pleg.pending().await);
    let mut died: HashMap<String, usize> = HashMap::new();
    for (_, container, event_type) in events {
        if event_type == PodLifecycleEventType::ContainerDied {
            *died.entry(container).or_default() += 1;
        }
    }
    for (id, ended) in model.ended {
        let expected = usize::from(ended && runtime.has_shown(&id));
        assert_eq!(died.get(id.id()).copied().unwrap_or(0), expected, "{id} died");
    }
    pleg.stop().await;
}

fn agree(status: &Arc<PodStatus>, pod: Option<&RuntimePod>) {
    let containers = |pod: &RuntimePod| -> Vec<_> {
        let all = pod.containers.iter();
        all.map(|container| (container.id.clone(), container.state))
            .collect()
    };
    let read: Vec<_> = status
        .containers
        .iter()
        .map(|status| (status.id.clone(), status.state))
        .collect();
    assert_eq!(read, pod.map(containers).unwrap_or_default());
    let sandboxes = |pod: &RuntimePod| -> Vec<_> {
        let all = pod.sandboxes.iter();
        all.map(|sandbox| (sandbox.id.id().to_owned(), sandbox.state))
            .collect()
    };
    let read: Vec<_> = status
        .sandboxes
        .iter()
        .map(|status| (status.id.clone(), status.state))
        .collect();
    assert_eq!(read, pod.map(sandboxes).unwrap_or_default());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn after_the_storm_all_agree(ops in prop::collection::vec(op(), 1..120)) {
        in_virtual_time(async { play(ops, generic(FakeRuntime::default())).await });
    }

    /// Hints are lost, late, doubled, out of order, early and about pods that nobody knows.
    #[test]
    fn after_the_storm_all_agree_with_hints_too(ops in prop::collection::vec(op(), 1..120)) {
        in_virtual_time(async { play(ops, evented(FakeRuntime::default())).await });
    }

    #[test]
    fn after_the_storm_all_agree_where_hints_were_trusted(ops in prop::collection::vec(op(), 1..120)) {
        in_virtual_time(async { play(ops, trusted(FakeRuntime::default()).await).await });
    }
}

fn in_virtual_time(play: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap()
        .block_on(play);
}
