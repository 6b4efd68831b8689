//! The life of sandboxes.

use std::sync::Arc;

use kubelet_cri::{Code, Error, v1};
use tokio::time::Instant;

use super::sandbox::Sandbox;
use super::{Call, MemoryCri};

type Result<T> = std::result::Result<T, Error>;

/// A name reserved for an id. Dropping it releases the name, unless it is kept.
pub(super) struct Reserved<'a> {
    runtime: &'a MemoryCri,
    kind: Kind,
    pub(super) name: String,
    pub(super) id: String,
    kept: bool,
}

#[derive(Clone, Copy)]
pub(super) enum Kind {
    Sandbox,
    Container,
}

impl<'a> Reserved<'a> {
    /// Reserves a name for a new id.
    pub(super) fn new(runtime: &'a MemoryCri, call: Call, kind: Kind, name: String) -> Result<Self> {
        let mut state = runtime.inner.state.lock();
        let (names, what, hint) = match kind {
            Kind::Sandbox => (&state.sandbox_names, "sandbox", ""),
            Kind::Container => (
                &state.container_names,
                "container",
                "; check if another CreateContainer request is in progress",
            ),
        };
        if let Some(owner) = names.get(&name) {
            let message = format!(
                "failed to reserve {what} name {name:?}{hint}: name {name:?} is reserved for {owner:?}"
            );
            return Err(Error::call(Code::FailedPrecondition, call.name(), name, message));
        }
        let id = state.new_id();
        let names = match kind {
            Kind::Sandbox => &mut state.sandbox_names,
            Kind::Container => &mut state.container_names,
        };
        names.insert(name.clone(), id.clone());
        Ok(Self {
            runtime,
            kind,
            name,
            id,
            kept: false,
        })
    }

    /// Keeps the reservation.
    pub(super) fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        if self.kept {
            return;
        }
        let mut state = self.runtime.inner.state.lock();
        match self.kind {
            Kind::Sandbox => state.sandbox_names.remove(&self.name),
            Kind::Container => state.container_names.remove(&self.name),
        };
    }
}

impl MemoryCri {
    pub(super) async fn run_sandbox(&self, request: &v1::RunPodSandboxRequest) -> Result<String> {
        let call = Call::RunPodSandbox;
        let config = request.config.clone().unwrap_or_default();
        let Some(metadata) = &config.metadata else {
            let message = "sandbox config must include metadata";
            return Err(Error::call(Code::Unknown, call.name(), "", message));
        };
        let reserved = Reserved::new(self, call, Kind::Sandbox, Sandbox::name_of(metadata))?;
        let failed = |message: String| Error::call(Code::Unknown, call.name(), &reserved.id, message);
        let handler = &request.runtime_handler;
        if !self.inner.handlers.contains(handler) {
            let message = format!(
                "unable to get OCI runtime for sandbox {:?}: no runtime for {handler:?} is configured",
                reserved.id
            );
            return Err(failed(message));
        }
        self.latency(call).await;
        let now = Instant::now();
        let sandbox = Sandbox {
            id: reserved.id.clone(),
            name: reserved.name.clone(),
            config: Arc::new(config),
            handler: handler.clone(),
            created_at: 0,
            ready: true,
            addresses: Vec::new(),
            containers: std::collections::BTreeSet::new(),
        };
        let made = self.settled(now).run_sandbox(sandbox, now);
        made.map_err(failed)?;
        let id = reserved.id.clone();
        reserved.keep();
        Ok(id)
    }

    /// Kills the containers, ends the sandbox and releases its addresses.
    pub(super) async fn stop_sandbox(&self, call: Call, number: u64) {
        let containers: Vec<_> = {
            let state = self.settled(Instant::now());
            let sandbox = state.sandboxes.get(number);
            sandbox
                .map(|sandbox| sandbox.containers.iter().copied().collect())
                .unwrap_or_default()
        };
        for container in &containers {
            self.kill(*container);
        }
        for container in containers {
            self.wait_for_end(container).await;
        }
        self.latency(call).await;
        let now = Instant::now();
        let mut state = self.settled(now);
        state.sandbox_ended(number, now);
        state.tear_down_network(number);
    }

    /// Removes the sandbox with all its containers. It ends first what still runs.
    pub(super) async fn remove_sandbox(&self, number: u64) -> Result<()> {
        let call = Call::RemovePodSandbox;
        let ready = self
            .settled(Instant::now())
            .sandboxes
            .get(number)
            .is_some_and(|sandbox| sandbox.ready || !sandbox.addresses.is_empty());
        if ready {
            self.stop_sandbox(Call::StopPodSandbox, number).await;
        }
        self.latency(call).await;
        let containers: Vec<_> = {
            let state = self.settled(Instant::now());
            let sandbox = state.sandboxes.get(number);
            sandbox
                .map(|sandbox| sandbox.containers.iter().copied().collect())
                .unwrap_or_default()
        };
        for container in containers {
            self.remove_one(call, container, None).await?;
        }
        let now = Instant::now();
        self.settled(now).remove_sandbox(number, now);
        Ok(())
    }
}
