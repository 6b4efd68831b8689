//! A runtime of pods in memory whose calls can be made to fail and to hang.
#![allow(dead_code, unreachable_pub)] // Each test binary uses its part.
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::future::pending;
use futures::stream::{self, BoxStream, StreamExt};
use kubelet_core::runtime::{
    Container, ContainerState, ContainerStatus, PodStatus, RuntimePod, Sandbox, SandboxState, SandboxStatus,
};
use kubelet_core::{
    ContainerId, Error, Jitter, PlegEvents, PlegHandle, PodCache, PodKey, PodLifecycleEventGenerator,
    PodLifecycleEventType, PodUid, Result, RuntimeReader,
};
use kubelet_pleg::{EventedPleg, GenericPleg, Inspector};
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

#[derive(Clone, Default)]
pub struct FakeRuntime(Arc<Mutex<State>>, Calls);

#[derive(Default)]
struct State {
    pods: BTreeMap<PodUid, Arc<RuntimePod>>,
    ips: HashMap<PodUid, Vec<String>>,
    list_fails: bool,
    list_hangs: bool,
    list_takes: Duration,
    unreadable: HashSet<PodUid>,
    hanging: HashSet<PodUid>,
    slow: HashMap<PodUid, Duration>,
    pod_list_hangs: HashSet<PodUid>,
    pod_list_fails: HashSet<PodUid>,
    hints: Hints,
    told: Option<mpsc::UnboundedSender<Result<PodUid>>>,
    shown: HashSet<ContainerId>,
    in_flight: usize,
    max_in_flight: usize,
}

/// How the fake answers when asked for hints.
#[derive(Clone, Copy, Default)]
pub enum Hints {
    #[default]
    None,
    /// As a gRPC server does that lacks the method: with the first item.
    Unsupported,
    Refused,
    Unanswered,
    Open,
}

/// How often what was called, to be waited for.
#[derive(Clone)]
pub struct Calls(Arc<watch::Sender<HashMap<String, usize>>>);

