//! The life of containers.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use kubelet_cri::verbs::ErrorClass;
use kubelet_cri::{Code, Error, v1};
use tokio::time::{Instant, sleep, timeout_at};

use super::container::{Container, Exited, Planned, State};
use super::sandboxes::{Kind, Reserved};
use super::{Call, MemoryCri};
use crate::run::{Run, Start};

type Result<T> = std::result::Result<T, Error>;

/// A start in progress. If it is dropped before it is done, the start has failed.
struct Starting<'a> {
    runtime: &'a MemoryCri,
    container: u64,
    done: bool,
}

impl Drop for Starting<'_> {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        let now = Instant::now();
        let mut state = self.runtime.inner.state.lock();
        // If the runtime crashes meanwhile, the container is `Created` afterwards.
        let crashed = state.is_away(now);
        let finished_at = state.clock.now();
        if let Some(container) = state.containers.get_mut(self.container) {
            container.starting = false;
            if !crashed && matches!(container.state, State::Created) {
                let message = "failed to start containerd task: context canceled".to_owned();
                container.state = State::Exited(Exited::not_started(finished_at, message));
            }
        }
    }
}

impl MemoryCri {
    pub(super) async fn create(&self, request: &v1::CreateContainerRequest) -> Result<String> {
        let call = Call::CreateContainer;
        let id = &request.pod_sandbox_id;
        let config = request.config.clone().unwrap_or_default();
        let (sandbox, sandbox_id, sandbox_config) = {
            let state = self.settled(Instant::now());
            let number = state.sandboxes.find(id).map_err(|missing| {
                let message = format!("failed to find sandbox id {id:?}: {missing}");
                Error::call(missing.code(), call.name(), id, message)
            })?;
            let Some(sandbox) = state.sandboxes.get(number) else {
                return Err(Error::not_found(call.name(), id));
            };
            (number, sandbox.id.clone(), sandbox.config.clone())
        };
        if config.metadata.is_none() {
            let message = "container config must include metadata";
            return Err(Error::call(Code::Unknown, call.name(), id, message));
        }
        // containerd uses the config with which the sandbox was run, not the copy in the request.
        let planned = Planned {
            sandbox: sandbox_config,
            container: Arc::new(config),
        };
        let reserved = Reserved::new(self, call, Kind::Container, Container::name_of(&planned))?;
        let spec = planned.container.image.clone().unwrap_or_default();
        let image_id = {
            let state = self.inner.state.lock();
            let image = state.images.find(call.name(), &spec.image)?;
            image.map(|image| image.id.clone()).ok_or_else(|| {
                let message = format!(
                    "failed to check if this is a checkpoint image: failed to resolve image {:?}: not found",
                    spec.image
                );
                Error::call(Code::NotFound, call.name(), &spec.image, message)
            })?
        };
        self.latency(call).await;
        let now = Instant::now();
        let mut state = self.settled(now);
        if state.sandboxes.get(sandbox).is_none() {
            return Err(Error::not_found(call.name(), &sandbox_id));
        }
        let linux = planned.container.linux.as_ref();
        let resources = linux
            .and_then(|linux| linux.resources.clone())
            .unwrap_or_default();
        let container = Container {
            id: reserved.id.clone(),
            name: reserved.name.clone(),
            sandbox_id,
            sandbox,
            planned,
            image_id,
            created_at: 0,
            state: State::Created,
            starting: false,
            removing: false,
            resources,
            due: None,
            pid: 0,
        };
        state.create_container(container, now);
        drop(state);
        let id = reserved.id.clone();
        reserved.keep();
        Ok(id)
    }

    pub(super) async fn start(&self, id: &str) -> Result<()> {
        let call = Call::StartContainer;
        let (number, run) = self.begin_start(id)?;
        let mut starting = Starting {
            runtime: self,
            container: number,
            done: false,
        };
        match &run.start {
            Start::Takes(more) => {
                self.latency(call).await;
                if !more.is_zero() {
                    sleep(*more).await;
                }
            }
            Start::Fails(class, message) => {
                self.latency(call).await;
                starting.done = true;
                let message = format!("failed to create containerd task: {message}");
                return Err(self.not_started(number, code_of(*class), message));
            }
            Start::Hangs => pending().await,
        }
        let now = Instant::now();
        starting.done = true;
        let started = self.settled(now).start(number, run, now);
        started.map_err(|message| self.not_started(number, Code::Unknown, message))
    }

