//! A container runtime in memory.

mod state;

use std::collections::HashSet;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::stream::{BoxStream, StreamExt, unfold};
use kubelet_core::{Clock, PodUid};
use kubelet_cri::verbs::{
    Container, ContainerKey, ContainerRuntime, ContainerSpec, Events, Result as VerbResult, RuntimeError,
};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use self::state::State;
use crate::Result;
use crate::run::{Run, Script, Start};
use crate::wait::patiently;

/// A container runtime in memory that implements the five verbs of `kubelet-cri`. A container is a record; the test
/// scripts when it ends, on tokio's clock. With a `CriAdapter` and a `CriRuntime` on top, a whole agent runs in
/// virtual time.
///
/// A container without a script runs until it is stopped. Containers outlive agents and adapters, as long as a clone
/// of the runtime exists. The runtime emits events when containers end ([`Events`]). It spawns no task: it processes
/// what is due when it is called.
///
/// ```
/// use std::time::Duration;
/// use kubelet_cri::verbs::{ContainerKey, ContainerRuntime, ContainerSpec};
/// use kubelet_testing::{MemoryRuntime, Run};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let runtime = MemoryRuntime::new(kubelet_core::Clock::system());
/// runtime.script("main", [Run::exits(1).after(Duration::from_secs(2)), Run::forever()]);
///
/// let first = ContainerKey::new("8a3f", "main", 0);
/// assert!(runtime.start(&ContainerSpec::new(first.clone(), "busybox")).await?.is_running());
/// tokio::time::advance(Duration::from_secs(2)).await;
/// assert_eq!(runtime.inspect(&first).await?.exit().unwrap().code, 1);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct MemoryRuntime {
    inner: Arc<Inner>,
}

struct Inner {
    clock: Clock,
    state: Mutex<State>,
    /// Something has changed that may affect when a container ends.
    changes: watch::Sender<()>,
}

/// What happened to a container of a pod, over all its attempts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tally {
    /// How often a start was requested, without requests for a started container.
    pub tries: u32,
    /// How often it was started.
    pub starts: u32,
    /// How many instances ran at the same time. More than one is a bug of the agent.
    pub most_at_once: u32,
}

