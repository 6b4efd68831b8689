//! A program that runs until the end of the run, as a service manager runs it.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::sleep;

use crate::journal::Journal;

/// How often a service manager looks after a program, and how long it waits before it starts it again.
const LOOK: Duration = Duration::from_millis(500);

/// A program that is started again whenever it ends by itself. Clones share the process.
#[derive(Clone)]
pub(crate) struct Service(Arc<Inner>);

struct Inner {
    name: String,
    program: PathBuf,
    arguments: Vec<String>,
    log: PathBuf,
    /// None while it is to be down.
    child: Mutex<Option<Child>>,
    ended_by_itself: Mutex<u32>,
}

impl Service {
    /// Starts the program. Its output is appended to `logs/NAME.log`.
    pub(crate) fn start(name: &str, program: PathBuf, arguments: Vec<String>, journal: &Journal) -> Self {
        let log = crate::folder::folder().join(format!("logs/{name}.log"));
        let inner = Inner {
            name: name.to_owned(),
            program,
            arguments,
            log,
            child: Mutex::default(),
            ended_by_itself: Mutex::default(),
        };
        let service = Self(Arc::new(inner));
        service.up();
        tokio::spawn(service.clone().look_after(journal.clone()));
        service
    }

    /// Starts the program if it is down.
    pub(crate) fn up(&self) {
        let mut child = self.0.child.lock();
        if child.is_none() {
            *child = Some(self.0.spawn());
        }
    }

    /// Kills the program (SIGKILL), and returns when it is dead. It stays down.
    pub(crate) fn kill(&self) {
        if let Some(mut child) = self.0.child.lock().take() {
            if let Ok(Some(_)) = child.try_wait() {
                *self.0.ended_by_itself.lock() += 1;
                return;
            }
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// How often the program ended by itself.
    pub(crate) fn ended_by_itself(&self) -> u32 {
        *self.0.ended_by_itself.lock()
    }

    async fn look_after(self, journal: Journal) {
        loop {
            sleep(LOOK).await;
            let mut child = self.0.child.lock();
            let Some(Ok(Some(status))) = child.as_mut().map(Child::try_wait) else {
                continue;
            };
            let times = {
                let mut ended = self.0.ended_by_itself.lock();
                *ended += 1;
                *ended
            };
            // The registrar of a CSI driver ends whenever the agent cannot register the driver.
            if times.is_power_of_two() {
                journal.note(format!("{} ended by itself, {times} times: {status}", self.0.name));
            }
            *child = Some(self.0.spawn());
        }
    }
}

impl Inner {
    fn spawn(&self) -> Child {
        let log = File::options().create(true).append(true).open(&self.log).unwrap();
        Command::new(&self.program)
            .args(&self.arguments)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", self.program.display()))
    }
}
