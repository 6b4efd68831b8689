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
mod termination_message;

use std::collections::BTreeSet;
use std::fmt;
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
pub(crate) use self::starts::Start;
use self::state::{Away, State};
use crate::run::{Ending, Run, Script};
use crate::wait::patiently;
use crate::{Calls, Result, Tally};

/// What a caller gets whose connection breaks: the words of grpc-go.
const LOST: &str = "error reading from server: EOF";

/// A container runtime in memory that speaks CRI, and behaves as containerd does: sandboxes, containers, images, exec,
/// statistics, logs and events, on tokio's clock. A test scripts what its containers do ([`Run`]) and what goes wrong
/// ([`Faults`]), and asserts what was asked of it ([`calls`](Self::calls)).
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
/// // What an agent does:
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
/// // It was started, but who asked for it does not learn that.
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
/// # How it behaves
///
/// As containerd 1.7.24 was seen to, in codes and words of errors too: a name is reserved from the beginning of a create to the end of
/// the remove; ids may be cut; a container that is started twice, in a sandbox that is not ready, or whose start
/// fails, is refused (the latter two end it with code 128, `StartError`); a stop of what is not there, was never
/// started or has ended does nothing; a remove kills what runs. A call that its caller drops is undone, but for
/// what it had told a container: the SIGTERM of a stop that is dropped in its grace period is sent, the SIGKILL is not.
///
/// `RuntimeConfig`, `UpdatePodSandboxResources`, the metrics and the `Stream…` calls, which that version lacks, answer as the
/// protocol says. `CheckpointContainer` is `Unimplemented`; so are `Exec`, `Attach` and `PortForward` unless the builder is
/// told [where they lead](MemoryCriBuilder::streaming_url).
///
/// Not modelled: anything a process would do by itself (it does what it is scripted to), mounts, security, limits
/// (they are kept and shown, nothing heeds them), hosts' ports.
///
/// # Time, order, chance
///
/// Nothing is spawned: what is due is done when somebody looks, in the order in which it fell due, and a stream of
/// events sleeps until then. So an idle hour costs nothing, and dropping the last clone ends all. Lists are in the order
/// in which things were made; ids follow from the seed and the order of calls, times from the clock.
///
/// Clones are the same runtime. It outlives agents and connections for as long as one is held.
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
    streaming_url: Option<String>,
    record_looks: bool,
    request_timeout: Option<Duration>,
    calls: Calls<CriCall>,
    faults: Faults,
    state: Mutex<State>,
    /// Something was done that may change what happens next.
    changes: watch::Sender<()>,
    /// It crashed: calls under way are cut off.
    crashes: watch::Sender<()>,
}

impl MemoryCri {
    /// A runtime without containers, whose timestamps are this clock's: give it the one that the agent has.
    pub fn new(clock: Clock) -> Self {
        Self::builder(clock).build()
    }

    /// For one with latencies, networks or a seed of its own.
    pub fn builder(clock: Clock) -> MemoryCriBuilder {
        MemoryCriBuilder::new(clock)
    }

    /// What goes wrong.
    pub fn faults(&self) -> &Faults {
        &self.inner.faults
    }

    /// The calls it got that do more than look, in order: `StartContainer web/main#0`. For the others too, see
    /// [`record_looks`](MemoryCriBuilder::record_looks).
    pub fn calls(&self) -> &Calls<CriCall> {
        &self.inner.calls
    }

    /// Scripts the containers of this name, in whichever pod: the first run is the first start's, the second the second's,
    /// the last is repeated. Of several scripts for one container the latest counts; without any it runs until it is
    /// stopped.
    pub fn script(&self, container: impl Into<String>, runs: impl IntoIterator<Item = Run>) {
        let container = container.into();
        self.script_where(move |planned| planned.name() == container, runs);
    }

    /// Scripts the containers of this image, as the pod's spec names it.
    pub fn script_image(&self, image: impl Into<String>, runs: impl IntoIterator<Item = Run>) {
        let image = image.into();
        self.script_where(move |planned| planned.image() == image, runs);
    }

    /// Scripts all containers of which a condition holds, such as a command or a pod's name.
    pub fn script_where(
        &self,
        applies: impl Fn(&Planned) -> bool + Send + Sync + 'static,
        runs: impl IntoIterator<Item = Run>,
    ) {
        let script = Script::new(applies, runs);
        self.inner.state.lock().scripts.push(script);
    }

    /// Scripts what commands (`ExecSync`) in the containers of this name come to, in turn; the last is repeated. Without any a
    /// command ends at once with code 0.
    pub fn script_exec(&self, container: impl Into<String>, replies: impl IntoIterator<Item = ExecReply>) {
        let container = container.into();
        self.script_exec_where(move |planned, _| planned.name() == container, replies);
    }

    /// Scripts all commands of which a condition holds.
    pub fn script_exec_where(
        &self,
        applies: impl Fn(&Planned, &[String]) -> bool + Send + Sync + 'static,
        replies: impl IntoIterator<Item = ExecReply>,
    ) {
        let script = ExecScript::new(applies, replies);
        self.inner.state.lock().execs.push(script);
    }

