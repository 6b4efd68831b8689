//! systemd is told that the agent runs, and that it is well (`sd_notify(3)`, `pkg/kubelet/watchdog`).

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::Error;
use crate::healthz::Health;

/// Half a minute of watchdog is no watchdog at all below this (`minimalNotifyInterval`).
const SHORTEST: Duration = Duration::from_secs(1);

/// Says `READY=1`, and then `WATCHDOG=1` twice within the watchdog's time while the agent is well.
pub(crate) async fn run(health: Health, shutdown: CancellationToken) {
    if let Err(error) = notify("READY=1") {
        tracing::error!(%error, "systemd cannot be told that the agent is ready");
    }
    let Some(interval) = watchdog().map(|time| time / 2) else { return shutdown.cancelled().await };
    let mut ticks = tokio::time::interval(interval);
    while shutdown.run_until_cancelled(ticks.tick()).await.is_some() {
        match health.failed().first() {
            Some(check) => tracing::error!(check, "not well: systemd's watchdog is not notified"),
            None => {
                if let Err(error) = notify("WATCHDOG=1") {
                    tracing::error!(%error, "Failed to notify watchdog");
                }
            }
        }
    }
}

/// `WATCHDOG_USEC`, where it is meant for this process.
fn watchdog() -> Option<Duration> {
    let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
    if number("WATCHDOG_PID").is_some_and(|pid| pid != u64::from(std::process::id())) {
        return None;
    }
    let time = Duration::from_micros(number("WATCHDOG_USEC")?);
    if time <= SHORTEST {
        tracing::error!(?time, "configure watchdog timeout too small");
        return None;
    }
    Some(time)
}

/// Without `NOTIFY_SOCKET` nobody wants to know.
fn notify(state: &str) -> Result<(), Error> {
    let Some(socket) = std::env::var_os("NOTIFY_SOCKET") else { return Ok(()) };
    let address = match socket.as_encoded_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(&socket)?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address)?;
    Ok(())
}
