//! Termination messages.

use std::path::Path;

use super::Planned;
use crate::run::Run;

/// The maximum length of a termination message: the kubelet's `MaxContainerTerminationMessageLength`.
const MAX_TERMINATION_MESSAGE: usize = 4096;
/// The kubelet's annotation with the path of the message.
const TERMINATION_MESSAGE_PATH: &str = "io.kubernetes.container.terminationMessagePath";

/// Writes the termination message to the file that the kubelet created and mounted.
pub(super) fn leave_message(planned: &Planned, run: &Run) {
    let Some(message) = &run.termination_message else {
        return;
    };
    let config = &planned.container;
    let Some(path) = config.annotations.get(TERMINATION_MESSAGE_PATH) else {
        return;
    };
    let Some(mount) = config.mounts.iter().find(|mount| mount.container_path == *path) else {
        return;
    };
    let file = Path::new(&mount.host_path);
    let message = &message.as_bytes()[..message.len().min(MAX_TERMINATION_MESSAGE)];
    if let Err(error) = std::fs::OpenOptions::new()
        .write(true)
        .truncate(true)
        .open(file)
        .and_then(|mut file| std::io::Write::write_all(&mut file, message))
    {
        tracing::warn!(path = %file.display(), %error, "termination message cannot be written");
    }
}
