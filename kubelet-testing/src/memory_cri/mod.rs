//! A container runtime in memory that speaks CRI.

mod addresses;
mod builder;
mod call;
mod container;
mod containers;
mod events;
mod exec;
mod exec_calls;
mod faults;
mod image_service;
mod images;
mod latency;
mod lists;
mod log_file;
mod random;
mod reference;
mod runtime_service;
mod sandbox;
mod sandboxes;
mod serve;
#[cfg(feature = "simulation")]
mod starts;
mod state;
mod stats;
mod store;
mod streams;
mod termination_message;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use kubelet_core::{Clock, PodUid};
use kubelet_cri::v1;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

pub use self::builder::MemoryCriBuilder;
pub use self::call::{Answer, Call, CriCall, Subject};
pub use self::container::Planned;
pub use self::exec::ExecReply;
use self::exec::ExecScript;
pub use self::faults::{Fault, Faults};
pub use self::images::RemoteImage;
pub use self::latency::Latency;
#[cfg(feature = "api-server")]
#[cfg(feature = "simulation")]
pub(crate) use self::random::{hash, hex64};
#[cfg(feature = "simulation")]
pub(crate) use self::starts::{RunningContainer, Start};
use self::state::{Away, State};
use self::streams::Streaming;
use crate::run::{Ending, Run, Script};
use crate::wait::patiently;
use crate::{Calls, Result, Tally};

/// The error that a caller gets when the connection breaks, in grpc-go's words.
const LOST: &str = "error reading from server: EOF";

/// A container runtime in memory that speaks CRI and behaves like containerd: sandboxes, containers, images, exec,
/// statistics, logs and events, on tokio's clock. A test scripts what its containers do ([`Run`]), injects
/// [`Faults`], and asserts on the calls ([`calls`](Self::calls)).
///
/// ```
/// use std::time::Duration;
/// use kubelet_core::{Clock, PodUid};
/// use kubelet_cri::{ImageService, RuntimeService, v1};
/// use kubelet_testing::memory_cri::{Call, MemoryCri};
/// use kubelet_testing::Run;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let runtime = MemoryCri::new(Clock::system());
/// runtime.script("main", [Run::exits(3).after(Duration::from_secs(60))]);
/// runtime.faults().on(Call::StartContainer).container("main").nth(1).reply_lost();
///
/// // The calls of an agent:
/// let metadata = v1::PodSandboxMetadata { name: "web".into(), uid: "8a3f".into(), ..Default::default() };
/// let sandbox = v1::PodSandboxConfig { metadata: Some(metadata), ..Default::default() };
/// let request = v1::RunPodSandboxRequest { config: Some(sandbox.clone()), ..Default::default() };
/// let pod_sandbox_id = runtime.run_pod_sandbox(request).await?.pod_sandbox_id;
/// let image = Some(v1::ImageSpec { image: "busybox:1.36".into(), ..Default::default() });
/// runtime.pull_image(v1::PullImageRequest { image: image.clone(), ..Default::default() }).await?;
/// let metadata = Some(v1::ContainerMetadata { name: "main".into(), attempt: 0 });
/// let config = Some(v1::ContainerConfig { metadata, image, ..Default::default() });
/// let request = v1::CreateContainerRequest { pod_sandbox_id, config, sandbox_config: Some(sandbox) };
/// let container_id = runtime.create_container(request).await?.container_id;
///
/// // The runtime started it, but the caller does not get the answer.
/// let request = v1::StartContainerRequest { container_id: container_id.clone() };
/// assert!(runtime.start_container(request).await.unwrap_err().is_transient());
/// assert_eq!(runtime.running(), ["web/main#0"]);
///
/// tokio::time::advance(Duration::from_secs(60)).await;
/// let request = v1::ContainerStatusRequest { container_id, verbose: false };
/// let status = runtime.container_status(request).await?.status.unwrap();
/// assert_eq!((status.exit_code, status.reason.as_str()), (3, "Error"));
///
/// runtime.calls().assert_order(["RunPodSandbox web", "PullImage busybox:1.36", "StartContainer web/main#0"]);
/// assert_eq!(runtime.tally(&PodUid::from("8a3f"), "main").most_at_once, 1);
/// runtime.assert_consistent();
/// # Ok(())
/// # }
/// ```
///
/// # Behaviour
///
/// It behaves as containerd 2.1.9 was observed to, including error codes and messages:
///
/// * A name is reserved from the start of its creation to the end of its removal.
/// * Ids may be shortened to a unique prefix.
/// * It rejects the start of a container that was already started, or whose sandbox is not ready. The latter, and a
///   start that fails, end the container with code 128, `StartError`.
/// * Stopping something that does not exist, was never started or has ended does nothing.
/// * Removing a container kills it.
/// * A call that its caller drops is undone, except for signals: a stop that is dropped in its grace period has sent
///   SIGTERM, and does not send SIGKILL.
///
/// What that version lacks, such as the `Stream…` calls, follows the protocol. `CheckpointContainer` returns
/// `Unimplemented`. So do `Exec`, `Attach` and `PortForward`, unless the builder has a
/// [`streaming_url`](MemoryCriBuilder::streaming_url) or a [streaming server](MemoryCriBuilder::streaming).
///
/// Not modelled: what a real process would do by itself (containers follow their scripts), mounts, security, host
/// ports. Limits are stored and reported, but not enforced.
///
/// # Time, order and randomness
///
/// The runtime spawns no task. When it is called, it first processes what is due, in the order in which it became
/// due. A stream of events sleeps until something is due. So an idle hour costs nothing, and dropping the last clone
/// ends everything. Lists are in the order of creation. Ids follow from the seed and the order of calls, times from
/// the clock.
///
/// Clones share one runtime. It outlives agents and connections, as long as a clone exists.
#[derive(Clone)]
pub struct MemoryCri {
    inner: Arc<Inner>,
}

