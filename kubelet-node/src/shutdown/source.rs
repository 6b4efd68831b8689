//! Who reports that the host shuts down.

use std::time::Duration;

use async_trait::async_trait;

use crate::Result;

/// What happens to the host (`PrepareForShutdown`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShutdownEvent {
    /// It shuts down.
    ShuttingDown,
    /// The shutdown was cancelled.
    Cancelled,
}

/// Delays the shutdown of the host until it is dropped (`InhibitLock`).
pub trait Inhibitor: Send + Sync {}

/// A closed file lets logind continue.
#[cfg(unix)]
impl Inhibitor for std::os::fd::OwnedFd {}

/// Reports shutdowns of the host, and delays them (`systemd.DBusCon`). `Logind` (feature `systemd`) is that of systemd;
/// [`ShutdownTrigger`](super::ShutdownTrigger) is for hosts without it.
#[async_trait]
pub trait ShutdownSource: Send {
    /// Connects, or connects again, and starts to listen.
    ///
    /// # Errors
    ///
    /// If nobody answers. The manager tries again, after a second at first, then more and more rarely.
    async fn connect(&mut self) -> Result<()>;

    /// How long a shutdown can be delayed (`CurrentInhibitDelay`).
    ///
    /// # Errors
    ///
    /// If it cannot be read.
    async fn current_inhibit_delay(&mut self) -> Result<Duration>;

    /// Allows a longer delay (`OverrideInhibitDelay`, `ReloadLogindConf`). It need not take effect at once.
    ///
    /// # Errors
    ///
    /// If it cannot be set.
    async fn override_inhibit_delay(&mut self, delay: Duration) -> Result<()>;

    /// Delays the next shutdown (`InhibitShutdown`).
    ///
    /// # Errors
    ///
    /// If it is refused.
    async fn inhibit_shutdown(&mut self) -> Result<Box<dyn Inhibitor>>;

    /// Waits for the next event (`MonitorShutdown`). `None` if the connection is lost.
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any time; no event is lost.
    async fn next_event(&mut self) -> Option<ShutdownEvent>;
}
