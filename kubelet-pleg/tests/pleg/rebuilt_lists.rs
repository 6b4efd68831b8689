//! A runtime may hand out the same pods again and again or build its list anew each time: that makes no difference to
//! the events, to the cache, or to what the runtime is asked for.
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt;
use kubelet_core::runtime::{
    Container, ContainerState, ContainerStatus, PodStatus, RuntimePod, Sandbox, SandboxState, SandboxStatus,
};
use kubelet_core::{ContainerId, Error, PodCache, PodKey, PodLifecycleEvents, PodUid, Result, RuntimeReader};
use kubelet_pleg::GenericPleg;
use parking_lot::Mutex;
use proptest::prelude::*;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

const PERIOD: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq)]
enum Lists {
    /// A pod that did not change is the same `Arc`.
    Reused,
    /// Each pod is built anew, with all of its texts.
    Rebuilt,
    /// Every other pod is.
    Mixed,
}

#[derive(Default)]
struct State {
    pods: Vec<Arc<RuntimePod>>,
    /// A pod that the list has twice.
    twice: Option<usize>,
    lists: usize,
    failing: HashSet<PodUid>,
    slow: HashSet<PodUid>,
    /// The pods as the runtime listed them last.
    newest: HashMap<PodUid, RuntimePod>,
    /// The pods whose status was read, as they were handed in.
    read: Vec<RuntimePod>,
}

struct Scripted {
    lists: Lists,
    state: Mutex<State>,
}

impl Scripted {
    fn hand_out(&self, state: &mut State, index: usize) -> Arc<RuntimePod> {
        let pod = &state.pods[index];
        state.newest.insert(pod.uid.clone(), RuntimePod::clone(pod));
        match self.lists {
            Lists::Reused => pod.clone(),
            Lists::Mixed if index.is_multiple_of(2) => pod.clone(),
            _ => Arc::new(rebuilt(pod)),
        }
    }
}

#[async_trait]
impl RuntimeReader for Scripted {
    async fn pods(&self, _all: bool) -> Result<Vec<Arc<RuntimePod>>> {
        let mut state = self.state.lock();
        state.lists += 1;
        let count = state.pods.len();
        let twice = state.twice.filter(|twice| *twice < count);
        let pods = (0..count)
            .chain(twice)
            .map(|index| self.hand_out(&mut state, index));
        Ok(pods.collect())
    }

    async fn pod(&self, uid: &PodUid) -> Result<Option<Arc<RuntimePod>>> {
        let mut state = self.state.lock();
        let index = state.pods.iter().position(|pod| pod.uid == *uid);
        Ok(index.map(|index| self.hand_out(&mut state, index)))
    }

    async fn pod_status(&self, pod: &RuntimePod) -> Result<Arc<PodStatus>> {
        let (fails, is_slow) = {
            let mut state = self.state.lock();
            assert_eq!(
                Some(pod),
                state.newest.get(&pod.uid),
                "the pod as it was listed last"
            );
            state.read.push(pod.clone());
            (state.failing.contains(&pod.uid), state.slow.contains(&pod.uid))
        };
        if is_slow {
            sleep(PERIOD * 3 / 2).await;
        }
        if fails {
            return Err(Error::Cancelled);
        }
        let mut status = PodStatus::empty(pod.uid.clone(), pod.key.clone(), Instant::now());
        let containers = pod.containers.iter();
        status.containers = containers
            .map(|listed| ContainerStatus::new(listed.id.clone(), &*listed.image, listed.state))
            .collect();
        let sandboxes = pod.sandboxes.iter();
        status.sandboxes = sandboxes
            .map(|sandbox| SandboxStatus::new(sandbox.id.id(), sandbox.state))
            .collect();
        Ok(Arc::new(status))
    }
}

/// The same pod, no text of which is shared.
fn rebuilt(pod: &RuntimePod) -> RuntimePod {
    let id = |id: &ContainerId| ContainerId::new(id.runtime(), id.id());
    let mut rebuilt = pod.clone();
    rebuilt.uid = PodUid::new(pod.uid.as_str());
    rebuilt.key = PodKey::new(&pod.key.namespace, &pod.key.name);
    for container in &mut rebuilt.containers {
        container.id = id(&container.id);
    }
    for sandbox in &mut rebuilt.sandboxes {
        sandbox.id = id(&sandbox.id);
    }
    rebuilt
}

