//! How the kit comes by a runtime.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use kubelet_core::Clock;
use kubelet_cri::verbs::ContainerRuntime;
use kubelet_cri::{ImageService, RuntimeService};

use super::program::{Program, Workload};

/// Why a fixture failed.
pub type FixtureError = Box<dyn std::error::Error + Send + Sync>;

/// What [`Fixture::open`] gives: `None` where the host lacks what the runtime needs. The fixture says so itself; the
/// clause is then not tried.
pub type Opened<F> = std::result::Result<Option<F>, FixtureError>;

/// How the kit opens your runtime, and what it has to know of it.
///
/// Only [`open`](Self::open) and [`subject`](Self::subject) are required: a runtime whose containers run shell commands in
/// real time needs no more.
#[async_trait]
pub trait Fixture: Send + Sync + 'static {
    /// Opens a runtime without containers. `dir` is an empty folder for its files; the kit removes it in the end. Called
    /// once for each clause, and many of them run at once.
    async fn open(dir: &Path) -> Opened<Self>
    where
        Self: Sized;

    /// The runtime as it is open now.
    fn subject(&self) -> Subject;

    /// The agent dies and another takes its place: drops the runtime, without telling its containers, and opens it again
    /// on what is left. The kit holds nothing of the old one then. Needed by those who offer `restart`.
    async fn reopen(&mut self) -> std::result::Result<(), FixtureError> {
        Err("the fixture cannot reopen its runtime, and must not offer `restart`".into())
    }

    /// Ends what still runs. Called once the clause is over, however it went.
    async fn close(&mut self) {}

    /// What a container must be asked to run so that it does as a program says. A command for a shell, in an image
    /// `busybox:1.36`, unless you say otherwise.
    fn workload(&self, program: &Program) -> Workload {
        program.in_shell("busybox:1.36")
    }

    /// On which clock the clauses run.
    fn time() -> Time
    where
        Self: Sized,
    {
        Time::Real
    }

    /// How long a call takes at most when all is well. The kit gives calls a deadline of this where it has them hang, so a
    /// short one makes its tests fast, and one too short makes them fail; 1 s if not said. No clause says how fast a
    /// runtime must be.
    fn pace(&self) -> Duration {
        Duration::from_secs(1)
    }

    /// The clock of the timestamps that the runtime writes.
    fn clock(&self) -> Clock {
        Clock::system()
    }
}

/// A runtime, at one of the two heights at which it can be held to the clauses. What is on the five verbs can be held
/// to those of CRI too: the kit puts a `CriAdapter` on it.
#[derive(Clone)]
#[non_exhaustive]
pub enum Subject {
    /// Five verbs.
    Verbs(Arc<dyn ContainerRuntime>),
    /// The two services of CRI.
    Cri(Arc<dyn RuntimeService>, Arc<dyn ImageService>),
}

impl Subject {
    /// A runtime on the five verbs.
    pub fn verbs(runtime: Arc<dyn ContainerRuntime>) -> Self {
        Self::Verbs(runtime)
    }

    /// A runtime that is both services of CRI.
    pub fn cri<R: RuntimeService + ImageService + 'static>(runtime: Arc<R>) -> Self {
        Self::Cri(runtime.clone(), runtime)
    }
}

/// On which clock clauses run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Time {
    /// The host's. Two threads.
    Real,
    /// tokio's, paused: it jumps whenever all wait. For runtimes all of whose time is tokio's.
    Paused,
}

impl Time {
    /// How long the kit waits for what must come. No clause depends on its length.
    pub(crate) fn patience(self) -> Duration {
        match self {
            Self::Real => Duration::from_secs(60),
            Self::Paused => crate::PATIENCE,
        }
    }
}