impl Default for Calls {
    fn default() -> Self {
        Self(Arc::new(watch::channel(HashMap::new()).0))
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the fake runtime was told to fail")]
pub struct ToldToFail;

impl FakeRuntime {
    /// Puts a pod in place: containers by id and state, at most one sandbox, `<uid>-sb`.
    pub fn set(&self, uid: &str, sandbox: Option<SandboxState>, containers: &[(&str, ContainerState)]) {
        let mut pod = RuntimePod::empty(uid.into(), PodKey::new("default", uid));
        pod.containers = containers
            .iter()
            .map(|(id, state)| container(id, *state))
            .collect();
        pod.sandboxes = sandbox
            .map(|state| self::sandbox(&format!("{uid}-sb"), state))
            .into_iter()
            .collect();
        self.put(pod);
    }

    /// Puts a pod in place with a ready sandbox.
    pub fn run(&self, uid: &str, containers: &[(&str, ContainerState)]) {
        self.set(uid, Some(SandboxState::Ready), containers);
    }

    pub fn put(&self, pod: RuntimePod) {
        self.0.lock().pods.insert(pod.uid.clone(), Arc::new(pod));
    }

    /// Puts back the very pods that were listed before.
    pub fn put_shared(&self, pods: Vec<Arc<RuntimePod>>) {
        let pods = pods.into_iter().map(|pod| (pod.uid.clone(), pod));
        self.0.lock().pods.extend(pods);
    }

    pub fn remove(&self, uid: &str) {
        self.0.lock().pods.remove(uid);
    }

    pub fn clear(&self) {
        self.0.lock().pods.clear();
    }

    pub fn listed(&self) -> Vec<Arc<RuntimePod>> {
        self.0.lock().pods.values().cloned().collect()
    }

    pub fn set_ips(&self, uid: &str, ips: &[&str]) {
        let ips = ips.iter().map(|ip| (*ip).to_owned()).collect();
        self.0.lock().ips.insert(uid.into(), ips);
    }

    pub fn fail_lists(&self, fail: bool) {
        self.0.lock().list_fails = fail;
    }

    /// Lists that begin from now on never answer.
    pub fn hang_lists(&self, hang: bool) {
        self.0.lock().list_hangs = hang;
    }

    /// A list shows what was there when it was asked for, and takes this long.
    pub fn slow_lists(&self, takes: Duration) {
        self.0.lock().list_takes = takes;
    }

    pub fn fail_status(&self, uid: &str, fail: bool) {
        set(&mut self.0.lock().unreadable, uid, fail);
    }

    pub fn hang_status(&self, uid: &str, hang: bool) {
        set(&mut self.0.lock().hanging, uid, hang);
    }

    /// A status shows what is there when it answers.
    pub fn slow_status(&self, uid: &str, takes: Duration) {
        self.0.lock().slow.insert(uid.into(), takes);
    }

    pub fn hang_pod_list(&self, uid: &str, hang: bool) {
        set(&mut self.0.lock().pod_list_hangs, uid, hang);
    }

    pub fn fail_pod_list(&self, uid: &str, fail: bool) {
        set(&mut self.0.lock().pod_list_fails, uid, fail);
    }

    /// How the next asks for hints are answered.
    pub fn hints(&self, hints: Hints) {
        self.0.lock().hints = hints;
    }

    /// Tells that a pod changed, if anybody listens.
    pub fn hint(&self, uid: &str) {
        if let Some(told) = &self.0.lock().told {
            let _ = told.send(Ok(uid.into()));
        }
    }

    /// Ends the stream of hints.
    pub fn end_hints(&self) {
        self.0.lock().told = None;
    }

    pub fn break_hints(&self) {
        if let Some(told) = self.0.lock().told.take() {
            let _ = told.send(Err(Error::runtime("GetContainerEvents", ToldToFail)));
        }
    }

    pub fn calm(&self) {
        let mut state = self.0.lock();
        state.list_fails = false;
        state.list_hangs = false;
        state.list_takes = Duration::ZERO;
        state.unreadable.clear();
        state.hanging.clear();
        state.slow.clear();
        state.pod_list_hangs.clear();
        state.pod_list_fails.clear();
    }

    /// Whether a list that succeeded showed this container or sandbox.
    pub fn has_shown(&self, id: &ContainerId) -> bool {
        self.0.lock().shown.contains(id)
    }

    fn show(&self, pods: &[Arc<RuntimePod>]) {
        let shown = &mut self.0.lock().shown;
        for pod in pods {
            shown.extend(pod.containers.iter().map(|container| container.id.clone()));
            shown.extend(pod.sandboxes.iter().map(|sandbox| sandbox.id.clone()));
        }
    }

    /// The most status calls that were under way at once.
    pub fn max_in_flight(&self) -> usize {
        self.0.lock().max_in_flight
    }

    pub fn calls(&self, call: &str) -> usize {
        self.1.0.borrow().get(call).copied().unwrap_or(0)
    }

    /// Waits until `call` was made `count` times in all.
    pub async fn called(&self, call: &str, count: usize) {
        let mut calls = self.1.0.subscribe();
        let reached = calls.wait_for(|calls| calls.get(call).copied().unwrap_or(0) >= count);
        timeout(GUARD, reached).await.expect("the call in time").unwrap();
    }

    fn call(&self, call: String) {
        self.1.0.send_modify(|calls| *calls.entry(call).or_default() += 1);
    }
}

fn set(set: &mut HashSet<PodUid>, uid: &str, on: bool) {
    if on {
        set.insert(uid.into());
    } else {
        set.remove(uid);
    }
}

/// Counts the status calls under way, dropped ones too.
struct InFlight(FakeRuntime);

impl InFlight {
    fn new(runtime: &FakeRuntime) -> Self {
        let mut state = runtime.0.lock();
        state.in_flight += 1;
        state.max_in_flight = state.max_in_flight.max(state.in_flight);
        Self(runtime.clone())
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.0.lock().in_flight -= 1;
    }
}

#[async_trait]
impl RuntimeReader for FakeRuntime {
    async fn pods(&self, all: bool) -> Result<Vec<Arc<RuntimePod>>> {
        assert!(all, "the PLEG wants ended containers too");
        self.call("pods".into());
        let (pods, fails, hangs, takes) = {
            let state = self.0.lock();
            let pods: Vec<_> = state.pods.values().cloned().collect();
            (pods, state.list_fails, state.list_hangs, state.list_takes)
        };
        if hangs {
            pending::<()>().await;
        }
        if !takes.is_zero() {
            sleep(takes).await;
        }
        if fails {
            return Err(Error::runtime("ListContainers", ToldToFail));
        }
        self.show(&pods);
        Ok(pods)
    }

    async fn pod(&self, uid: &PodUid) -> Result<Option<Arc<RuntimePod>>> {
        self.call(format!("pod {uid}"));
        let (pod, hangs, fails) = {
            let state = self.0.lock();
            (
                state.pods.get(uid).cloned(),
                state.pod_list_hangs.contains(uid),
                state.pod_list_fails.contains(uid),
            )
        };
        if hangs {
            pending::<()>().await;
        }
        if fails {
            return Err(Error::runtime_pod("ListContainers", uid, ToldToFail));
        }
        self.show(pod.as_slice());
        Ok(pod)
    }

    async fn pod_status(&self, pod: &RuntimePod) -> Result<Arc<PodStatus>> {
        let _in_flight = InFlight::new(self);
        self.call(format!("status {}", pod.uid));
        let (hangs, fails, takes) = {
            let state = self.0.lock();
            (
                state.hanging.contains(&pod.uid),
                state.unreadable.contains(&pod.uid),
                state.slow.get(&pod.uid).copied(),
            )
        };
        if let Some(takes) = takes {
            sleep(takes).await;
        }
        if hangs {
            pending::<()>().await;
        }
        if fails {
            return Err(Error::runtime_pod("PodSandboxStatus", &pod.uid, ToldToFail));
        }
        let state = self.0.lock();
        let now = state.pods.get(&pod.uid).map_or(pod, |now| now);
        let mut status = PodStatus::empty(pod.uid.clone(), pod.key.clone(), Instant::now());
        status.ips = state.ips.get(&pod.uid).cloned().unwrap_or_default();
        status.containers = now
            .containers
            .iter()
            .map(|container| {
                ContainerStatus::new(container.id.clone(), container.name.clone(), container.state)
            })
            .collect();
        status.sandboxes = now.sandboxes.iter().map(sandbox_status).collect();
        Ok(Arc::new(status))
    }

    async fn pod_hints(&self) -> Result<Option<BoxStream<'static, Result<PodUid>>>> {
        self.call("hints".into());
        let hints = self.0.lock().hints;
        match hints {
            Hints::None => Ok(None),
            Hints::Unsupported => {
                let what = "GetContainerEvents";
                Ok(Some(stream::iter([Err(Error::Unsupported { what })]).boxed()))
            }
            Hints::Refused => Err(Error::runtime("GetContainerEvents", ToldToFail)),
            Hints::Unanswered => pending().await,
            Hints::Open => {
                let (told, hints) = mpsc::unbounded_channel();
                self.0.lock().told = Some(told);
                let hints = stream::unfold(hints, async |mut hints| Some((hints.recv().await?, hints)));
                Ok(Some(hints.boxed()))
            }
        }
    }
}

pub fn container(id: &str, state: ContainerState) -> Container {
    Container {
        id: ContainerId::new("fake", id),
        name: id.to_owned(),
        image: String::new(),
        image_id: String::new(),
        image_ref: String::new(),
        image_runtime_handler: String::new(),
        hash: 0,
        state,
        sandbox_id: String::new(),
        created_at: None,
    }
}

pub fn sandbox(id: &str, state: SandboxState) -> Sandbox {
    Sandbox {
        id: ContainerId::new("fake", id),
        state,
        attempt: 0,
        created_at: None,
    }
}

fn sandbox_status(sandbox: &Sandbox) -> SandboxStatus {
    SandboxStatus {
        id: sandbox.id.id().to_owned(),
        state: sandbox.state,
        attempt: sandbox.attempt,
        created_at: None,
        ips: Vec::new(),
        host_network: false,
        network_reported: true,
        runtime_handler: String::new(),
    }
}

/// How long a test waits, in virtual time, before it gives up.
pub const GUARD: Duration = Duration::from_secs(24 * 60 * 60);

/// A pod no runtime ever has: its time in the cache is that of the last list.
pub const NOBODY: &str = "nobody";

/// A PLEG that runs over a [`FakeRuntime`].
pub struct Running {
    pub runtime: FakeRuntime,
    pub cache: PodCache,
    pub handle: Arc<dyn PlegHandle>,
    pub inspector: Inspector,
    pub events: PlegEvents,
    pub shutdown: CancellationToken,
    pub task: JoinHandle<()>,
}

impl Running {
    pub fn new() -> Self {
        Self::with(FakeRuntime::default(), |pleg| pleg)
    }