/// What happens to the pods between two lists. Numbers are taken modulo what there is.
#[derive(Clone, Debug)]
enum Op {
    AddPod(usize),
    RemovePod(usize),
    /// The list begins with another pod.
    Rotate(usize),
    Swap(usize, usize),
    ListTwice(Option<usize>),
    AddContainer(usize, ContainerState),
    RemoveContainer(usize),
    ReplaceContainer(usize),
    SwapContainers(usize),
    SetState(usize, ContainerState),
    /// Makes no event, but the runtime sees it when the pod is read.
    SetImage(usize, u8),
    AddSandbox(usize),
    StopSandboxes(usize),
    Relist(usize),
    Reinspect(usize),
    Fail(usize, bool),
    Slow(usize, bool),
    Pass(u64),
}

fn op() -> impl Strategy<Value = Op> {
    let pod = 0..8usize;
    let state = prop_oneof![
        Just(ContainerState::Created),
        Just(ContainerState::Running),
        Just(ContainerState::Exited),
        Just(ContainerState::Unknown),
    ];
    prop_oneof![
        3 => pod.clone().prop_map(Op::AddPod),
        1 => pod.clone().prop_map(Op::RemovePod),
        1 => pod.clone().prop_map(Op::Rotate),
        1 => (pod.clone(), pod.clone()).prop_map(|(one, other)| Op::Swap(one, other)),
        1 => prop::option::of(pod.clone()).prop_map(Op::ListTwice),
        2 => (pod.clone(), state.clone()).prop_map(|(pod, state)| Op::AddContainer(pod, state)),
        1 => pod.clone().prop_map(Op::RemoveContainer),
        1 => pod.clone().prop_map(Op::ReplaceContainer),
        1 => pod.clone().prop_map(Op::SwapContainers),
        3 => (pod.clone(), state).prop_map(|(pod, state)| Op::SetState(pod, state)),
        2 => (pod.clone(), 0..3u8).prop_map(|(pod, image)| Op::SetImage(pod, image)),
        1 => pod.clone().prop_map(Op::AddSandbox),
        1 => pod.clone().prop_map(Op::StopSandboxes),
        2 => pod.clone().prop_map(Op::Relist),
        1 => pod.clone().prop_map(Op::Reinspect),
        1 => (pod.clone(), any::<bool>()).prop_map(|(pod, on)| Op::Fail(pod, on)),
        1 => (pod, any::<bool>()).prop_map(|(pod, on)| Op::Slow(pod, on)),
        5 => (1..2500u64).prop_map(Op::Pass),
    ]
}

fn apply(state: &mut State, op: &Op, ids: &mut usize) {
    *ids += 1;
    let id = ContainerId::new("fake", ids.to_string());
    let count = state.pods.len();
    match *op {
        Op::AddPod(place) => {
            let pod = RuntimePod::empty(
                PodUid::new(format!("pod-{ids}")),
                PodKey::new("default", format!("name-{ids}")),
            );
            state.pods.insert(place % (count + 1), Arc::new(pod));
            return;
        }
        Op::ListTwice(twice) => state.twice = twice,
        _ => {}
    }
    if count == 0 {
        return;
    }
    let edit = |state: &mut State, pod: usize, edit: &dyn Fn(&mut RuntimePod)| {
        // As a runtime does that reuses its pods: one that changes is built anew.
        let mut changed = rebuilt(&state.pods[pod % count]);
        edit(&mut changed);
        state.pods[pod % count] = Arc::new(changed);
    };
    match *op {
        Op::RemovePod(pod) => drop(state.pods.remove(pod % count)),
        Op::Rotate(by) => state.pods.rotate_left(by % count),
        Op::Swap(one, other) => state.pods.swap(one % count, other % count),
        Op::AddContainer(pod, new) => edit(state, pod, &|pod| {
            pod.containers.push(Container::new(id.clone(), "c", new));
        }),
        Op::RemoveContainer(pod) => edit(state, pod, &|pod| drop(pod.containers.pop())),
        Op::ReplaceContainer(pod) => edit(state, pod, &|pod| {
            if let Some(first) = pod.containers.first_mut() {
                first.id = id.clone();
            }
        }),
        Op::SwapContainers(pod) => edit(state, pod, &|pod| pod.containers.reverse()),
        Op::SetState(pod, new) => edit(state, pod, &|pod| {
            if let Some(last) = pod.containers.last_mut() {
                last.state = new;
            }
        }),
        Op::SetImage(pod, image) => edit(state, pod, &|pod| {
            for container in &mut pod.containers {
                container.image = format!("image-{image}");
            }
        }),
        Op::AddSandbox(pod) => edit(state, pod, &|pod| {
            pod.sandboxes
                .insert(0, Sandbox::new(id.clone(), SandboxState::Ready));
        }),
        Op::StopSandboxes(pod) => edit(state, pod, &|pod| {
            for sandbox in &mut pod.sandboxes {
                sandbox.state = SandboxState::NotReady;
            }
        }),
        Op::Fail(pod, on) => {
            let uid = state.pods[pod % count].uid.clone();
            state.failing.retain(|failing| on || *failing != uid);
            state.failing.extend(on.then_some(uid));
        }
        Op::Slow(pod, on) => {
            let uid = state.pods[pod % count].uid.clone();
            state.slow.retain(|slow| on || *slow != uid);
            state.slow.extend(on.then_some(uid));
        }
        Op::AddPod(_) | Op::ListTwice(_) | Op::Relist(_) | Op::Reinspect(_) | Op::Pass(_) => {}
    }
}

