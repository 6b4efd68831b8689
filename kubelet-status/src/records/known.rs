//! What is known of what the sink has of a pod, so that it need not be asked.

use std::cmp::Ordering;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kubelet_core::{PackedStatus, PodExt};

/// What was last heard of a pod from the sink, or from the source that reads it there.
#[derive(Clone, Default)]
pub(crate) struct Known {
    /// The newest version of the pod. Without one the sink is asked before it is told anything.
    pub(crate) there: Option<Arc<Pod>>,
    /// What the sink was told last.
    pub(crate) told: Option<PackedStatus>,
    /// A call failed, and nobody knows what came of it.
    pub(crate) unsure: bool,
}

impl Known {
    /// The source shows the pod so. Tells whether that is news.
    pub(crate) fn saw(&mut self, pod: &Arc<Pod>) -> bool {
        if self.unsure {
            return true;
        }
        let order = match &self.there {
            Some(there) => version(pod).zip(version(there)).map(|(new, old)| new.cmp(&old)),
            None => version(pod).map(|_| Ordering::Greater),
        };
        match order {
            Some(Ordering::Greater) => self.there = Some(pod.clone()),
            // The answer to our own patch, seen again: others keep it, too.
            Some(Ordering::Equal) => {
                self.there = Some(pod.clone());
                return false;
            }
            // The watch is behind it.
            Some(Ordering::Less) => return false,
            // Whoever does not count versions is asked.
            None => self.there = None,
        }
        true
    }

    /// The sink was told this status, and has the pod so.
    pub(crate) fn sent(&mut self, status: PackedStatus, there: Option<Arc<Pod>>) {
        self.told = Some(status);
        self.unsure = false;
        if let Some(there) = there {
            let of_now = self.there.as_ref().filter(|now| now.uid_str() == there.uid_str());
            let older = of_now.and_then(|now| Some(version(&there)? < version(now)?));
            if older != Some(true) {
                self.there = Some(there).filter(|there| version(there).is_some());
            }
        }
    }

    /// A call failed, perhaps after it did its work.
    pub(crate) fn failed(&mut self) {
        self.there = None;
        self.unsure = true;
    }
}

/// API servers of v1.35 and later promise that versions can be compared as numbers.
fn version(pod: &Pod) -> Option<u64> {
    pod.metadata.resource_version.as_ref()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(version: Option<&str>) -> Arc<Pod> {
        Arc::new(
            serde_json::from_value(json!({"metadata": {"uid": "1", "resourceVersion": version}})).unwrap(),
        )
    }

    #[test]
    fn the_newest_version_counts_and_a_failure_forgets_it() {
        let told = || PackedStatus::of(&Arc::default());
        let there = |known: &Known| known.there.as_ref().and_then(|pod| version(pod));
        let mut known = Known::default();
        assert!(known.saw(&pod(Some("5"))) && there(&known) == Some(5));
        assert!(!known.saw(&pod(Some("5"))) && !known.saw(&pod(Some("4"))));
        known.sent(told(), Some(pod(Some("10"))));
        assert!(!known.saw(&pod(Some("9"))) && known.saw(&pod(Some("11"))));
        // A patch's answer that comes late.
        known.sent(told(), Some(pod(Some("10"))));
        assert_eq!(there(&known), Some(11));
        known.failed();
        assert!(known.saw(&pod(Some("12"))) && there(&known).is_none());
        known.sent(told(), Some(pod(Some("12"))));
        assert_eq!(there(&known), Some(12));
        assert!(known.saw(&pod(None)) && there(&known).is_none());
        assert!(known.saw(&pod(Some("none"))) && there(&known).is_none());
    }
}