    /// An image in the registry, to be pulled. Anything else can be pulled too, unless it is
    /// [closed](MemoryCriBuilder::closed_registry).
    pub fn publish(&self, image: RemoteImage) {
        self.inner.state.lock().images.publish(image);
    }

    /// An image that is there already, under this name.
    pub fn add_image(&self, name: impl Into<String>) {
        self.inner.state.lock().images.add(RemoteImage::new(name));
    }

    /// Ends the running instances of a container with this code, as if by themselves: 137 for a `kill -9`. Says how many
    /// there were.
    pub fn end(&self, pod: &PodUid, container: &str, code: i32) -> usize {
        let now = Instant::now();
        let ended = self.settled(now).end_where(now, Ending::exit(code), |record| {
            record.planned.pod_uid() == *pod && record.planned.name() == container
        });
        self.changed_something();
        ended
    }

    /// Ends the sandboxes of a pod, as if their processes were killed: they are not ready any more, and containers that share
    /// their PID namespace are killed with them. Says how many there were.
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

    /// The runtime crashes: calls under way and streams of events break, and from now on every call fails with
    /// `Unavailable`. Containers live on, and end unseen; that they did is known when it [comes back](Self::come_back).
    pub fn crash(&self) {
        self.crash_until(Away::UntilCalledBack);
    }

    /// The same, and it is back after this time by itself.
    pub fn crash_for(&self, away: Duration) {
        self.crash_until(Away::Until(Instant::now() + away));
    }

    /// The host loses power and is back after this time: as a crash, but nothing runs any more. Sandboxes are not ready,
    /// and containers have ended with the code 255 that containerd gives an end that nobody saw. Images stay.
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

    /// Calls are answered again.
    pub fn come_back(&self) {
        self.inner.state.lock().away = Away::No;
        self.changed_something();
    }

    fn crash_until(&self, away: Away) {
        self.settled(Instant::now()).crash(away);
        self.inner.crashes.send_replace(());
        self.changed_something();
    }

    /// What `Status` says of the runtime: `Some` trouble, and it is not ready.
    pub fn set_runtime_trouble(&self, trouble: Option<&str>) {
        self.inner.state.lock().runtime_trouble = trouble.map(str::to_owned);
    }

    /// What `Status` says of the network: `Some` trouble, such as `cni plugin not initialized`, and it is not ready, and no
    /// sandbox gets an address.
    pub fn set_network_trouble(&self, trouble: Option<&str>) {
        self.inner.state.lock().network_trouble = trouble.map(str::to_owned);
    }

    /// What became of a container; nothing if it was never called for. Kept when the container is removed.
    pub fn tally(&self, pod: &PodUid, container: &str) -> Tally {
        let tallies = &self.inner.state.lock().tallies;
        tallies
            .get(&(pod.clone(), container.to_owned()))
            .copied()
            .unwrap_or_default()
    }

    /// What became of each container that was ever called for, by pod and name.
    pub fn tallies(&self) -> Vec<(PodUid, String, Tally)> {
        let tallies = &self.inner.state.lock().tallies;
        tallies
            .iter()
            .map(|((pod, container), tally)| (pod.clone(), container.clone(), *tally))
            .collect()
    }

    /// What no agent should ever bring about, as it came: two containers of one name of a pod running at once, two sandboxes of
    /// a pod ready at once, a container that runs in a sandbox that is not ready.
    pub fn violations(&self) -> Vec<String> {
        self.inner.state.lock().violations.clone()
    }

    /// There is no [violation](Self::violations).
    ///
    /// # Panics
    ///
    /// When there is; shows all, and the calls that led there.
    #[track_caller]
    pub fn assert_consistent(&self) {
        let violations = self.violations();
        assert!(violations.is_empty(), "{violations:#?}; {}", self.calls());
    }

    /// All sandboxes as they are now, the oldest first.
    pub fn sandboxes(&self) -> Vec<v1::PodSandboxStatus> {
        let state = self.settled(Instant::now());
        state
            .sandboxes
            .iter()
            .map(|(_, sandbox)| sandbox.status())
            .collect()
    }

    /// All containers as they are now, the oldest first.
    pub fn containers(&self) -> Vec<v1::ContainerStatus> {
        let state = self.settled(Instant::now());
        let containers = state.containers.iter();
        containers
            .map(|(_, container)| container.status(&state.images))
            .collect()
    }

    /// Grows whenever a sandbox or container may have changed.
    #[cfg(feature = "simulation")]
    pub(crate) fn version(&self) -> u64 {
        let state = self.settled(Instant::now());
        state.sandboxes.version() + state.containers.version()
    }

    /// The containers that run, as `web/main#0`, in order.
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

    /// Waits until the runtime is as wanted; looks at the start, when a call did something, and when a container does.
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

    /// Until a call did something or a container does.
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

    /// All there is to know, as of now.
    fn settled(&self, now: Instant) -> MutexGuard<'_, State> {
        let mut state = self.inner.state.lock();
        state.settle(now);
        state
    }
}

impl fmt::Debug for MemoryCri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryCri")
            .field("running", &self.running())
            .finish_non_exhaustive()
    }
}
