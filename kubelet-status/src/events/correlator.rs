//! Decides whether an event is created, counted into an earlier one, combined with similar ones, or dropped as spam.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::Event as ApiEvent;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kubelet_core::TokenBucket;
use lru::LruCache;
use serde_json::{Value, json};
use tokio::time::Instant;

/// How many kinds of events are remembered (`maxLruCacheEntries`).
const REMEMBERED: usize = 4096;
/// From this number of different messages with one reason, events are combined (`defaultAggregateMaxEvents`)…
const COMBINE_FROM: usize = 10;
/// …unless there was none for this long (`defaultAggregateIntervalInSeconds`).
const COMBINE_WITHIN: Duration = Duration::from_secs(600);
/// This many events of a kind about one object can be sent at once (`defaultSpamBurst`)…
const SPAM_BURST: u32 = 25;
/// …then one every five minutes (`defaultSpamQPS`).
const SPAM_QPS: f64 = 1.0 / 300.0;

/// Answers to client-go's `EventCorrelator` with its default options. No side effects; the caller passes the time.
///
/// Its caches grow on demand: a cache with a fixed size would allocate all its entries at once.
#[derive(Debug)]
pub(crate) struct EventCorrelator {
    similar: LruCache<String, Similar>,
    sent: LruCache<String, Sent>,
    spam: LruCache<String, TokenBucket>,
}

/// What to do with an event.
#[derive(Debug, PartialEq)]
pub(crate) enum Correlated {
    /// Create this event.
    Create(Box<ApiEvent>),
    /// Patch this event, which was created before; if it is gone, create it again.
    Patch(Box<ApiEvent>, Value),
    /// Drop the event.
    Drop,
}

/// Events that differ only in their message.
#[derive(Debug)]
struct Similar {
    messages: BTreeSet<String>,
    last: Timestamp,
}

/// An event as it was sent last.
#[derive(Debug)]
struct Sent {
    count: i32,
    first: Option<Time>,
    name: Option<String>,
}

impl Default for EventCorrelator {
    fn default() -> Self {
        Self {
            similar: LruCache::unbounded(),
            sent: LruCache::unbounded(),
            spam: LruCache::unbounded(),
        }
    }
}

impl EventCorrelator {
    /// Decides and updates the counts.
    pub(crate) fn correlate(&mut self, event: ApiEvent, now: Timestamp, instant: Instant) -> Correlated {
        let (event, key) = self.combine(event, now);
        let (event, patch) = self.count(event, key);
        let limit = self.spam.get_or_insert_mut(spam_key(&event), || {
            TokenBucket::new(SPAM_QPS, SPAM_BURST, instant)
        });
        let may_pass = limit.try_take(instant);
        forget_oldest(&mut self.similar);
        forget_oldest(&mut self.sent);
        forget_oldest(&mut self.spam);
        // Dropped events are counted, too; the next one that is sent contains their count.
        match (may_pass, patch) {
            (false, _) => Correlated::Drop,
            (true, None) => Correlated::Create(Box::new(event)),
            (true, Some(patch)) => Correlated::Patch(Box::new(event), patch),
        }
    }

    /// `EventAggregate`
    fn combine(&mut self, event: ApiEvent, now: Timestamp) -> (ApiEvent, String) {
        let key = similar_key(&event);
        let message = event.message.clone().unwrap_or_default();
        let similar = self.similar.get_or_insert_mut(key.clone(), || Similar {
            messages: BTreeSet::new(),
            last: now,
        });
        if now.duration_since(similar.last).unsigned_abs() > COMBINE_WITHIN {
            similar.messages.clear();
        }
        similar.messages.insert(message.clone());
        similar.last = now;
        if similar.messages.len() < COMBINE_FROM {
            let key = event_key(&event);
            return (event, key);
        }
        similar.messages.pop_first();
        let mut combined = ApiEvent {
            message: Some(format!("(combined from similar events): {message}")),
            reporting_component: None,
            reporting_instance: None,
            ..event
        };
        combined.metadata.annotations = None;
        (combined, key)
    }

    /// `eventObserve`
    fn count(&mut self, mut event: ApiEvent, key: String) -> (ApiEvent, Option<Value>) {
        let before = self.sent.get(&key);
        let patch = before.map(|before| {
            event.metadata.name.clone_from(&before.name);
            event.first_timestamp.clone_from(&before.first);
            let count = before.count.saturating_add(1);
            event.count = Some(count);
            let mut patch = json!({"count": count, "lastTimestamp": event.last_timestamp});
            if let Some(message) = event.message.as_ref().filter(|message| !message.is_empty()) {
                patch["message"] = json!(message);
            }
            patch
        });
        let sent = Sent {
            count: event.count.unwrap_or(1),
            first: event.first_timestamp.clone(),
            name: event.metadata.name.clone(),
        };
        self.sent.put(key, sent);
        (event, patch)
    }
}

fn forget_oldest<V>(cache: &mut LruCache<String, V>) {
    while cache.len() > REMEMBERED {
        cache.pop_lru();
    }
}

