//! Authorization by an API server (`authorization.mode: Webhook`).

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use kubelet_core::Jitter;
use lru::LruCache;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{Attributes, Authorizer};
use crate::BoxError;
use crate::authentication::UserInfo;

/// How many answers are cached (`webhook.NewFromInterface`).
const CACHED: NonZeroUsize = NonZeroUsize::MIN.saturating_add(8191);
/// A longer request is not cached (`maxControlledAttrCacheSize`).
const MAX_CACHED_SIZE: usize = 10_000;
/// How often a review is tried, and the waits between (`DefaultAuthWebhookRetryBackoff`).
const TRIES: u32 = 5;
const FIRST_WAIT: Duration = Duration::from_millis(500);
const FACTOR: f64 = 1.5;
const JITTER: f64 = 0.2;

/// Reviews whether a user may do something: the API server's `SubjectAccessReview`, or your own.
#[async_trait]
pub trait SubjectAccessReviewer: Send + Sync {
    /// Whether the user may do this.
    ///
    /// # Errors
    ///
    /// If there is no answer. The review is tried again while `is_transient` says so.
    ///
    /// # Cancel safety
    ///
    /// The call is dropped when the client is gone.
    async fn review(&self, user: &UserInfo, attributes: &Attributes) -> Result<bool, BoxError>;

    /// Whether to try again after this error. By default, always.
    fn is_transient(&self, error: &BoxError) -> bool {
        let _ = error;
        true
    }
}

/// Authorizes by a [`SubjectAccessReviewer`] and caches its answers. Clones share the cache.
#[derive(Clone)]
pub struct WebhookAuthorizer {
    reviewer: Arc<dyn SubjectAccessReviewer>,
    allowed_ttl: Duration,
    denied_ttl: Duration,
    jitter: Jitter,
    answers: Arc<Mutex<LruCache<Key, (bool, Instant)>>>,
}

type Key = (Subject, Attributes);
type Subject = (String, String, Vec<String>, Vec<(String, Vec<String>)>);

impl WebhookAuthorizer {
    /// Caches `yes` for `allowed_ttl` and `no` for `denied_ttl` (`authorization.webhook.cacheAuthorizedTTL` and
    /// `cacheUnauthorizedTTL`).
    pub fn new(
        reviewer: Arc<dyn SubjectAccessReviewer>,
        allowed_ttl: Duration,
        denied_ttl: Duration,
    ) -> Self {
        let answers = Arc::new(Mutex::new(LruCache::new(CACHED)));
        Self {
            reviewer,
            allowed_ttl,
            denied_ttl,
            jitter: Jitter::from_entropy(),
            answers,
        }
    }

    async fn review(&self, user: &UserInfo, attributes: &Attributes) -> Result<bool, BoxError> {
        let (mut tried, mut wait) = (1, FIRST_WAIT);
        loop {
            match self.reviewer.review(user, attributes).await {
                Err(error) if tried < TRIES && self.reviewer.is_transient(&error) => {
                    tracing::warn!(user = user.name, %error, "Failed to make webhook authorizer request; retry");
                    tokio::time::sleep(self.jitter.apply(wait, JITTER)).await;
                    (tried, wait) = (tried + 1, wait.mul_f64(FACTOR));
                }
                answer => return answer,
            }
        }
    }
}

#[async_trait]
impl Authorizer for WebhookAuthorizer {
    async fn authorize(&self, user: &UserInfo, attributes: &Attributes) -> Result<bool, BoxError> {
        let extra = user
            .extra
            .iter()
            .map(|(name, values)| (name.clone(), values.clone()))
            .collect();
        let subject: Subject = (user.name.clone(), user.uid.clone(), user.groups.clone(), extra);
        let key = (subject, attributes.clone());
        let known = self.answers.lock().get(&key).copied();
        let ttl = |allowed| {
            if allowed {
                self.allowed_ttl
            } else {
                self.denied_ttl
            }
        };
        if let Some((allowed, at)) = known
            && at.elapsed() < ttl(allowed)
        {
            return Ok(allowed);
        }
        let allowed = self.review(user, attributes).await?;
        if size(user) <= MAX_CACHED_SIZE {
            self.answers.lock().put(key, (allowed, Instant::now()));
        }
        Ok(allowed)
    }
}

