//! Signals that the agent ignores.
//!
//! A process inherits the ignored signals of its parent. `nohup` ignores `SIGHUP` in what it starts, and a shell script ignores
//! `SIGINT` and `SIGQUIT` in what it starts with `&`. A container of such an agent would ignore them, too: no Ctrl-C in
//! `kubectl exec -it`, no stop with `STOPSIGNAL SIGQUIT`. A signal that is handled is not inherited. So the signals that are ignored in
//! this way get a handler that does nothing.

use std::io;

use tokio::signal::unix::{SignalKind, signal};

/// Lets containers receive the signals that this process ignores. This process still ignores them.
pub(super) fn do_not_inherit_ignored() -> io::Result<()> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let ignored = ignored(&status).ok_or_else(|| io::Error::other("/proc/self/status has no SigIgn"))?;
    for kind in [
        SignalKind::hangup(),
        SignalKind::interrupt(),
        SignalKind::quit(),
        SignalKind::terminate(),
        SignalKind::user_defined1(),
        SignalKind::user_defined2(),
    ] {
        if ignored & (1 << (kind.as_raw_value() - 1)) != 0 {
            // The handler stays when the stream is dropped.
            drop(signal(kind)?);
        }
    }
    Ok(())
}

/// The set of ignored signals: bit n - 1 is signal n.
fn ignored(status: &str) -> Option<u64> {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
    u64::from_str_radix(mask.trim(), 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mask_is_read() {
        let status =
            "Name:\tsh\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000001006\nSigCgt:\t0000000000000001\n";
        assert_eq!(ignored(status), Some(0x1006));
        assert_eq!(ignored("Name:\tsh\n"), None);
        assert_eq!(ignored("SigIgn:\tall\n"), None);
    }
}