    /// Checks that a container can be started. After that nothing else can start or remove it.
    fn begin_start(&self, id: &str) -> Result<(u64, Run)> {
        let call = Call::StartContainer.name();
        let now = Instant::now();
        let mut state = self.settled(now);
        let number = self.find(&state, call, id, |id| {
            format!("an error occurred when try to find container {id:?}: ")
        })?;
        let ready = |sandbox| {
            state
                .sandboxes
                .get(sandbox)
                .filter(|sandbox| sandbox.ready)
                .is_some()
        };
        let Some(container) = state.containers.get(number) else {
            return Err(Error::not_found(call, id));
        };
        let refused = |why: &str| {
            let id = &container.id;
            let message = format!("failed to set starting state for container {id:?}: {why}");
            Err(Error::call(Code::Unknown, call, id, message))
        };
        if !matches!(container.state, State::Created) {
            return refused(&format!(
                "container is in {} state",
                container.state().as_str_name()
            ));
        }
        if container.starting {
            return refused("container is already in starting state");
        }
        if container.removing {
            return refused("container is in removing state, can't be started");
        }
        if !ready(container.sandbox) {
            let message = format!("sandbox container {:?} is not running", container.sandbox_id);
            drop(state);
            return Err(self.not_started(number, Code::Unknown, message));
        }
        let planned = container.planned.clone();
        let run = state.next_run(&planned);
        if let Some(container) = state.containers.get_mut(number) {
            container.starting = true;
        }
        Ok((number, run))
    }

    /// The start of a container failed, so it has exited. There is no event for this.
    fn not_started(&self, number: u64, code: Code, message: String) -> Error {
        let mut state = self.inner.state.lock();
        let finished_at = state.clock.now();
        let mut id = String::new();
        if let Some(container) = state.containers.get_mut(number) {
            container.starting = false;
            container.state = State::Exited(Exited::not_started(finished_at, message.clone()));
            id.clone_from(&container.id);
        }
        Error::call(code, Call::StartContainer.name(), id, message)
    }

    /// Sends SIGTERM, and SIGKILL after the grace period; SIGKILL at once if that is zero.
    pub(super) async fn stop(&self, id: &str, seconds: i64) {
        let Ok(number) = self.settled(Instant::now()).containers.find(id) else {
            return;
        };
        if !self.runs(number) {
            return;
        }
        let grace = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
        if !grace.is_zero() {
            let deadline = Instant::now() + grace;
            self.alter_life(number, |life, now| life.terminate(now));
            if timeout_at(deadline, self.wait_for_end(number)).await.is_ok() {
                return self.latency(Call::StopContainer).await;
            }
        }
        self.kill(number);
        self.wait_for_end(number).await;
        self.latency(Call::StopContainer).await;
    }

    pub(super) fn kill(&self, number: u64) {
        self.alter_life(number, |life, now| life.kill(now));
    }

    fn alter_life(&self, number: u64, alter: impl FnOnce(&mut crate::run::Life, Instant)) {
        let now = Instant::now();
        let mut state = self.settled(now);
        if let Some(container) = state.containers.get_mut(number)
            && let State::Running(running) = &mut container.state
        {
            alter(&mut running.life, now);
        }
        state.schedule(number);
        state.settle(now);
        drop(state);
        self.changed_something();
    }

    fn runs(&self, number: u64) -> bool {
        let state = self.settled(Instant::now());
        state.containers.get(number).is_some_and(Container::is_running)
    }

    /// Waits until a container does not run or does not exist.
    pub(super) async fn wait_for_end(&self, number: u64) {
        let mut changes = self.inner.changes.subscribe();
        while self.runs(number) {
            self.changed(&mut changes).await;
        }
    }

    pub(super) async fn remove(&self, id: &str) -> Result<()> {
        let call = Call::RemoveContainer;
        let Ok(number) = self.settled(Instant::now()).containers.find(id) else {
            return Ok(());
        };
        self.remove_one(call, number, Some(call)).await
    }

