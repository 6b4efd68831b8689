//! The sink's version of a pod, as far as it is known without a request.

use std::hash::{DefaultHasher, Hasher};
use std::io;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, PodStatus as ApiPodStatus};
use kubelet_core::PodExt;

/// How many responses can be outstanding in the source's stream. If a later one appears, it counts as a change by
/// another client, and the sink is read again.
const MAX_UNSEEN: usize = 8;

/// The last known version of a pod in the sink, from its responses and from the source that reads pods there.
///
/// Resource versions do not help much: sources may repeat the first one that they sent, like the kubelet's. But a
/// source sends the statuses in order. So a status that was not seen before, and is not a response of the sink, is a
/// change by another client.
#[derive(Clone, Default)]
pub(crate) struct Known {
    /// The newest known version of the pod. Without it, the sink is read before a request.
    pub(crate) there: Option<Arc<Pod>>,
    /// The status that was sent last.
    pub(crate) told: Option<Arc<ApiPodStatus>>,
    /// A request failed, and its effect is unknown.
    pub(crate) unsure: bool,
    /// The last status from the source.
    shown: Option<u64>,
    /// The responses that the source has not shown yet.
    unseen: Vec<u64>,
    /// The source showed a change by another client, before or after the running request.
    interrupted: bool,
}

impl Known {
    /// The source shows this version. Returns whether that is a change by another client.
    pub(crate) fn saw(&mut self, pod: &Arc<Pod>) -> bool {
        let shown = fingerprint(pod);
        let before = self.shown.replace(shown);
        if self.unsure {
            return true;
        }
        if version(pod).is_none() {
            // Without resource versions, the sink is read each time.
            self.there = None;
            return true;
        }
        if let Some(there) = &self.there
            && (there.uid_str() != pod.uid_str() || version(pod) > version(there))
        {
            self.unseen.clear();
            self.there = Some(pod.clone());
            return true;
        }
        if before == Some(shown) {
            if self.unseen.is_empty() && self.there.is_some() {
                self.there = Some(pod.clone());
            }
            return false;
        }
        let answer = self.unseen.iter().position(|unseen| *unseen == shown);
        if let Some(answer) = answer {
            self.unseen.drain(..=answer);
            if !self.unseen.is_empty() {
                return false;
            }
        }
        if let Some(there) = &self.there
            && there.status == pod.status
        {
            // Other parts hold this one, too.
            self.there = Some(pod.clone());
            return false;
        }
        self.interrupted = true;
        self.there = self.unseen.is_empty().then(|| pod.clone());
        true
    }

    /// A request starts.
    pub(crate) fn sends(&mut self) {
        self.interrupted = false;
    }

    /// The request succeeded: the sink has this status, and returned this pod.
    pub(crate) fn sent(&mut self, status: Arc<ApiPodStatus>, there: Option<Arc<Pod>>) {
        self.told = Some(status);
        self.unsure = false;
        let Some(there) = there.filter(|there| version(there).is_some()) else {
            return;
        };
        let answer = fingerprint(&there);
        if self.shown == Some(answer) {
            // The source was faster, or nothing was changed.
            self.unseen.clear();
            self.there = Some(there);
            return;
        }
        if self.unseen.len() == MAX_UNSEEN {
            self.unseen.remove(0);
        }
        self.unseen.push(answer);
        // A change by another client may be newer.
        self.there = Some(there).filter(|_| !self.interrupted);
    }

    /// A request failed; it may have had an effect.
    pub(crate) fn failed(&mut self) {
        self.there = None;
        self.unsure = true;
    }
}

/// A pod's UID and status as one number: enough to recognise an earlier status without storing it.
fn fingerprint(pod: &Pod) -> u64 {
    let mut hash = Hashing(DefaultHasher::new());
    hash.0.write(pod.uid_str().as_bytes());
    // Writing a status as JSON and hashing it cannot fail.
    let _ = serde_json::to_writer(&mut hash, &pod.status);
    hash.0.finish()
}

struct Hashing(DefaultHasher);