/// What an event is about, and of which type, with `part` of the object and `more`.
fn key(event: &ApiEvent, part: &[Option<&String>], more: &[Option<&String>]) -> String {
    let (about, source) = (&event.involved_object, event.source.as_ref());
    let named = [
        source.and_then(|source| source.component.as_ref()),
        source.and_then(|source| source.host.as_ref()),
        about.kind.as_ref(),
        about.namespace.as_ref(),
        about.name.as_ref(),
    ];
    let identified = [
        about.uid.as_ref(),
        about.api_version.as_ref(),
        event.type_.as_ref(),
    ];
    let parts = [&named[..], part, &identified, more].concat();
    // A separator that cannot be part of a name or message, so that `ab, c` differs from `a, bc`.
    let texts = parts.into_iter().map(|part| part.map_or("", String::as_str));
    texts.collect::<Vec<_>>().join("\0")
}

/// Identifies one event (`getEventKey`).
fn event_key(event: &ApiEvent) -> String {
    let part = event.involved_object.field_path.as_ref();
    key(event, &[part], &[event.reason.as_ref(), event.message.as_ref()])
}

/// The same without the message and the part of the object (`EventAggregatorByReasonFunc`).
fn similar_key(event: &ApiEvent) -> String {
    let (component, instance) = (&event.reporting_component, &event.reporting_instance);
    key(
        event,
        &[],
        &[event.reason.as_ref(), component.as_ref(), instance.as_ref()],
    )
}

/// Identifies the type and the object (`getSpamKey`).
fn spam_key(event: &ApiEvent) -> String {
    key(event, &[], &[])
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Time {
        start: (Timestamp, Instant),
        correlator: EventCorrelator,
    }

    impl Time {
        fn new() -> Self {
            let start = (Timestamp::from_second(1_700_000_000).unwrap(), Instant::now());
            Self {
                start,
                correlator: EventCorrelator::default(),
            }
        }

        /// What comes of an event at this second.
        fn at(&mut self, second: u64, reason: &str, message: &str) -> String {
            let after = Duration::from_secs(second);
            let now = self.start.0 + after;
            let event: ApiEvent = serde_json::from_value(json!({
                "metadata": {"name": format!("web.{second}")}, "reason": reason, "message": message, "count": 1,
                "involvedObject": {"kind": "Pod", "name": "web", "uid": "1"}, "type": "Normal",
            }))
            .unwrap();
            let text = |event: &ApiEvent| {
                let name = event.metadata.name.as_deref().unwrap();
                format!(
                    "{name} ×{} {}",
                    event.count.unwrap(),
                    event.message.as_deref().unwrap()
                )
            };
            match self.correlator.correlate(event, now, self.start.1 + after) {
                Correlated::Create(event) => format!("create {}", text(&event)),
                Correlated::Patch(event, patch) => {
                    assert_eq!(patch["count"], json!(event.count));
                    format!("patch {}", text(&event))
                }
                Correlated::Drop => "drop".to_owned(),
            }
        }
    }

    #[test]
    fn the_kind_that_was_met_longest_ago_is_forgotten_for_one_too_many() {
        let mut time = Time::new();
        // Five minutes each: none is spam.
        let mut seconds = (0..).step_by(300);
        let mut at = |kind: usize| time.at(seconds.next().unwrap(), &format!("Kind{kind}"), "a");
        for kind in 0..=REMEMBERED {
            at(kind);
        }
        assert!(at(1).starts_with("patch"));
        assert!(at(0).starts_with("create"));
        assert!(at(1).starts_with("patch"), "met again since");
        assert!(at(2).starts_with("create"));
    }

    #[test]
    fn the_same_event_is_counted() {
        let mut time = Time::new();
        assert_eq!(time.at(0, "Pulled", "a"), "create web.0 ×1 a");
        assert_eq!(time.at(1, "Pulled", "a"), "patch web.0 ×2 a");
        assert_eq!(time.at(2, "Pulled", "b"), "create web.2 ×1 b");
        assert_eq!(time.at(3, "Created", "a"), "create web.3 ×1 a");
        assert_eq!(time.at(9999, "Pulled", "a"), "patch web.0 ×3 a");
    }

    #[test]
    fn ten_different_messages_are_combined_until_there_is_none_for_ten_minutes() {
        let mut time = Time::new();
        for n in 0..9 {
            assert!(time.at(n, "Failed", &format!("m{n}")).starts_with("create"));
        }
        assert_eq!(
            time.at(9, "Failed", "m9"),
            "create web.9 ×1 (combined from similar events): m9"
        );
        assert_eq!(
            time.at(10, "Failed", "m10"),
            "patch web.9 ×2 (combined from similar events): m10"
        );
        assert_eq!(time.at(611, "Failed", "m11"), "create web.611 ×1 m11");
    }

    #[test]
    fn a_burst_is_cut_and_what_was_dropped_is_counted() {
        let mut time = Time::new();
        time.at(0, "BackOff", "x");
        for _ in 1..25 {
            assert!(time.at(0, "BackOff", "x").starts_with("patch"));
        }
        assert_eq!(time.at(0, "BackOff", "x"), "drop");
        assert_eq!(time.at(299, "BackOff", "x"), "drop");
        assert_eq!(time.at(300, "BackOff", "x"), "patch web.0 ×28 x");
        assert_eq!(time.at(301, "Other", "of the same type"), "drop");
    }
}