/// How much of a cache entry the user controls.
fn size(user: &UserInfo) -> usize {
    let lists = user.extra.values().chain([&user.groups]);
    let texts = lists
        .flatten()
        .chain(user.extra.keys())
        .chain([&user.name, &user.uid]);
    texts.map(String::len).sum()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Allows `jane` everything; is away for the first `away` calls.
    struct Reviewer {
        calls: AtomicUsize,
        away: usize,
        transient: bool,
    }

    #[async_trait]
    impl SubjectAccessReviewer for Reviewer {
        async fn review(&self, user: &UserInfo, _: &Attributes) -> Result<bool, BoxError> {
            match self.calls.fetch_add(1, Ordering::Relaxed) < self.away {
                true => Err("away".into()),
                false => Ok(user.name == "jane"),
            }
        }

        fn is_transient(&self, _: &BoxError) -> bool {
            self.transient
        }
    }

    fn authorizer(away: usize, transient: bool) -> (Arc<Reviewer>, WebhookAuthorizer) {
        let reviewer = Arc::new(Reviewer {
            calls: AtomicUsize::new(0),
            away,
            transient,
        });
        let (allowed, denied) = (Duration::from_secs(300), Duration::from_secs(30));
        (
            reviewer.clone(),
            WebhookAuthorizer::new(reviewer, allowed, denied),
        )
    }

    fn user(name: &str) -> UserInfo {
        UserInfo {
            name: name.into(),
            ..UserInfo::default()
        }
    }

    fn attributes() -> Attributes {
        Attributes {
            verb: "get",
            subresource: "proxy",
            node_name: "n".into(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn yes_and_no_have_their_own_time() {
        let (reviewer, authorizer) = authorizer(0, true);
        let ask = |name| {
            let (authorizer, user) = (authorizer.clone(), user(name));
            async move { authorizer.authorize(&user, &attributes()).await.unwrap() }
        };
        let calls = || reviewer.calls.load(Ordering::Relaxed);
        assert!(ask("jane").await && ask("jane").await);
        assert!(!ask("joe").await && !ask("joe").await);
        assert_eq!(calls(), 2);
        tokio::time::advance(Duration::from_secs(30)).await;
        assert!(ask("jane").await && !ask("joe").await);
        assert_eq!(calls(), 3);
        tokio::time::advance(Duration::from_secs(300)).await;
        assert!(ask("jane").await);
        assert_eq!(calls(), 4);
    }

    #[tokio::test(start_paused = true)]
    async fn a_review_without_an_answer_is_tried_again() {
        let (reviewer, webhook) = authorizer(4, true);
        assert!(webhook.authorize(&user("jane"), &attributes()).await.unwrap());
        assert_eq!(reviewer.calls.load(Ordering::Relaxed), 5);
        let (reviewer, webhook) = authorizer(5, true);
        assert!(webhook.authorize(&user("jane"), &attributes()).await.is_err());
        assert_eq!(reviewer.calls.load(Ordering::Relaxed), 5);
        let (reviewer, webhook) = authorizer(1, false);
        assert!(webhook.authorize(&user("jane"), &attributes()).await.is_err());
        assert_eq!(reviewer.calls.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn a_huge_user_is_not_cached() {
        let (reviewer, authorizer) = authorizer(0, true);
        let huge = UserInfo {
            groups: vec!["g".repeat(6_000), "h".repeat(6_000)],
            ..user("jane")
        };
        for calls in 1..3 {
            assert!(authorizer.authorize(&huge, &attributes()).await.unwrap());
            assert_eq!(reviewer.calls.load(Ordering::Relaxed), calls);
        }
    }
}