impl MemoryRuntime {
    /// A runtime without containers. Its timestamps come from this clock; use the agent's.
    pub fn new(clock: Clock) -> Self {
        let inner = Inner {
            clock,
            state: Mutex::default(),
            changes: watch::Sender::new(()),
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// Scripts the containers with this name, in all pods. The first start gets the first run, the second start the
    /// second run; the last run repeats. If several scripts apply, the latest wins.
    pub fn script(&self, container: impl Into<String>, runs: impl IntoIterator<Item = Run>) {
        let container = container.into();
        self.script_where(move |spec| spec.key.container == container, runs);
    }

    /// Scripts all containers that fulfil a condition, for example on the image, the command or the pod's name.
    pub fn script_where(
        &self,
        applies: impl Fn(&ContainerSpec) -> bool + Send + Sync + 'static,
        runs: impl IntoIterator<Item = Run>,
    ) {
        self.inner.state.lock().scripts.push(Script::new(applies, runs));
    }

    /// Ends the running instances of a container with this code, as if they had exited: 137 for a `kill -9`. Returns
    /// how many there were.
    pub fn end(&self, pod: &PodUid, container: &str, code: i32) -> usize {
        let now = Instant::now();
        let mut state = self.inner.state.lock();
        let named = state
            .records
            .iter_mut()
            .filter(|(key, _)| key.pod == *pod && key.container == container);
        let mut ended = 0;
        for (_, record) in named {
            if record.look(now).is_running() {
                record.life.end_by(now, code);
                ended += 1;
            }
        }
        drop(state);
        self.inner.changes.send_replace(());
        ended
    }

    /// Stops answering: every call fails as if nothing listened. Containers continue to run.
    pub fn go_away(&self) {
        self.inner.state.lock().away = true;
    }

    /// Answers calls again.
    pub fn come_back(&self) {
        self.inner.state.lock().away = false;
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

    /// All containers that were started and not removed, in their current state.
    pub fn containers(&self) -> Vec<Container> {
        self.inner
            .state
            .lock()
            .look_at_all(Instant::now())
            .cloned()
            .collect()
    }

    /// Waits until the runtime fulfils a condition. It checks at the start, after every verb that changes something,
    /// and when a container ends.
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

    /// Waits for a verb that changes something, or the end of a container.
    async fn changed(&self, changes: &mut watch::Receiver<()>) {
        let end = self.inner.state.lock().next_end(Instant::now());
        let ended = async {
            match end {
                Some(end) => sleep_until(end).await,
                None => pending().await,
            }
        };
        tokio::select! {
            biased;
            _ = changes.changed() => {}
            () = ended => {}
        }
    }

    fn reachable(&self) -> VerbResult<()> {
        if self.inner.state.lock().away {
            return Err(RuntimeError::transient("", "the runtime is away"));
        }
        Ok(())
    }

    fn look(&self, key: &ContainerKey) -> Option<Container> {
        self.inner.state.lock().look(key, Instant::now()).cloned()
    }
}

#[async_trait]
impl ContainerRuntime for MemoryRuntime {
    fn name(&self) -> &str {
        "memory"
    }

    async fn list(&self) -> VerbResult<Vec<Container>> {
        self.reachable()?;
        Ok(self.containers())
    }

    async fn inspect(&self, key: &ContainerKey) -> VerbResult<Container> {
        self.reachable()?;
        self.look(key)
            .ok_or_else(|| RuntimeError::gone(key, "no such container"))
    }

    async fn start(&self, spec: &ContainerSpec) -> VerbResult<Container> {
        let key = &spec.key;
        self.reachable()?;
        if let Some(container) = self.look(key) {
            return Ok(container);
        }
        let run = self.inner.state.lock().next_run(spec);
        match &run.start {
            Start::Fails(class, message) => return Err(RuntimeError::new(*class, key, message)),
            Start::Hangs => pending().await,
            Start::Takes(time) if time.is_zero() => {}
            Start::Takes(time) => sleep(*time).await,
        }
        self.reachable()?;
        let now = Instant::now();
        let mut state = self.inner.state.lock();
        // Another call may have started it meanwhile.
        if !state.records.contains_key(key) {
            state.start(key, &run, now, self.inner.clock.now());
        }
        let container = state.look(key, now).cloned();
        drop(state);
        self.inner.changes.send_replace(());
        container.ok_or_else(|| RuntimeError::gone(key, "no such container"))
    }

    async fn stop(&self, key: &ContainerKey, grace: Duration) -> VerbResult<()> {
        self.reachable()?;
        let hangs = match self.inner.state.lock().records.get_mut(key) {
            None => return Ok(()),
            Some(record) if record.life.stop_hangs() => true,
            Some(record) => {
                record.life.ask_to_stop(Instant::now(), grace);
                false
            }
        };
        if hangs {
            pending::<()>().await;
        }
        self.inner.changes.send_replace(());
        let mut changes = self.inner.changes.subscribe();
        while self.look(key).is_some_and(|container| container.is_running()) {
            self.changed(&mut changes).await;
        }
        self.reachable()
    }

    async fn remove(&self, key: &ContainerKey) -> VerbResult<()> {
        self.reachable()?;
        if self.look(key).is_some_and(|container| container.is_running()) {
            return Err(RuntimeError::permanent(key, "still runs"));
        }
        self.inner.state.lock().records.remove(key);
        self.inner.changes.send_replace(());
        Ok(())
    }

    fn events(&self) -> Option<&dyn Events> {
        Some(self)
    }
}

impl Events for MemoryRuntime {
    fn watch(&self) -> BoxStream<'static, ContainerKey> {
        let ended = |runtime: &Self| {
            let containers = runtime.containers().into_iter();
            containers
                .filter(|container| !container.is_running())
                .map(|container| container.key)
        };
        let told: HashSet<_> = ended(self).collect();
        let changes = self.inner.changes.subscribe();
        let stream = unfold(
            (self.clone(), changes, told),
            move |(runtime, mut changes, mut told)| async move {
                loop {
                    let news = ended(&runtime).find(|key| !told.contains(key));
                    if let Some(key) = news {
                        told.insert(key.clone());
                        return Some((key, (runtime, changes, told)));
                    }
                    runtime.changed(&mut changes).await;
                }
            },
        );
        stream.boxed()
    }
}

kubelet_core::impl_debug!(MemoryRuntime: containers());
