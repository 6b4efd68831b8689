//! One run of the agent.

use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::GUARD;
use super::told::{Line, StatusExt, Told};

/// A running agent. Drop kills it; the node cleans up its containers.
pub(crate) struct Agent {
    child: Child,
    told: watch::Receiver<Told>,
    started: Instant,
    _reading: JoinSet<()>,
}

impl Agent {
    pub(crate) fn spawn(command: &mut Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().unwrap();
        let (telling, told) = watch::channel(Told::default());
        let mut reading = JoinSet::new();
        let stdout = child.stdout.take().unwrap();
        reading.spawn(each_line(stdout, telling.clone(), |told, text| match Line::parse(text) {
            Ok(line) => told.lines.push(line),
            Err(error) => told.log.push(format!("a bad line on stdout, {error}: {text}")),
        }));
        let stderr = child.stderr.take().unwrap();
        reading.spawn(each_line(stderr, telling, |told, text| told.log.push(text.to_owned())));
        Self { child, told, started: Instant::now(), _reading: reading }
    }

    /// Waits until its output fulfils the condition, and returns the result.
    pub(crate) async fn until<T>(&mut self, what: &str, reached: impl Fn(&Told) -> Option<T>) -> T {
        let waiting = async {
            loop {
                if let Some(found) = reached(&self.told.borrow_and_update()) {
                    return Some(found);
                }
                if self.told.changed().await.is_err() {
                    return None;
                }
            }
        };
        let (found, why) = match timeout(GUARD, waiting).await {
            Ok(Some(found)) => (Some(found), ""),
            Ok(None) => (None, "the agent ended"),
            Err(_) => (None, "not in time"),
        };
        let Some(found) = found else {
            panic!("{what}: {why}; it told {:#?}", *self.told.borrow());
        };
        #[expect(clippy::print_stdout, reason = "how long it took is shown, not judged")]
        {
            println!("{what}: {:?} after the agent's start", self.started.elapsed());
        }
        found
    }

    /// Waits until the status of the newest pod with this name fulfils the condition. `pod` is the name in the
    /// manifest.
    pub(crate) async fn pod(&mut self, pod: &str, what: &str, reached: impl Fn(&Line) -> bool) -> Line {
        let found = |told: &Told| told.newest(pod).filter(|line| reached(line)).cloned();
        self.until(&format!("{pod} {what}"), found).await
    }

    /// Waits until a pod runs and all its containers are ready.
    pub(crate) async fn ready(&mut self, pod: &str) -> Line {
        self.pod(pod, "is ready", |line| line.status.as_ref().is_some_and(|status| status.is_ready())).await
    }

    /// Waits until a pod with this name and another UID is ready.
    pub(crate) async fn replaced(&mut self, pod: &str, uid: &str) -> Line {
        self.pod(pod, "is replaced", |line| {
            line.uid != uid && line.status.as_ref().is_some_and(|status| status.is_ready())
        })
        .await
    }

    /// Waits for the line that reports a pod's deletion.
    pub(crate) async fn gone(&mut self, uid: &str) {
        let gone = |told: &Told| told.latest(uid)?.status.is_none().then_some(());
        self.until(&format!("{uid} is gone"), gone).await;
    }

    /// Waits for a line on stderr that holds all these words.
    pub(crate) async fn logs(&mut self, words: &[&str]) {
        let said = |told: &Told| {
            told.log.iter().any(|line| words.iter().all(|word| line.contains(word))).then_some(())
        };
        self.until(&format!("{words:?} on stderr"), said).await;
    }

    /// Its output so far.
    pub(crate) fn told(&self) -> Told {
        self.told.borrow().clone()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = self.child.id().and_then(|pid| Pid::from_raw(pid.cast_signed())).expect("it runs");
        kill_process(pid, signal).unwrap();
    }

    /// Ctrl-C, and waits for its end.
    pub(crate) async fn interrupt(&mut self) -> (ExitStatus, Told) {
        self.signal(Signal::INT);
        self.ended().await
    }

    /// `kill -9`, and waits until it is dead.
    pub(crate) async fn kill(&mut self) -> Told {
        self.signal(Signal::KILL);
        self.ended().await.1
    }

    /// Waits until it ends by itself, and returns its output.
    pub(crate) async fn ended(&mut self) -> (ExitStatus, Told) {
        let ended = async {
            let status = self.child.wait().await.unwrap();
            // What it wrote last has been read when the readers are gone.
            while self.told.changed().await.is_ok() {}
            status
        };
        match timeout(GUARD, ended).await {
            Ok(status) => (status, self.told()),
            Err(_) => panic!("the agent does not end; it told {:#?}", self.told()),
        }
    }
}

async fn each_line(
    output: impl AsyncRead + Unpin,
    telling: watch::Sender<Told>,
    take: impl Fn(&mut Told, &str),
) {
    let mut lines = BufReader::new(output).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        telling.send_modify(|told| take(told, &line));
    }
}
