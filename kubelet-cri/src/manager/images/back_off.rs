//! Waiting after a pull that failed (`flowcontrol.Backoff`).

use std::collections::HashMap;
use std::time::Duration;

use kubelet_core::PodUid;
use parking_lot::Mutex;
use tokio::time::Instant;

/// The waits of all images that could not be pulled, each for the pod that asked for it.
pub(super) struct PullBackOff {
    initial: Duration,
    max: Duration,
    entries: Mutex<HashMap<PodUid, HashMap<String, Entry>>>,
}

struct Entry {
    wait: Duration,
    failed_at: Instant,
    /// What the pull said.
    error: String,
}

/// It is not time yet.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct StillWaiting {
    /// When it is.
    pub(super) until: Instant,
    /// How the last pull failed.
    pub(super) error: String,
}

impl PullBackOff {
    pub(super) fn new(initial: Duration, max: Duration) -> Self {
        Self {
            initial: initial.min(max),
            max,
            entries: Mutex::default(),
        }
    }

    /// Whether an image may be pulled for a pod now.
    pub(super) fn check(&self, pod: &PodUid, image: &str) -> Result<(), StillWaiting> {
        let entries = self.entries.lock();
        let Some(entry) = entries.get(pod).and_then(|images| images.get(image)) else {
            return Ok(());
        };
        let until = entry.failed_at + entry.wait;
        if Instant::now() >= until {
            return Ok(());
        }
        Err(StillWaiting {
            until,
            error: entry.error.clone(),
        })
    }

    /// A pull failed: the next wait is twice as long as the last one, or the first again when that is long past.
    pub(super) fn failed(&self, pod: &PodUid, image: &str, error: String) {
        let now = Instant::now();
        let mut entries = self.entries.lock();
        let images = entries.entry(pod.clone()).or_default();
        let last = images.get(image).filter(|entry| !self.is_over(entry, now));
        let wait = last.map_or(self.initial, |entry| (entry.wait * 2).min(self.max));
        let entry = Entry {
            wait,
            failed_at: now,
            error,
        };
        images.insert(image.to_owned(), entry);
    }

    /// Forgets what is long past; a pull that went well is the time for it, as in the kubelet.
    pub(super) fn collect_garbage(&self) {
        let now = Instant::now();
        self.entries.lock().retain(|_, images| {
            images.retain(|_, entry| !self.is_over(entry, now));
            !images.is_empty()
        });
    }

    /// Forgets a pod.
    pub(super) fn forget(&self, pod: &PodUid) {
        self.entries.lock().remove(pod);
    }

    /// Nothing failed for twice the longest wait (`hasExpired`).
    fn is_over(&self, entry: &Entry, now: Instant) -> bool {
        now - entry.failed_at > self.max * 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::advance;

    #[tokio::test(start_paused = true)]
    async fn waits_double_up_to_the_longest_and_start_anew_when_it_is_long_past() {
        let back_off = PullBackOff::new(Duration::from_secs(10), Duration::from_secs(300));
        let pod = PodUid::from("a");
        assert!(back_off.check(&pod, "x").is_ok());
        for seconds in [10, 20, 40, 80, 160, 300, 300] {
            back_off.failed(&pod, "x", "no".to_owned());
            let wait = Duration::from_secs(seconds);
            let waiting = back_off.check(&pod, "x").unwrap_err();
            assert_eq!(waiting.until, Instant::now() + wait);
            assert_eq!(waiting.error, "no");
            assert!(back_off.check(&PodUid::from("b"), "x").is_ok());
            assert!(back_off.check(&pod, "y").is_ok());
            advance(wait).await;
            assert!(back_off.check(&pod, "x").is_ok(), "{seconds}");
        }
        advance(Duration::from_secs(301)).await;
        back_off.failed(&pod, "x", "no".to_owned());
        let waiting = back_off.check(&pod, "x").unwrap_err();
        assert_eq!(waiting.until, Instant::now() + Duration::from_secs(10));
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_kept_for_ever() {
        let back_off = PullBackOff::new(Duration::from_secs(10), Duration::from_secs(300));
        back_off.failed(&"a".into(), "x", String::new());
        back_off.failed(&"b".into(), "x", String::new());
        back_off.forget(&"b".into());
        back_off.collect_garbage();
        assert_eq!(back_off.entries.lock().len(), 1);
        advance(Duration::from_secs(601)).await;
        back_off.collect_garbage();
        assert!(back_off.entries.lock().is_empty());
    }
}
