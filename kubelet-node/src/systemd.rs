//! Notifies systemd (`sd_notify(3)`).

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use tokio::time::{interval, sleep};
use tokio_util::sync::CancellationToken;

use crate::{Error, HealthChecks, Result};

/// The shortest accepted watchdog timeout (`minimalNotifyInterval`).
const SHORTEST: Duration = Duration::from_secs(1);
/// The wait between two tries to notify the watchdog.
const RETRY: Duration = Duration::from_secs(1);

/// Sends `READY=1` to systemd and, while the agent is healthy, `WATCHDOG=1` (`pkg/kubelet/watchdog`). Without
/// systemd it does nothing.
///
/// ```no_run
/// # async fn run(kubelet: kubelet_core::Kubelet) -> kubelet_node::Result<()> {
/// use kubelet_node::{HealthChecks, SystemdNotifier};
///
/// let checks = HealthChecks::of(&kubelet.handle());
/// let notifier = SystemdNotifier::from_env()?;
/// let shutdown = tokio_util::sync::CancellationToken::new();
/// tokio::join!(kubelet.run(shutdown.clone()), notifier.run(checks, shutdown));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct SystemdNotifier {
    socket: Option<OsString>,
    watchdog: Option<Duration>,
}

impl SystemdNotifier {
    /// Reads `NOTIFY_SOCKET`, `WATCHDOG_USEC` and `WATCHDOG_PID` from the environment.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if the watchdog's timeout is not a number, or not longer than a second. A kubelet
    /// does not start then.
    pub fn from_env() -> Result<Self> {
        let of = |name: &str| std::env::var(name).ok().filter(|text| !text.is_empty());
        let watchdog = watchdog(of("WATCHDOG_USEC"), of("WATCHDOG_PID"), std::process::id())?;
        Ok(Self::new(std::env::var_os("NOTIFY_SOCKET"), watchdog))
    }

    /// A notifier for a socket, given as a path or as `@` with an abstract name. `watchdog` is the watchdog's
    /// timeout.
    pub fn new(socket: Option<OsString>, watchdog: Option<Duration>) -> Self {
        Self { socket, watchdog }
    }

    /// Sends `READY=1`. Then sends `WATCHDOG=1` twice per timeout, unless a health check fails. Runs until
    /// `shutdown`.
    ///
    /// # Cancel safety
    ///
    /// The future may be dropped at any time.
    pub async fn run(self, checks: HealthChecks, shutdown: CancellationToken) {
        let Some(socket) = self.socket else {
            return shutdown.cancelled().await;
        };
        if let Err(error) = notify(&socket, "READY=1") {
            tracing::error!(%error, "Unable to notify systemd that the agent is ready");
        }
        let Some(watchdog) = self.watchdog else {
            return shutdown.cancelled().await;
        };
        tracing::info!(interval = ?(watchdog / 2), "Starting systemd watchdog with interval");
        let looking = async {
            let mut ticks = interval(watchdog / 2);
            loop {
                ticks.tick().await;
                match checks.failed().first() {
                    Some(check) => tracing::error!(
                        check,
                        "Do not notify watchdog this iteration as the kubelet is reportedly not healthy"
                    ),
                    None => well(&socket).await,
                }
            }
        };
        shutdown.run_until_cancelled(looking).await;
    }
}

async fn well(socket: &OsStr) {
    if notify(socket, "WATCHDOG=1").is_err() {
        sleep(RETRY).await;
        if let Err(error) = notify(socket, "WATCHDOG=1") {
            tracing::error!(%error, "Failed to notify watchdog");
        }
    }
}

/// The watchdog's timeout, if systemd set one for this process (`SdWatchdogEnabled`).
fn watchdog(microseconds: Option<String>, pid: Option<String>, own_pid: u32) -> Result<Option<Duration>> {
    let invalid = |name: &str, value: &str, why: &str| Error::Invalid {
        what: format!("{name}={value}"),
        why: why.to_owned(),
    };
    let Some(text) = microseconds else { return Ok(None) };
    let number = text.parse().ok().filter(|number| *number > 0);
    let number = number.ok_or_else(|| {
        invalid(
            "WATCHDOG_USEC",
            &text,
            "configure watchdog: not a number of microseconds",
        )
    })?;
    if let Some(pid) = pid {
        let meant: u32 = pid
            .parse()
            .map_err(|_| invalid("WATCHDOG_PID", &pid, "configure watchdog: not a PID"))?;
        if meant != own_pid {
            return Ok(None);
        }
    }
    let time = Duration::from_micros(number);
    match time > SHORTEST {
        true => Ok(Some(time)),
        false => Err(invalid(
            "WATCHDOG_USEC",
            &text,
            "configure watchdog timeout too small",
        )),
    }
}

fn notify(socket: &OsStr, state: &str) -> io::Result<()> {
    let address = match socket.as_encoded_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(socket)?,
    };
    let telling = UnixDatagram::unbound()?;
    // Do not wait for a systemd that does not read.
    telling.set_nonblocking(true)?;
    telling.send_to_addr(state.as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn a_watchdog_is_what_systemd_says() {
        for (microseconds, pid, expected) in [
            (None, None, Ok(None)),
            (None, Some("7"), Ok(None)),
            (Some("30000000"), None, Ok(Some(30))),
            (Some("30000000"), Some("7"), Ok(Some(30))),
            (Some("30000000"), Some("8"), Ok(None)),
            (
                Some("30000000"),
                Some("me"),
                Err("WATCHDOG_PID=me: configure watchdog: not a PID"),
            ),
            (
                Some("1000000"),
                None,
                Err("WATCHDOG_USEC=1000000: configure watchdog timeout too small"),
            ),
            (
                Some("0"),
                None,
                Err("WATCHDOG_USEC=0: configure watchdog: not a number of microseconds"),
            ),
        ] {
            let found = watchdog(microseconds.map(str::to_owned), pid.map(str::to_owned), 7);
            let found = found.map(|time| time.map(|time| time.as_secs()));
            assert_eq!(
                found.map_err(|error| error.to_string()),
                expected.map_err(str::to_owned),
                "{microseconds:?} {pid:?}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_watchdog_is_notified_while_the_agent_is_healthy() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let systemd = UnixDatagram::bind(&path).unwrap();
        systemd.set_nonblocking(true).unwrap();
        let received = || {
            let mut words = Vec::new();
            let mut word = [0; 32];
            while let Ok(length) = systemd.recv(&mut word) {
                words.push(String::from_utf8_lossy(&word[..length]).into_owned());
            }
            words
        };
        let ill = Arc::new(AtomicBool::new(false));
        let looked = ill.clone();
        let checks = HealthChecks::new().check("loop", move || match looked.load(Ordering::Relaxed) {
            true => Err("it hangs".into()),
            false => Ok(()),
        });
        let shutdown = CancellationToken::new();
        let notifier = SystemdNotifier::new(Some(path.into_os_string()), Some(Duration::from_secs(10)));
        let running = tokio::spawn(notifier.run(checks, shutdown.clone()));

        sleep(Duration::from_secs(6)).await;
        assert_eq!(received(), ["READY=1", "WATCHDOG=1", "WATCHDOG=1"]);
        ill.store(true, Ordering::Relaxed);
        sleep(Duration::from_secs(60)).await;
        assert!(received().is_empty());
        ill.store(false, Ordering::Relaxed);
        sleep(Duration::from_secs(5)).await;
        assert_eq!(received(), ["WATCHDOG=1"]);
        shutdown.cancel();
        running.await.unwrap();
    }
}
