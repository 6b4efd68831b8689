//! Who reports that the host shuts down: systemd, where it runs the host, and always whoever calls.

use kubelet_node::shutdown::{ShutdownManager, ShutdownTrigger};
use tokio_util::sync::CancellationToken;

/// Runs the manager with the sources of this host.
pub(super) async fn run(manager: ShutdownManager, trigger: ShutdownTrigger, shutdown: CancellationToken) {
    #[cfg(feature = "logind")]
    if has_logind() {
        return manager.run(both::LogindOrCall::new(trigger), shutdown).await;
    }
    manager.run(trigger, shutdown).await;
}

/// Whether systemd reports shutdowns of this host (`sd_booted`), or a bus is named.
#[cfg(feature = "logind")]
fn has_logind() -> bool {
    std::path::Path::new("/run/systemd/system").is_dir()
        || std::env::var_os("DBUS_SYSTEM_BUS_ADDRESS").is_some()
}

#[cfg(feature = "logind")]
mod both {
    use std::time::Duration;

    use async_trait::async_trait;
    use kubelet_node::Result;
    use kubelet_node::shutdown::{Inhibitor, Logind, ShutdownEvent, ShutdownSource, ShutdownTrigger};

    /// Logind, and calls besides.
    pub(super) struct LogindOrCall {
        logind: Logind,
        trigger: ShutdownTrigger,
    }

    impl LogindOrCall {
        pub(super) fn new(trigger: ShutdownTrigger) -> Self {
            Self {
                logind: Logind::new(),
                trigger,
            }
        }
    }

    #[async_trait]
    impl ShutdownSource for LogindOrCall {
        async fn connect(&mut self) -> Result<()> {
            self.logind.connect().await
        }

        async fn current_inhibit_delay(&mut self) -> Result<Duration> {
            self.logind.current_inhibit_delay().await
        }

        async fn override_inhibit_delay(&mut self, delay: Duration) -> Result<()> {
            self.logind.override_inhibit_delay(delay).await
        }

        async fn inhibit_shutdown(&mut self) -> Result<Box<dyn Inhibitor>> {
            self.logind.inhibit_shutdown().await
        }

        async fn next_event(&mut self) -> Option<ShutdownEvent> {
            tokio::select! {
                biased;
                event = self.logind.next_event() => event,
                event = self.trigger.next_event() => event,
            }
        }
    }
}