    pub fn with(runtime: FakeRuntime, settings: impl FnOnce(GenericPleg) -> GenericPleg) -> Self {
        let cache = PodCache::new();
        let pleg = settings(GenericPleg::new(Arc::new(runtime.clone()), cache.clone()));
        let inspector = pleg.inspector();
        Self::start(runtime, cache, inspector, Box::new(pleg))
    }

    /// A PLEG that is told, with a seed for its back-off.
    pub fn evented(runtime: FakeRuntime, settings: impl FnOnce(EventedPleg) -> EventedPleg) -> Self {
        let cache = PodCache::new();
        let pleg = EventedPleg::new(Arc::new(runtime.clone()), cache.clone());
        let pleg = settings(pleg.with_jitter(Jitter::from_seed(1)));
        let inspector = pleg.inspector();
        Self::start(runtime, cache, inspector, Box::new(pleg))
    }

    fn start(
        runtime: FakeRuntime,
        cache: PodCache,
        inspector: Inspector,
        pleg: Box<dyn PodLifecycleEventGenerator>,
    ) -> Self {
        let (handle, shutdown) = (pleg.handle(), CancellationToken::new());
        Self {
            inspector,
            runtime,
            cache,
            events: handle.subscribe(),
            handle,
            task: tokio::spawn(pleg.run(shutdown.clone())),
            shutdown,
        }
    }