struct Inner {
    clock: Clock,
    latency: Latency,
    name: String,
    version: String,
    handlers: BTreeSet<String>,
    user_namespaces: bool,
    cgroup_driver: v1::CgroupDriver,
    streaming: Option<Streaming>,
    record_looks: bool,
    request_timeout: Option<Duration>,
    calls: Calls<CriCall>,
    faults: Faults,
    state: Mutex<State>,
    /// Something has changed that may affect what happens next.
    changes: watch::Sender<()>,
    /// The runtime crashed: calls in progress break.
    crashes: watch::Sender<()>,
}

impl MemoryCri {
    /// A runtime without containers. Its timestamps come from this clock; use the agent's.
    pub fn new(clock: Clock) -> Self {
        Self::builder(clock).build()
    }

    /// Builds a runtime with other latencies, networks or seeds.
    pub fn builder(clock: Clock) -> MemoryCriBuilder {
        MemoryCriBuilder::new(clock)
    }

    /// The faults of this runtime. There are none until you add some.
    pub fn faults(&self) -> &Faults {
        &self.inner.faults
    }

    /// The calls that it received, in order: `StartContainer web/main#0`. Calls that only read are recorded with
    /// [`record_looks`](MemoryCriBuilder::record_looks) only.
    pub fn calls(&self) -> &Calls<CriCall> {
        &self.inner.calls
    }

    /// Scripts the containers with this name, in all pods. The first start gets the first run, the second start the
    /// second run; the last run repeats. If several scripts apply, the latest wins. A container without a script runs
    /// until it is stopped.
    pub fn script(&self, container: impl Into<String>, runs: impl IntoIterator<Item = Run>) {
        let container = container.into();
        self.script_where(move |planned| planned.name() == container, runs);
    }

    /// Scripts the containers with this image, as the pod's spec names it.
    pub fn script_image(&self, image: impl Into<String>, runs: impl IntoIterator<Item = Run>) {
        let image = image.into();
        self.script_where(move |planned| planned.image() == image, runs);
    }

    /// Scripts all containers that fulfil a condition, for example on the command or the pod's name.
    pub fn script_where(
        &self,
        applies: impl Fn(&Planned) -> bool + Send + Sync + 'static,
        runs: impl IntoIterator<Item = Run>,
    ) {
        let script = Script::new(applies, runs);
        self.inner.state.lock().scripts.push(script);
    }

