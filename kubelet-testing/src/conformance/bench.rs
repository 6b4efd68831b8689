//! The test bench of a clause: a runtime, and shortcuts to work with it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use kubelet_cri::verbs::ContainerRuntime;
use kubelet_cri::{CriAdapter, ImageService, RuntimeService};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use super::fixture::{Fixture, Subject, Time};
use super::program::{Program, Workload};
use super::verdict::{During, Outcome, Seen};
use crate::cgroups;
use crate::wait::look_period;

/// The two services of CRI.
#[derive(Clone)]
pub(crate) struct Services {
    pub(crate) runtime: Arc<dyn RuntimeService>,
    pub(crate) images: Arc<dyn ImageService>,
}

pub(crate) struct Bench {
    fixture: Box<dyn Fixture>,
    time: Time,
    pub(crate) dir: PathBuf,
    pub(crate) offers: &'static [&'static str],
    /// Returns the CRI services over a runtime with the five verbs.
    adapter: Mutex<Option<Services>>,
    made: AtomicU32,
}

impl Bench {
    pub(crate) fn new(
        fixture: Box<dyn Fixture>,
        time: Time,
        dir: &Path,
        offers: &'static [&'static str],
    ) -> Self {
        Self {
            fixture,
            time,
            dir: dir.to_owned(),
            offers,
            adapter: Mutex::default(),
            made: AtomicU32::new(0),
        }
    }

    pub(crate) async fn close(&mut self) {
        *self.adapter.lock() = None;
        self.fixture.close().await;
        for number in 0..self.made.load(Ordering::Relaxed) {
            cgroups::remove(&Self::cgroup(&self.uid_of(number)));
        }
    }

    /// The runtime, if it has the five verbs.
    pub(crate) fn verbs(&self) -> Outcome<Arc<dyn ContainerRuntime>> {
        match self.fixture.subject() {
            Subject::Verbs(runtime) => Ok(runtime),
            Subject::Cri(..) => Err(Seen::new(
                "the fixture's subject is at the height of CRI: hold it to the clauses `cri`",
            )),
        }
    }

    /// The runtime as CRI services.
    pub(crate) fn services(&self) -> Services {
        match self.fixture.subject() {
            Subject::Cri(runtime, images) => Services { runtime, images },
            Subject::Verbs(runtime) => {
                let mut adapter = self.adapter.lock();
                adapter.get_or_insert_with(|| self.adapt(runtime)).clone()
            }
        }
    }

    /// CRI services over the five verbs. All adapters have the same records; only one exists at a time.
    pub(crate) fn adapt(&self, runtime: Arc<dyn ContainerRuntime>) -> Services {
        self.adapt_within(runtime, 60 * self.pace())
    }

    pub(crate) fn adapt_within(&self, runtime: Arc<dyn ContainerRuntime>, deadline: Duration) -> Services {
        let adapter = CriAdapter::builder(runtime)
            .records_dir(self.dir.join("kit/records"))
            .deadline(deadline)
            .clock(self.fixture.clock())
            .build();
        Services {
            runtime: Arc::new(adapter.clone()),
            images: Arc::new(adapter),
        }
    }

    /// Restarts the agent: drops the runtime and opens it again.
    pub(crate) async fn reopen(&mut self) -> Outcome {
        *self.adapter.lock() = None;
        let reopened = self.fixture.reopen().await;
        reopened.map_err(|error| Seen::new(format!("the fixture did not reopen: {error}")))
    }

    pub(crate) fn offers(&self, what: &str) -> bool {
        self.offers.contains(&what)
    }

    pub(crate) fn pace(&self) -> Duration {
        self.fixture.pace()
    }

    pub(crate) fn clock(&self) -> kubelet_core::Clock {
        self.fixture.clock()
    }

    pub(crate) fn workload(&self, program: &Program) -> Workload {
        self.fixture.workload(program)
    }

    /// A UID that no other pod has, in any clause.
    pub(crate) fn uid(&self) -> String {
        self.uid_of(self.made.fetch_add(1, Ordering::Relaxed))
    }

    fn uid_of(&self, number: u32) -> String {
        let folder = self.dir.file_name().unwrap_or_default().to_string_lossy();
        format!("{}-{number}", folder.trim_start_matches('.'))
    }

    /// The cgroup of a pod, if the clause sets one. Runtimes make it, and agents remove it.
    pub(crate) fn cgroup(pod: &str) -> String {
        format!("kubelet-testing/pod{pod}")
    }

    /// The path of a container's log, in an existing folder.
    pub(crate) fn log_path(&self, pod: &str, container: &str, attempt: u32) -> Outcome<PathBuf> {
        let dir = self.log_dir(pod).join(container);
        std::fs::create_dir_all(&dir).during("make the folder of a log")?;
        Ok(dir.join(format!("{attempt}.log")))
    }

    pub(crate) fn log_dir(&self, pod: &str) -> PathBuf {
        self.dir.join("kit/logs").join(pod)
    }

    /// Polls until there is a result.
    pub(crate) async fn until<T>(
        &self,
        what: &str,
        mut look: impl AsyncFnMut() -> Outcome<Option<T>>,
    ) -> Outcome<T> {
        let patience = self.time.patience();
        let begun = Instant::now();
        loop {
            if let Some(found) = look().await? {
                return Ok(found);
            }
            if begun.elapsed() > patience {
                return Err(Seen::new(format!("{what}: not reached within {patience:?}")));
            }
            sleep(look_period(begun.elapsed())).await;
        }
    }

    /// The result of a call that must return in time.
    pub(crate) async fn answer<T>(&self, what: &str, call: impl Future<Output = T>) -> Outcome<T> {
        let patience = self.time.patience();
        let answer = tokio::time::timeout(patience, call).await;
        answer.map_err(|_| Seen::new(format!("{what}: no answer within {patience:?}")))
    }
}
