//! Why a status is rejected. It is only logged: callers do not wait for a status.

use kubelet_core::{PodKey, PodUid};

/// Why a status was rejected. The previous status stays.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    /// A container that has exited for good is reported as waiting or running.
    #[error(
        "pod {pod} ({uid}): terminated container {container:?} attempted an illegal transition to a non-terminated state"
    )]
    IllegalTransition {
        /// The pod.
        pod: PodKey,
        /// Its UID.
        uid: PodUid,
        /// The container.
        container: String,
    },

    /// The statuses of the init containers are not in the order of the pod's spec.
    #[error("pod {pod} ({uid}): init container status {container:?} does not match the pod's spec")]
    StatusMismatch {
        /// The pod.
        pod: PodKey,
        /// Its UID.
        uid: PodUid,
        /// The container whose status is out of order.
        container: String,
    },
}
