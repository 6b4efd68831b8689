//! Custom checks when a container starts.

use std::fmt;
use std::sync::Arc;

use tokio::time::Instant;

use super::container::{Container, State as ContainerState};
use super::state::State;
use super::{MemoryCri, Planned};
use kubelet_cri::v1;

/// A container that starts, and the containers of its sandbox.
pub(crate) struct Start<'a> {
    pub(crate) planned: &'a Planned,
    /// The sandbox's id.
    pub(crate) sandbox: &'a str,
    /// All containers of the sandbox, including the one that starts.
    pub(crate) containers: Vec<Beside<'a>>,
    /// All containers of the runtime that run already.
    pub(crate) running: Vec<RunningContainer>,
}

/// A container that runs, with the resources that it has now.
#[derive(Clone)]
pub(crate) struct RunningContainer {
    pub(crate) planned: Planned,
    pub(crate) resources: v1::LinuxContainerResources,
}

/// A container in the sandbox of one that starts.
pub(crate) struct Beside<'a> {
    pub(crate) name: &'a str,
    pub(crate) was_started: bool,
    /// Set once it has ended.
    pub(crate) exit_code: Option<i32>,
}

type Check = dyn Fn(&Start<'_>) -> Vec<String> + Send + Sync;

/// Returns the problems of a start.
#[derive(Clone)]
pub(super) struct StartCheck(Arc<Check>);

impl fmt::Debug for StartCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StartCheck")
    }
}

impl MemoryCri {
    /// The problems that this check returns for each start count as violations.
    pub(crate) fn check_starts(&self, check: impl Fn(&Start<'_>) -> Vec<String> + Send + Sync + 'static) {
        self.inner.state.lock().start_check = Some(StartCheck(Arc::new(check)));
    }

    /// All containers that run.
    pub(crate) fn running_containers(&self) -> Vec<RunningContainer> {
        self.settled(Instant::now()).running_containers()
    }
}

impl State {
    fn running_containers(&self) -> Vec<RunningContainer> {
        let containers = self.containers.iter().map(|(_, container)| container);
        let running = containers.filter(|container| container.is_running());
        running
            .map(|container| RunningContainer {
                planned: container.planned.clone(),
                resources: container.resources.clone(),
            })
            .collect()
    }

    pub(super) fn check_start(&mut self, planned: &Planned, sandbox: u64) {
        let (Some(StartCheck(check)), Some(sandbox)) =
            (self.start_check.clone(), self.sandboxes.get(sandbox))
        else {
            return;
        };
        let containers = sandbox.containers.iter();
        let start = Start {
            planned,
            sandbox: &sandbox.id,
            containers: containers
                .filter_map(|number| self.containers.get(*number))
                .map(Container::beside)
                .collect(),
            running: self.running_containers(),
        };
        let wrong = check(&start);
        self.violations.extend(
            wrong
                .into_iter()
                .map(|wrong| format!("{} {wrong}", planned.about())),
        );
    }
}

impl Container {
    fn beside(&self) -> Beside<'_> {
        Beside {
            name: self.planned.name(),
            was_started: !matches!(self.state, ContainerState::Created),
            exit_code: match &self.state {
                ContainerState::Exited(exited) => Some(exited.code),
                _ => None,
            },
        }
    }
}
