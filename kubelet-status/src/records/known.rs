//! What is known of what the sink has of a pod, so that it need not be asked.

use std::hash::{DefaultHasher, Hasher};
use std::io;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, PodStatus as ApiPodStatus};
use kubelet_core::PodExt;

/// So many answers wait to be shown by the source. One that comes later than so many others counts as somebody else's word, and
/// the sink is asked.
const MAX_UNSEEN: usize = 8;

/// What was last heard of a pod from the sink, or from the source that reads it there.
///
/// A pod's version seldom tells which is newer: sources keep to the one that they told first, as the kubelet's do. But they
/// show one status after another, so what is neither shown already nor an answer of the sink is somebody else's word.
#[derive(Clone, Default)]
pub(crate) struct Known {
    /// The newest the pod is known to be. Without it the sink is asked before it is told anything.
    pub(crate) there: Option<Arc<Pod>>,
    /// What the sink was told last.
    pub(crate) told: Option<Arc<ApiPodStatus>>,
    /// A call failed, and nobody knows what came of it.
    pub(crate) unsure: bool,
    /// What the source showed last.
    shown: Option<u64>,
    /// The answers that the source has yet to show.
    unseen: Vec<u64>,
    /// The source showed somebody else's word, before or after what is being sent.
    interrupted: bool,
}

impl Known {
    /// The source shows the pod so. Tells whether that is news.
    pub(crate) fn saw(&mut self, pod: &Arc<Pod>) -> bool {
        let shown = fingerprint(pod);
        let before = self.shown.replace(shown);
        if self.unsure {
            return true;
        }
        if version(pod).is_none() {
            // Whoever does not count versions is asked.
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
            // Others keep it, too.
            self.there = Some(pod.clone());
            return false;
        }
        self.interrupted = true;
        self.there = self.unseen.is_empty().then(|| pod.clone());
        true
    }

    /// The sink is told something now.
    pub(crate) fn sends(&mut self) {
        self.interrupted = false;
    }

    /// The sink was told this status, and has the pod so.
    pub(crate) fn sent(&mut self, status: Arc<ApiPodStatus>, there: Option<Arc<Pod>>) {
        self.told = Some(status);
        self.unsure = false;
        let Some(there) = there.filter(|there| version(there).is_some()) else {
            return;
        };
        let answer = fingerprint(&there);
        if self.shown == Some(answer) {
            // The source was faster, or nothing was to be told.
            self.unseen.clear();
            self.there = Some(there);
            return;
        }
        if self.unseen.len() == MAX_UNSEEN {
            self.unseen.remove(0);
        }
        self.unseen.push(answer);
        // What somebody else said meanwhile may be newer.
        self.there = Some(there).filter(|_| !self.interrupted);
    }

    /// A call failed, perhaps after it did its work.
    pub(crate) fn failed(&mut self) {
        self.there = None;
        self.unsure = true;
    }
}

/// A pod's UID and status as one number: enough to recognise a status that was seen before, without keeping it.
fn fingerprint(pod: &Pod) -> u64 {
    let mut hash = Hashing(DefaultHasher::new());
    hash.0.write(pod.uid_str().as_bytes());
    // Neither writing a status as JSON nor hashing it can fail.
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

/// API servers of v1.35 and later promise that versions can be compared as numbers.
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
