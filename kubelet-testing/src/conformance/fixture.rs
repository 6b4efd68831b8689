//! How the kit opens a runtime.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use kubelet_core::Clock;
use kubelet_cri::verbs::ContainerRuntime;
use kubelet_cri::{ImageService, RuntimeService};

use super::program::{Program, Workload};

/// The error of a fixture.
pub type FixtureError = Box<dyn std::error::Error + Send + Sync>;

/// The result of [`Fixture::open`]. `None` if the host lacks what the runtime needs. The fixture must log this
/// itself; the kit then skips the clause.
pub type Opened<F> = std::result::Result<Option<F>, FixtureError>;

/// How the kit opens your runtime, and what it must know about it.
///
/// Only [`open`](Self::open) and [`subject`](Self::subject) are required, if the runtime's containers run shell
/// commands in real time.
#[async_trait]
pub trait Fixture: Send + Sync + 'static {
    /// Opens a runtime without containers. `dir` is an empty folder for its files; the kit removes it at the end. The
    /// kit calls this once for each clause, and many runtimes run at the same time.
    async fn open(dir: &Path) -> Opened<Self>
    where
        Self: Sized;

    /// The open runtime.
    fn subject(&self) -> Subject;

    /// Restarts the agent: drops the runtime without stopping its containers, and opens it again in the same folder.
    /// The kit holds no reference to the old runtime then. Required for the capability `restart`.
    async fn reopen(&mut self) -> std::result::Result<(), FixtureError> {
        Err("the fixture cannot reopen its runtime, and must not offer `restart`".into())
    }

    /// Ends what still runs. The kit calls this at the end of each clause, also when it fails.
    async fn close(&mut self) {}

    /// How a container runs this program. The default is a shell command in an image `busybox:1.36`.
    fn workload(&self, program: &Program) -> Workload {
        program.in_shell("busybox:1.36")
    }

    /// The clock of the clauses.
    fn time() -> Time
    where
        Self: Sized,
    {
        Time::Real
    }

    /// How long a call takes at most without faults. The kit uses it as the deadline of calls that it makes hang. A
    /// short one makes tests fast; one that is too short makes them fail. The default is 1 s. No clause measures how
    /// fast a runtime is.
    fn pace(&self) -> Duration {
        Duration::from_secs(1)
    }

    /// The clock of the runtime's timestamps.
    fn clock(&self) -> Clock {
        Clock::system()
    }
}

/// A runtime with one of the two interfaces that the kit checks. The kit can also check a runtime with the five verbs
/// against the clauses of CRI; it uses a `CriAdapter` for that.
#[derive(Clone)]
#[non_exhaustive]
pub enum Subject {
    /// The five verbs.
    Verbs(Arc<dyn ContainerRuntime>),
    /// The two services of CRI.
    Cri(Arc<dyn RuntimeService>, Arc<dyn ImageService>),
}

impl Subject {
    /// A runtime with the five verbs.
    pub fn verbs(runtime: Arc<dyn ContainerRuntime>) -> Self {
        Self::Verbs(runtime)
    }

    /// A runtime that implements both services of CRI.
    pub fn cri<R: RuntimeService + ImageService + 'static>(runtime: Arc<R>) -> Self {
        Self::Cri(runtime.clone(), runtime)
    }
}

/// The clock of the clauses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Time {
    /// The host's clock, with two threads.
    Real,
    /// tokio's clock, paused: it jumps when all tasks wait. Only for runtimes that take all times from tokio.
    Paused,
}

impl Time {
    /// The time limit of the kit's waits. No clause depends on its length.
    pub(crate) fn patience(self) -> Duration {
        match self {
            Self::Real => Duration::from_secs(180),
            Self::Paused => crate::PATIENCE,
        }
    }
}
