//! The server as a process that stops and comes back.

use std::io;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use super::server::ApiServer;
use super::store::Ending;

/// What a server remembers over a restart. Its objects it always keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// Old versions too: watches resume.
    Kept,
    /// Only the objects as they are: who resumes is told `410 Gone`.
    Lost,
}

/// Whether the server is up, and how often it went down.
#[derive(Debug)]
pub(crate) struct Outage {
    down: Mutex<Down>,
    /// Tells those who wait for an answer that there will be none.
    ends: watch::Sender<u64>,
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
            ends: watch::Sender::new(0),
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

    /// Waits so long, or (`None`) until the server ends.
    ///
    /// # Errors
    ///
    /// `ConnectionReset` when the server ended meanwhile.
    pub(crate) async fn wait(&self, duration: Option<Duration>) -> io::Result<()> {
        let mut ends = self.ends.subscribe();
        let passed = async {
            match duration {
                Some(duration) => tokio::time::sleep(duration).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            _ = ends.changed() => Err(io::ErrorKind::ConnectionReset.into()),
            () = passed => Ok(()),
        }
    }

    fn set(&self, down: Down) {
        *self.down.lock() = down;
    }

    fn end_all(&self) {
        self.ends.send_modify(|ends| *ends += 1);
    }
}

impl ApiServer {
    /// The server ends and is back at once: watches break, and so do the requests that hang or are slow.
    pub fn restart(&self, memory: Memory) {
        self.shared.outage.set(Down::No);
        self.end_connections();
        if memory == Memory::Lost {
            self.compact();
        }
    }

    /// The server ends: watches break, and from now on connections are refused, until [`restart`](Self::restart).
    pub fn stop(&self) {
        self.shared.outage.set(Down::Forever);
        self.end_connections();
    }

    /// As [`stop`](Self::stop), and it is back after a time, with its memory.
    pub fn down_for(&self, time: Duration) {
        self.shared.outage.set(Down::Until(Instant::now() + time));
        self.end_connections();
    }

    /// Ends all open watches in good order, as if their time were up.
    pub fn close_watches(&self) {
        self.shared.with_store(|store| store.end_watches(Ending::Closed));
    }

    /// All watches that are open now say nothing more, not even that their time is up. A restart breaks them.
    pub fn silence_watches(&self) {
        self.shared.with_store(|store| store.end_watches(Ending::Silent));
    }

    fn end_connections(&self) {
        self.shared.with_store(|store| store.end_watches(Ending::Broken));
        self.shared.outage.end_all();
    }
}