/// What can be seen of a PLEG after a step.
#[derive(Debug, PartialEq)]
struct Seen {
    events: Vec<(PodUid, PodLifecycleEvents)>,
    cache: Vec<(PodUid, Option<Duration>, std::result::Result<ReadStatus, String>)>,
    read: Vec<RuntimePod>,
    lists: usize,
}

/// A status, and when it was read.
type ReadStatus = (Vec<ContainerStatus>, Vec<SandboxStatus>, Duration);

async fn play(ops: &[Op], lists: Lists) -> Vec<Seen> {
    let runtime = Arc::new(Scripted {
        lists,
        state: Mutex::default(),
    });
    let (cache, start) = (PodCache::new(), Instant::now());
    let pleg = GenericPleg::new(runtime.clone(), cache.clone()).with_max_concurrent_inspections(100);
    let (handle, shutdown) = (pleg.handle(), CancellationToken::new());
    let mut events = handle.subscribe();
    let watching = tokio::spawn(pleg.run(shutdown.clone()));
    let (mut seen, mut ids, mut uids) = (Vec::new(), 0, Vec::new());
    for op in ops.iter().chain(&[Op::Pass(60_000)]) {
        {
            let mut state = runtime.state.lock();
            apply(&mut state, op, &mut ids);
            for pod in &state.pods {
                if !uids.contains(&pod.uid) {
                    uids.push(pod.uid.clone());
                }
            }
        }
        match *op {
            Op::Relist(pod) if !uids.is_empty() => handle.request_relist(&uids[pod % uids.len()]),
            Op::Reinspect(pod) if !uids.is_empty() => handle.request_reinspect(&uids[pod % uids.len()]),
            Op::Pass(millis) => sleep(Duration::from_millis(millis)).await,
            _ => {}
        }
        let told = std::iter::from_fn(|| events.next().now_or_never().flatten());
        let entries = uids.iter().map(|uid| {
            let observed = cache.observed_at(uid).map(|observed| observed - start);
            let status = cache.get(uid).map(|status| {
                let read_at = status.timestamp - start;
                (status.containers.clone(), status.sandboxes.clone(), read_at)
            });
            (uid.clone(), observed, status.map_err(|error| error.to_string()))
        });
        let mut state = runtime.state.lock();
        seen.push(Seen {
            events: told.collect(),
            cache: entries.collect(),
            read: std::mem::take(&mut state.read),
            lists: state.lists,
        });
    }
    shutdown.cancel();
    watching.await.unwrap();
    seen
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_rebuilt_list_is_as_good_as_a_reused_one(ops in prop::collection::vec(op(), 1..60)) {
        let play = |lists| {
            let tokio = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
            tokio.unwrap().block_on(play(&ops, lists))
        };
        let reused = play(Lists::Reused);
        for lists in [Lists::Rebuilt, Lists::Mixed] {
            for (step, (reused, other)) in reused.iter().zip(play(lists)).enumerate() {
                prop_assert_eq!(reused, &other, "{:?}, step {}: {:?}", lists, step, ops.get(step));
            }
        }
    }
}