    /// Scripts the results of commands (`ExecSync`) in the containers with this name, one after the other; the last
    /// repeats. A command without a script exits at once with code 0.
    pub fn script_exec(&self, container: impl Into<String>, replies: impl IntoIterator<Item = ExecReply>) {
        let container = container.into();
        self.script_exec_where(move |planned, _| planned.name() == container, replies);
    }

    /// Scripts all commands that fulfil a condition.
    pub fn script_exec_where(
        &self,
        applies: impl Fn(&Planned, &[String]) -> bool + Send + Sync + 'static,
        replies: impl IntoIterator<Item = ExecReply>,
    ) {
        let script = ExecScript::new(applies, replies);
        self.inner.state.lock().execs.push(script);
    }

    /// Publishes an image in the registry. Other images can be pulled too, unless the registry is
    /// [closed](MemoryCriBuilder::closed_registry).
    pub fn publish(&self, image: RemoteImage) {
        self.inner.state.lock().images.publish(image);
    }

    /// Adds an image with this name to the image store.
    pub fn add_image(&self, name: impl Into<String>) {
        self.inner.state.lock().images.add(RemoteImage::new(name));
    }

    /// Ends the running instances of a container with this code, as if they had exited: 137 for a `kill -9`. Returns
    /// how many there were.
    pub fn end(&self, pod: &PodUid, container: &str, code: i32) -> usize {
        let now = Instant::now();
        let ended = self.settled(now).end_where(now, Ending::exit(code), |record| {
            record.planned.pod_uid() == *pod && record.planned.name() == container
        });
        self.changed_something();
        ended
    }

    /// Ends the sandboxes of a pod, as if their processes were killed. They are not ready any more, and containers
    /// that share their PID namespace are killed with them. Returns how many there were.
    pub fn end_sandbox(&self, pod: &PodUid) -> usize {
        let now = Instant::now();
        let mut state = self.settled(now);
        let ready: Vec<_> = state
            .sandboxes
            .iter()
            .filter(|(_, sandbox)| sandbox.ready && sandbox.pod_uid() == *pod)
            .map(|(number, sandbox)| (number, sandbox.shares_pids()))
            .collect();
        for (number, shares_pids) in &ready {
            state.sandbox_ended(*number, now);
            if *shares_pids {
                state.end_where(now, Ending::exit(137), |record| record.sandbox == *number);
            }
        }
        drop(state);
        self.changed_something();
        ready.len()
    }

    /// Crashes the runtime: calls in progress and event streams break, and from now on every call fails with
    /// `Unavailable`. Containers continue to run. If one ends meanwhile, the runtime notices it after
    /// [`come_back`](Self::come_back).
    pub fn crash(&self) {
        self.crash_until(Away::UntilCalledBack);
    }

    /// [Crashes](Self::crash) the runtime. It comes back by itself after this time.
    pub fn crash_for(&self, away: Duration) {
        self.crash_until(Away::Until(Instant::now() + away));
    }

    /// Reboots the host: a crash that lasts this time and ends all processes. Sandboxes are not ready, and containers
    /// have ended with 255, containerd's code for an end that it missed. Images stay.
    pub fn reboot(&self, away: Duration) {
        let back_at = self
            .inner
            .clock
            .now()
            .checked_add(away)
            .unwrap_or(self.inner.clock.now());
        self.settled(Instant::now()).power_cut(back_at);
        self.crash_for(away);
    }

    /// Answers calls again.
    pub fn come_back(&self) {
        self.inner.state.lock().away = Away::No;
        self.changed_something();
    }

    fn crash_until(&self, away: Away) {
        self.settled(Instant::now()).crash(away);
        self.inner.crashes.send_replace(());
        self.changed_something();
    }

    /// Sets the runtime condition in `Status`. With `Some` message the runtime is not ready.
    pub fn set_runtime_trouble(&self, trouble: Option<&str>) {
        self.inner.state.lock().runtime_trouble = trouble.map(str::to_owned);
    }

