//! The back-off after a failed pull (`flowcontrol.Backoff`).

use std::collections::HashMap;
use std::time::Duration;

use kubelet_core::PodUid;
use kubelet_core::runtime::BackOff;
use parking_lot::Mutex;
use tokio::time::Instant;

/// The waits of all failed pulls, by image and pod.
pub(super) struct PullBackOff {
    initial: Duration,
    max: Duration,
    entries: Mutex<HashMap<PodUid, HashMap<String, Entry>>>,
}

struct Entry {
    wait: Duration,
    failed_at: Instant,
    /// The error of the pull.
    error: String,
}

/// The pull must still wait.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct StillWaiting {
    /// When the wait ends.
    pub(super) until: Instant,
    /// The error of the last pull.
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

    /// Records a failed pull: the next wait is twice as long as the last one, or the initial one if the last failure
    /// was long ago.
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

    /// Removes expired entries. As in the kubelet, this happens after a successful pull.
    pub(super) fn collect_garbage(&self) {
        let now = Instant::now();
        self.entries.lock().retain(|_, images| {
            images.retain(|_, entry| !self.is_over(entry, now));
            !images.is_empty()
        });
    }

    /// Removes a pod.
    pub(super) fn forget(&self, pod: &PodUid) {
        self.entries.lock().remove(pod);
    }

    /// The waits of a pod, in a fixed order.
    pub(super) fn of_pod(&self, pod: &PodUid) -> Vec<BackOff> {
        let entries = self.entries.lock();
        let images = entries.get(pod).into_iter().flatten();
        let mut back_offs: Vec<BackOff> = images
            .map(|(image, entry)| BackOff {
                key: image.clone(),
                wait: entry.wait,
                since: entry.failed_at,
                set_at: entry.failed_at,
                container: None,
                message: entry.error.clone(),
            })
            .collect();
        back_offs.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        back_offs
    }

    /// Restores the waits that [`of_pod`](Self::of_pod) returned in an earlier agent. Skips waits of containers.
    pub(super) fn restore(&self, pod: &PodUid, back_offs: Vec<BackOff>) {
        let mut entries = self.entries.lock();
        for back_off in back_offs.into_iter().filter(|wait| wait.container.is_none()) {
            let entry = Entry {
                wait: back_off.wait.min(self.max),
                failed_at: back_off.since,
                error: back_off.message,
            };
            let images = entries.entry(pod.clone()).or_default();
            images.entry(back_off.key).or_insert(entry);
        }
    }

    /// Whether nothing failed for twice the longest wait (`hasExpired`).
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
    async fn a_wait_goes_on_where_an_agent_before_this_one_has_ended() {
        let new = || PullBackOff::new(Duration::from_secs(10), Duration::from_secs(300));
        let (before, pod) = (new(), PodUid::from("a"));
        before.failed(&pod, "x", "no".to_owned());
        let until = Instant::now() + Duration::from_secs(10);
        advance(Duration::from_secs(3)).await;

        let after = new();
        after.restore(&pod, before.of_pod(&pod));
        let error = "no".to_owned();
        assert_eq!(after.check(&pod, "x"), Err(StillWaiting { until, error }));
        advance(Duration::from_secs(7)).await;
        assert!(after.check(&pod, "x").is_ok());
        after.failed(&pod, "x", "no".to_owned());
        let waiting = after.check(&pod, "x").unwrap_err();
        assert_eq!(waiting.until, Instant::now() + Duration::from_secs(20));
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