impl io::Write for Hashing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// API servers of v1.35 and later guarantee that resource versions can be compared as numbers.
fn version(pod: &Pod) -> Option<u64> {
    pod.metadata.resource_version.as_ref()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// What the source shows of the pod, and the sink answers.
    fn pod(message: &str) -> Arc<Pod> {
        Arc::new(
            serde_json::from_value(json!({
                "metadata": {"uid": "1", "resourceVersion": "1"}, "status": {"message": message},
            }))
            .unwrap(),
        )
    }

    fn there(known: &Known) -> Option<&str> {
        known.there.as_ref()?.status.as_ref()?.message.as_deref()
    }

    fn told() -> Arc<ApiPodStatus> {
        Arc::default()
    }

    #[derive(Clone, Copy)]
    enum Step {
        /// The source shows this, which is news or not.
        Saw(&'static str, bool),
        /// A send begins.
        Sends,
        /// It was answered so.
        Sent(&'static str),
        Failed,
    }

    #[test]
    fn the_newest_counts_and_others_words_are_news() {
        use Step::*;
        #[rustfmt::skip]
        let cases: &[(&str, &[Step], Option<&str>)] = &[
            ("the answer is newer than what was shown", &[Saw("a", true), Sends, Sent("b")], Some("b")),
            ("and shown later", &[Saw("a", true), Sends, Sent("b"), Saw("a", false), Saw("b", false)], Some("b")),
            ("or sooner", &[Saw("a", true), Sends, Saw("b", true), Sent("b"), Saw("b", false)], Some("b")),
            ("the source is behind by one", &[Saw("a", true), Sends, Sent("b"), Sends, Sent("c"), Saw("b", false)], Some("c")),
            ("it left one out", &[Saw("a", true), Sends, Sent("b"), Sends, Sent("c"), Saw("c", false), Saw("x", true)], Some("x")),
            ("somebody else's word", &[Saw("a", true), Sends, Sent("b"), Saw("b", false), Saw("x", true)], Some("x")),
            ("the same again", &[Saw("a", true), Sends, Sent("b"), Saw("b", false), Saw("x", true), Sends, Sent("b"),
                Saw("b", false), Saw("x", true)], Some("x")),
            ("before or after ours", &[Saw("a", true), Sends, Saw("x", true), Sent("b")], None),
            ("it was before", &[Saw("a", true), Sends, Saw("x", true), Sent("b"), Saw("b", true)], Some("b")),
            ("while an answer is on its way", &[Saw("a", true), Sends, Sent("b"), Saw("x", true)], None),
            ("nobody knows what came of it", &[Saw("a", true), Sends, Failed, Saw("b", true)], None),
            ("until it is asked", &[Saw("a", true), Sends, Failed, Saw("b", true), Sends, Sent("b")], Some("b")),
        ];
        for (name, steps, newest) in cases {
            let mut known = Known::default();
            for (number, step) in steps.iter().enumerate() {
                match *step {
                    Saw(shown, news) => assert_eq!(known.saw(&pod(shown)), news, "{name}, step {number}"),
                    Sends => known.sends(),
                    Sent(answer) => known.sent(told(), Some(pod(answer))),
                    Failed => known.failed(),
                }
            }
            assert_eq!(there(&known), *newest, "{name}");
        }
    }

    #[test]
    fn the_pod_of_the_source_takes_the_place_of_the_answer() {
        let (mut known, shown) = (Known::default(), pod("b"));
        known.saw(&pod("a"));
        known.sends();
        known.sent(told(), Some(pod("b")));
        known.saw(&shown);
        assert!(
            Arc::ptr_eq(known.there.as_ref().unwrap(), &shown),
            "one pod is kept, not two"
        );
        let again = pod("b");
        known.saw(&again);
        assert!(Arc::ptr_eq(known.there.as_ref().unwrap(), &again));
    }

    #[test]
    fn another_pod_and_one_without_a_version_are_news() {
        let mut known = Known::default();
        assert!(known.saw(&pod("a")));
        let mut made_anew = Pod::clone(&pod("a"));
        made_anew.metadata.uid = Some("2".to_owned());
        assert!(known.saw(&Arc::new(made_anew.clone())));
        assert!(known.there.is_some());
        made_anew.metadata.resource_version = None;
        assert!(known.saw(&Arc::new(made_anew)) && known.there.is_none());
    }

    #[test]
    fn answers_that_are_never_shown_are_forgotten() {
        let mut known = Known::default();
        known.saw(&pod("a"));
        for answer in 0..100 {
            known.sends();
            known.sent(told(), Some(pod(&answer.to_string())));
        }
        assert_eq!((known.unseen.len(), there(&known)), (MAX_UNSEEN, Some("99")));
        assert!(!known.saw(&pod("99")) && known.unseen.is_empty());
    }
}
