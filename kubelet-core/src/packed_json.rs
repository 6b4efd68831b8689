//! JSON in fewer bytes, for what is kept of each pod and seldom looked at.

use std::sync::Arc;

use lz4_flex::block::{compress_prepend_size_with_dict, decompress_size_prepended_with_dict};

/// What stands in most of it: two containers' statuses and what a pod was allocated, as they are written.
///
/// What is packed with it is kept in memory alone, so it may change.
const TYPICAL: &str = concat!(
    r#"{"pod":{"containers":[{"name":"","resources":{"limits":{"cpu":"100m","memory":"128Mi"},"requests":{"cpu":"100m","#,
    r#""memory":"128Mi"}}}]},"conditions":[{"lastTransitionTime":"2026-01-01T00:00:00Z","#,
    r#""message":"containers with unready status: [","observedGeneration":1,"reason":"ContainersNotReady","#,
    r#""status":"False","type":"Ready"},{"lastTransitionTime":"2026-01-01T00:00:00Z","observedGeneration":1,"#,
    r#""reason":"PodCompleted","status":"False","type":"PodReadyToStartContainers"},"#,
    r#"{"lastTransitionTime":"2026-01-01T00:00:00Z","observedGeneration":1,"status":"True","#,
    r#""type":"PodReadyToStartContainers"},{"lastTransitionTime":"2026-01-01T00:00:00Z","observedGeneration":1,"#,
    r#""status":"True","type":"Initialized"},{"lastTransitionTime":"2026-01-01T00:00:00Z","observedGeneration":1,"#,
    r#""status":"True","type":"Ready"},{"lastTransitionTime":"2026-01-01T00:00:00Z","observedGeneration":1,"#,
    r#""status":"True","type":"ContainersReady"},{"lastTransitionTime":"2026-01-01T00:00:00Z","status":"True","#,
    r#""type":"PodScheduled"}],"containerStatuses":[{"containerID":"containerd://","image":"docker.io/library/","#,
    r#""imageID":"docker.io/library/@sha256:","lastState":{"terminated":{"containerID":"containerd://","exitCode":1,"#,
    r#""finishedAt":"2026-01-01T00:00:00Z","reason":"Error","startedAt":"2026-01-01T00:00:00Z"}},"name":"","#,
    r#""ready":false,"resources":{},"restartCount":1,"started":false,"#,
    r#""state":{"waiting":{"message":"back-off 5m0s restarting failed container=","reason":"CrashLoopBackOff"}},"#,
    r#""state":{"terminated":{"exitCode":0,"reason":"Completed"}}},{"allocatedResources":{"cpu":"100m","#,
    r#""memory":"128Mi"},"containerID":"containerd://","image":"registry.k8s.io/","imageID":"sha256:","lastState":{},"#,
    r#""name":"","ready":true,"resources":{"limits":{"cpu":"100m","memory":"128Mi"},"requests":{"cpu":"100m","#,
    r#""memory":"128Mi"}},"restartCount":0,"started":true,"state":{"running":{"startedAt":"2026-01-01T00:00:00Z"}},"#,
    r#""user":{"linux":{"gid":0,"supplementalGroups":[0],"uid":0}},"#,
    r#""volumeMounts":[{"mountPath":"/var/run/secrets/kubernetes.io/serviceaccount","name":"kube-api-access-","#,
    r#""readOnly":true,"recursiveReadOnly":"Disabled"}]}],"hostIP":"10.0.0.1","hostIPs":[{"ip":"10.0.0.1"}],"#,
    r#""initContainerStatuses":[],"observedGeneration":1,"phase":"Running","podIP":"10.88.0.1","#,
    r#""podIPs":[{"ip":"10.88.0.1"}],"qosClass":"BestEffort","qosClass":"Burstable","startTime":"2026-01-01T00:00:00Z"}"#,
);

/// The same in fewer bytes; equal for what is equal.
pub(crate) fn pack(json: &[u8]) -> Arc<[u8]> {
    compress_prepend_size_with_dict(json, TYPICAL.as_bytes()).into()
}

/// What was packed.
pub(crate) fn unpack(packed: &[u8]) -> Vec<u8> {
    // Only what was packed here is ever unpacked.
    decompress_size_prepended_with_dict(packed, TYPICAL.as_bytes()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_typical_takes_next_to_nothing() {
        assert!(pack(TYPICAL.as_bytes()).len() < 40);
    }

    proptest! {
        #[test]
        fn what_was_packed_is_had_back(
            pieces in vec(prop_oneof![
                (0..TYPICAL.len(), 0..200_usize).prop_map(|(at, len)| TYPICAL.as_bytes()[at..TYPICAL.len().min(at + len)].to_vec()),
                "\\PC{0,9}".prop_map(String::into_bytes),
                vec(any::<u8>(), 0..9),
            ], 0..40)
        ) {
            let json = pieces.concat();
            let packed = pack(&json);
            prop_assert_eq!(pack(&json), packed.clone());
            prop_assert_eq!(unpack(&packed), json);
        }
    }
}
