//! The limits of the process, as the configuration sets them.

use std::io::ErrorKind;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Sets how many files the agent may open (`rlimit.SetNumFiles`). A log that is followed is one.
pub(super) fn set_max_open_files(files: i64) {
    let files = u64::try_from(files).ok();
    let allowed = getrlimit(Resource::Nofile);
    let wanted = Rlimit {
        current: files,
        maximum: files,
    };
    let Err(error) = setrlimit(Resource::Nofile, wanted) else {
        return;
    };
    // Without privilege, the most that is allowed is better than nothing.
    let most = Rlimit {
        current: allowed.maximum,
        ..allowed
    };
    match setrlimit(Resource::Nofile, most) {
        Ok(()) => {
            tracing::info!(?files, most = ?allowed.maximum, %error, "the agent may open fewer files than maxOpenFiles")
        }
        Err(error) => tracing::error!(?files, %error, "Failed to set rlimit on max file handles"),
    }
}

/// Sets when the kernel kills the agent if memory is short: after its containers (`ApplyOOMScoreAdj`).
pub(super) fn set_oom_score(score: i32) {
    match std::fs::write("/proc/self/oom_score_adj", score.to_string()) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            tracing::info!(
                score,
                "the agent runs without the privilege to set its OOM score, and leaves it unchanged"
            );
        }
        Err(error) => tracing::warn!(score, %error, "cannot set the agent's OOM score"),
        Ok(()) => {}
    }
}
