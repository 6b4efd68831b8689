//! Restarts and outages of the server.

use std::io;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::server::ApiServer;
use super::store::Ending;

/// What a server remembers after a restart. It always keeps its objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// It also keeps the history, so watches can resume.
    Kept,
    /// It keeps no history: a client that resumes a watch gets `410 Gone`.
    Lost,
}

/// Whether the server is up, and how often it went down.
#[derive(Debug)]
pub(crate) struct Outage {
    down: Mutex<Down>,
    /// Cancels the requests that wait for an answer.
    ends: Notify,
}

#[derive(Clone, Copy, Debug)]
enum Down {
    No,
    Until(Instant),
    Forever,
}

impl Default for Outage {
    fn default() -> Self {
        Outage {
            down: Mutex::new(Down::No),
            ends: Notify::new(),
        }
    }
}

impl Outage {
    /// Refuses a connection while the server is down.
    ///
    /// # Errors
    ///
    /// `ConnectionRefused`.
    pub(crate) fn check(&self) -> io::Result<()> {
        let mut down = self.down.lock();
        match *down {
            Down::No => return Ok(()),
            Down::Until(instant) if instant <= Instant::now() => {
                *down = Down::No;
                return Ok(());
            }
            Down::Until(_) | Down::Forever => {}
        }
        Err(io::ErrorKind::ConnectionRefused.into())
    }

    /// Waits for this time, or for `None` until the server stops.
    ///
    /// # Errors
    ///
    /// `ConnectionReset` if the server stopped meanwhile.
    pub(crate) async fn wait(&self, duration: Option<Duration>) -> io::Result<()> {
        let ends = self.ends.notified();
        let passed = async {
            match duration {
                Some(duration) => tokio::time::sleep(duration).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = ends => Err(io::ErrorKind::ConnectionReset.into()),
            () = passed => Ok(()),
        }
    }

    fn set(&self, down: Down) {
        *self.down.lock() = down;
    }

    fn end_all(&self) {
        self.ends.notify_waiters();
    }
}

impl ApiServer {
    /// Stops the server and starts it again at once. All watches break, and so do the requests that are in flight.
    pub fn restart(&self, memory: Memory) {
        self.shared.outage.set(Down::No);
        self.end_connections();
        if memory == Memory::Lost {
            self.compact();
        }
    }

    /// Stops the server. All watches break, and the server refuses connections until [`restart`](Self::restart).
    pub fn stop(&self) {
        self.shared.outage.set(Down::Forever);
        self.end_connections();
    }

    /// [Stops](Self::stop) the server. It starts again after this time and keeps its history.
    pub fn down_for(&self, time: Duration) {
        self.shared.outage.set(Down::Until(Instant::now() + time));
        self.end_connections();
    }

    /// Closes all open watches cleanly, as if they had timed out.
    pub fn close_watches(&self) {
        self.shared.with_store(|store| store.end_watches(Ending::Closed));
    }

    /// Silences all open watches: they deliver nothing more and do not time out. A restart breaks them.
    pub fn silence_watches(&self) {
        self.shared.with_store(|store| store.end_watches(Ending::Silent));
    }

    fn end_connections(&self) {
        self.shared.with_store(|store| store.end_watches(Ending::Broken));
        self.shared.outage.end_all();
    }
}