    /// Waits until a list that begins after now was taken in; what it found may be under inspection still.
    pub async fn relisted(&self) {
        self.seen(NOBODY).await.expect("no pod, no error");
    }

    /// Waits for what is known of the pod by a list that begins after now.
    pub async fn seen(&self, uid: &str) -> Result<Arc<PodStatus>> {
        timeout(GUARD, self.cache.get_newer_than(&uid.into(), Instant::now()))
            .await
            .expect("no waiter waits for ever")
    }

    /// Waits until all pods of a list that begins after now, and these in particular, are in the cache.
    pub async fn all_seen(&self, uids: impl IntoIterator<Item = &str>) {
        let now = Instant::now();
        for uid in uids.into_iter().chain([NOBODY]) {
            let uid = PodUid::from(uid);
            let seen = self.cache.get_newer_than(&uid, now);
            let _status_or_error = timeout(GUARD, seen).await.expect("no waiter waits for ever");
        }
    }

    /// Waits for the next pod with events, and tells them as `<container> <event>`.
    pub async fn next(&mut self) -> (String, Vec<String>) {
        let next = timeout(GUARD, self.events.next())
            .await
            .expect("an event in time");
        let (uid, events) = next.expect("a PLEG that runs");
        let events = events.into_iter().map(|event| match event.container {
            Some(container) => format!("{} {:?}", container.id(), event.event_type),
            None => format!("{:?}", event.event_type),
        });
        (uid.to_string(), events.collect())
    }

    /// The event types per pod and container that wait to be taken.
    pub async fn pending(&mut self) -> Vec<(String, String, PodLifecycleEventType)> {
        let mut all = Vec::new();
        while !self.events.is_empty() {
            let (uid, events) = self.events.next().await.expect("a PLEG that runs");
            for event in events {
                let container = event.container.map(|container| container.id().to_owned());
                all.push((uid.to_string(), container.unwrap_or_default(), event.event_type));
            }
        }
        all
    }

    pub async fn stop(self) {
        self.shutdown.cancel();
        self.task.await.expect("a clean end");
    }
}