    /// Removes a container, and kills it first if it runs. `takes` is the call with the latency.
    pub(super) async fn remove_one(&self, call: Call, number: u64, takes: Option<Call>) -> Result<()> {
        self.kill(number);
        self.wait_for_end(number).await;
        {
            let mut state = self.settled(Instant::now());
            let Some(container) = state.containers.get_mut(number) else {
                return Ok(());
            };
            let refused = if container.starting {
                Some("container is in starting state, can't be removed")
            } else if container.removing {
                Some("container is already in removing state")
            } else {
                None
            };
            if let Some(why) = refused {
                let id = &container.id;
                let message = format!("failed to set removing state for container {id:?}: {why}");
                return Err(Error::call(Code::Unknown, call.name(), id, message));
            }
            container.removing = true;
        }
        let mut removing = Removing {
            runtime: self,
            container: number,
            done: false,
        };
        if let Some(takes) = takes {
            self.latency(takes).await;
        }
        removing.done = true;
        let now = Instant::now();
        self.settled(now).remove_container(number, now);
        Ok(())
    }

    pub(super) fn reopen_log(&self, id: &str) -> Result<()> {
        let call = Call::ReopenContainerLog.name();
        let mut state = self.settled(Instant::now());
        let number = self.find(&state, call, id, |id| {
            format!("an error occurred when try to find container {id:?}: ")
        })?;
        match state
            .containers
            .get_mut(number)
            .map(|container| &mut container.state)
        {
            Some(State::Running(running)) => match running.log.as_mut().map(|log| log.reopen()) {
                Some(Err(error)) => Err(Error::internal(call, id, error.to_string())),
                _ => Ok(()),
            },
            _ => Err(Error::call(Code::Unknown, call, id, "container is not running")),
        }
    }

    pub(super) fn update(&self, request: &v1::UpdateContainerResourcesRequest) -> Result<()> {
        let (call, id) = (Call::UpdateContainerResources.name(), &request.container_id);
        let mut state = self.settled(Instant::now());
        let number = self.find(&state, call, id, |_| "failed to find container: ".to_owned())?;
        if let (Some(container), Some(linux)) = (state.containers.get_mut(number), &request.linux) {
            merge(&mut container.resources, linux);
        }
        Ok(())
    }

    /// The container with an id; `context` is the start of containerd's message if it does not exist.
    pub(super) fn find(
        &self,
        state: &super::state::State,
        call: &'static str,
        id: &str,
        context: impl FnOnce(&str) -> String,
    ) -> Result<u64> {
        state.containers.find(id).map_err(|missing| {
            let message = format!("{}{missing}", context(id));
            Error::call(missing.code(), call, id, message)
        })
    }
}

/// A removal in progress. If it is dropped before it is done, the container stays.
struct Removing<'a> {
    runtime: &'a MemoryCri,
    container: u64,
    done: bool,
}

impl Drop for Removing<'_> {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        let mut state = self.runtime.inner.state.lock();
        if let Some(container) = state.containers.get_mut(self.container) {
            container.removing = false;
        }
    }
}

/// As in the adapter of the five verbs.
fn code_of(class: ErrorClass) -> Code {
    match class {
        ErrorClass::Transient => Code::Unavailable,
        ErrorClass::Throttled => Code::ResourceExhausted,
        ErrorClass::Permanent => Code::InvalidArgument,
        ErrorClass::Gone => Code::NotFound,
        ErrorClass::Unsupported => Code::Unimplemented,
    }
}

/// Fields that an update leaves out do not change.
fn merge(known: &mut v1::LinuxContainerResources, update: &v1::LinuxContainerResources) {
    let v1::LinuxContainerResources {
        cpu_period,
        cpu_quota,
        cpu_shares,
        memory_limit_in_bytes,
        oom_score_adj,
        cpuset_cpus,
        cpuset_mems,
        hugepage_limits,
        unified,
        memory_swap_limit_in_bytes,
    } = update;
    for (known, update) in [
        (&mut known.cpu_period, cpu_period),
        (&mut known.cpu_quota, cpu_quota),
        (&mut known.cpu_shares, cpu_shares),
        (&mut known.memory_limit_in_bytes, memory_limit_in_bytes),
        (&mut known.oom_score_adj, oom_score_adj),
        (&mut known.memory_swap_limit_in_bytes, memory_swap_limit_in_bytes),
    ] {
        if *update != 0 {
            *known = *update;
        }
    }
    for (known, update) in [
        (&mut known.cpuset_cpus, cpuset_cpus),
        (&mut known.cpuset_mems, cpuset_mems),
    ] {
        if !update.is_empty() {
            known.clone_from(update);
        }
    }
    if !hugepage_limits.is_empty() {
        known.hugepage_limits.clone_from(hugepage_limits);
    }
    known
        .unified
        .extend(unified.iter().map(|(key, value)| (key.clone(), value.clone())));
}