    /// Sets the network condition in `Status`. With `Some` message, such as `cni plugin not initialized`, the network
    /// is not ready and no sandbox gets an address.
    pub fn set_network_trouble(&self, trouble: Option<&str>) {
        self.inner.state.lock().network_trouble = trouble.map(str::to_owned);
    }

    /// What happened to a container. All zero if its start was never requested. It is kept when the container is
    /// removed.
    pub fn tally(&self, pod: &PodUid, container: &str) -> Tally {
        let tallies = &self.inner.state.lock().tallies;
        tallies
            .get(&(pod.clone(), container.to_owned()))
            .copied()
            .unwrap_or_default()
    }

    /// What happened to each container whose start was ever requested, by pod and name.
    pub fn tallies(&self) -> Vec<(PodUid, String, Tally)> {
        let tallies = &self.inner.state.lock().tallies;
        tallies
            .iter()
            .map(|((pod, container), tally)| (pod.clone(), container.clone(), *tally))
            .collect()
    }

    /// The violations that happened, in order. No agent should ever cause one: two running containers with one name
    /// in a pod, two ready sandboxes of a pod, or a running container in a sandbox that is not ready.
    pub fn violations(&self) -> Vec<String> {
        self.inner.state.lock().violations.clone()
    }

    /// Asserts that there is no [violation](Self::violations).
    ///
    /// # Panics
    ///
    /// Panics if there is one. The message has all violations and the calls that led to them.
    #[track_caller]
    pub fn assert_consistent(&self) {
        let violations = self.violations();
        assert!(violations.is_empty(), "{violations:#?}; {}", self.calls());
    }

    /// The current state of all sandboxes, the oldest first.
    pub fn sandboxes(&self) -> Vec<v1::PodSandboxStatus> {
        let state = self.settled(Instant::now());
        state
            .sandboxes
            .iter()
            .map(|(_, sandbox)| sandbox.status())
            .collect()
    }

    /// The current state of all containers, the oldest first.
    pub fn containers(&self) -> Vec<v1::ContainerStatus> {
        let state = self.settled(Instant::now());
        let containers = state.containers.iter();
        containers
            .map(|(_, container)| container.status(&state.images))
            .collect()
    }

    /// A number that grows whenever a sandbox or container may have changed.
    #[cfg(feature = "simulation")]
    pub(crate) fn version(&self) -> u64 {
        let state = self.settled(Instant::now());
        state.sandboxes.version() + state.containers.version()
    }

    /// The running containers, as `web/main#0`, in order.
    pub fn running(&self) -> Vec<String> {
        let state = self.settled(Instant::now());
        let running = state
            .containers
            .iter()
            .filter(|(_, container)| container.is_running());
        let mut running: Vec<_> = running
            .map(|(_, container)| container.planned.about().to_string())
            .collect();
        running.sort();
        running
    }

    /// Waits until the runtime fulfils a condition. It checks at the start, after each call that changes something,
    /// and whenever a container changes.
    ///
    /// # Errors
    ///
    /// [`Error::NotReached`](crate::Error::NotReached) after [`PATIENCE`](crate::PATIENCE).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn wait_until(&self, what: &str, mut reached: impl FnMut(&Self) -> bool) -> Result<()> {
        let wait = async {
            let mut changes = self.inner.changes.subscribe();
            while !reached(self) {
                self.changed(&mut changes).await;
            }
        };
        patiently(what, wait).await
    }

    /// Waits for a call that changes something, or a change of a container.
    async fn changed(&self, changes: &mut watch::Receiver<()>) {
        let due = self.settled(Instant::now()).next_due();
        let is_due = async {
            match due {
                Some(due) => sleep_until(due).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            _ = changes.changed() => {}
            () = is_due => {}
        }
    }

    fn changed_something(&self) {
        self.inner.changes.send_replace(());
    }

    /// The state, up to date.
    fn settled(&self, now: Instant) -> MutexGuard<'_, State> {
        let mut state = self.inner.state.lock();
        state.settle(now);
        state
    }
}

kubelet_core::impl_debug!(MemoryCri: running());
