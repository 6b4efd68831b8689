//! Why a status is refused. It is logged, and goes no further: nobody waits for a status.

use kubelet_core::{PodKey, PodUid};

/// Why a status was refused. The status reported before stands.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    /// A container that has ended for good is said to wait or run.
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
        /// The container whose status stands where another's should.
        container: String,
    },
}
