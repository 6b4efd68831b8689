//! Several errors as one.

use crate::Error;

/// The message alone: the caller adds the pod.
pub(super) fn in_words(error: kubelet_core::Error) -> String {
    match error {
        kubelet_core::Error::SyncPod { message, .. } | kubelet_core::Error::Certificates { message } => {
            message
        }
        error => error.to_string(),
    }
}

/// All messages, each once: `[a, b]`, or the only one (`utilerrors.NewAggregate`).
pub(super) fn aggregate(messages: Vec<String>) -> Option<Error> {
    let mut all: Vec<String> = Vec::new();
    for message in messages {
        if !all.contains(&message) {
            all.push(message);
        }
    }
    match all.as_slice() {
        [] => None,
        [only] => Some(Error::failed(only)),
        all => Some(Error::failed(format!("[{}]", all.join(", ")))),
    }
}
