//! Who reports that the host shuts down: systemd, where it runs the host, and always whoever calls.

#[cfg(feature = "systemd")]
use kubelet_node::shutdown::Logind;
use kubelet_node::shutdown::{ShutdownManager, ShutdownTrigger};
use tokio_util::sync::CancellationToken;

/// Runs the manager with the sources of this host. Calls count also where logind does not answer.
pub(super) async fn run(manager: ShutdownManager, trigger: ShutdownTrigger, shutdown: CancellationToken) {
    #[cfg(feature = "systemd")]
    if has_logind() {
        let manager = manager.calls(&trigger);
        drop(trigger);
        return manager.run(Logind::new(), shutdown).await;
    }
    manager.run(trigger, shutdown).await;
}

/// Whether systemd reports shutdowns of this host (`sd_booted`), or a bus is named.
#[cfg(feature = "systemd")]
fn has_logind() -> bool {
    std::path::Path::new("/run/systemd/system").is_dir()
        || std::env::var_os("DBUS_SYSTEM_BUS_ADDRESS").is_some()
}
