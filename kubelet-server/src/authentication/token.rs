//! Bearer tokens, reviewed by an API server and cached.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};
use lru::LruCache;
use metrics::{counter, histogram};
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use super::UserInfo;
use crate::BoxError;

/// How many tokens are cached. A node has few clients; a flood of invalid tokens displaces the oldest.
const CACHED: NonZeroUsize = NonZeroUsize::MIN.saturating_add(4095);

/// Reviews bearer tokens: the API server's `TokenReview`, or your own.
#[async_trait]
pub trait TokenReviewer: Send + Sync {
    /// The user of a token; `None` if the token is not valid.
    ///
    /// # Errors
    ///
    /// If the token cannot be reviewed now, or the reviewer gave a reason against it. This is not cached.
    ///
    /// # Cancel safety
    ///
    /// When all clients that wait for it are gone, the call is not polled again. It is dropped with its place in the cache.
    async fn review(&self, token: &str) -> Result<Option<UserInfo>, BoxError>;
}

/// A [`TokenReviewer`] behind a cache (`authentication.webhook.cacheTTL`). Clones share the cache.
///
/// Requests that bring a token at the same time share one review, and its error. The cache holds hashes of tokens.
#[derive(Clone)]
pub struct TokenCache {
    reviewer: Arc<dyn TokenReviewer>,
    ttl: Duration,
    reviews: Arc<Mutex<LruCache<[u8; 32], Review>>>,
}

/// The review of one token: under way, or ended.
#[derive(Clone)]
struct Review {
    begun: Instant,
    answer: Shared<BoxFuture<'static, Result<Option<UserInfo>, String>>>,
}

impl Review {
    /// Whether it has ended, or somebody waits for it besides the cache. Nobody polls a review that was left.
    fn is_alive(&self) -> bool {
        self.answer.peek().is_some() || self.answer.strong_count().is_some_and(|count| count > 1)
    }
}

impl TokenCache {
    /// Caches the answers of `reviewer` for `ttl`: the users, and that a token is not valid.
    pub fn new(reviewer: Arc<dyn TokenReviewer>, ttl: Duration) -> Self {
        Self {
            reviewer,
            ttl,
            reviews: Arc::new(Mutex::new(LruCache::new(CACHED))),
        }
    }

    /// The user of a token; `None` if it is not valid.
    ///
    /// # Errors
    ///
    /// The reviewer's, as text.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe. A review goes on while a request waits for it.
    pub async fn user(&self, token: &str) -> Result<Option<UserInfo>, String> {
        let (begun, hash) = (Instant::now(), Sha256::digest(token.as_bytes()).into());
        let (review, status) = self.review_of(hash, token);
        let user = review.answer.clone().await;
        if user.is_err() {
            self.forget(&hash, &review);
        }
        counter!("authentication_token_cache_request_total", "status" => status).increment(1);
        histogram!("authentication_token_cache_request_duration_seconds", "status" => status)
            .record(begun.elapsed());
        user
    }

    /// The review of a token, and whether it was known.
    fn review_of(&self, hash: [u8; 32], token: &str) -> (Review, &'static str) {
        let mut reviews = self.reviews.lock();
        if let Some(review) = reviews.get(&hash)
            && review.begun.elapsed() < self.ttl
            && review.is_alive()
        {
            return (review.clone(), "hit");
        }
        let (reviewer, token) = (self.reviewer.clone(), token.to_owned());
        let answer = async move {
            let user = reviewer.review(&token).await;
            let status = if user.is_ok() { "ok" } else { "error" };
            counter!("authentication_token_cache_fetch_total", "status" => status).increment(1);
            user.map_err(|error| error.to_string())
        };
        let answer = answer.boxed().shared();
        let review = Review {
            begun: Instant::now(),
            answer,
        };
        reviews.put(hash, review.clone());
        (review, "miss")
    }

    /// A review that failed is not kept. A newer one may have taken its place.
    fn forget(&self, hash: &[u8; 32], failed: &Review) {
        let mut reviews = self.reviews.lock();
        if reviews
            .peek(hash)
            .is_some_and(|known| known.answer.ptr_eq(&failed.answer))
        {
            reviews.pop(hash);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Knows the token `good`, and is away for `away`.
    #[derive(Default)]
    struct Reviewer(AtomicUsize);

    #[async_trait]
    impl TokenReviewer for Reviewer {
        async fn review(&self, token: &str) -> Result<Option<UserInfo>, BoxError> {
            self.0.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
            match token {
                "away" => Err("the API server is away".into()),
                _ => Ok((token == "good").then(|| UserInfo {
                    name: "jane".into(),
                    ..UserInfo::default()
                })),
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_is_reviewed_once_until_its_time_is_over() {
        let reviewer = Arc::new(Reviewer::default());
        let cache = TokenCache::new(reviewer.clone(), Duration::from_secs(120));
        let reviews = || reviewer.0.load(Ordering::Relaxed);
        let (first, second) = tokio::join!(cache.user("good"), cache.user("good"));
        assert_eq!(first.unwrap().unwrap().name, "jane");
        assert_eq!(second.unwrap().unwrap().name, "jane");
        assert_eq!(reviews(), 1, "requests at the same time share a review");
        assert_eq!(cache.user("bad").await.unwrap(), None);
        assert_eq!(cache.user("bad").await.unwrap(), None);
        assert_eq!(reviews(), 2, "that a token is not valid is cached, too");
        tokio::time::advance(Duration::from_secs(120)).await;
        assert!(cache.user("good").await.unwrap().is_some());
        assert_eq!(reviews(), 3);
    }

    #[tokio::test]
    async fn a_review_that_was_left_begins_again() {
        let reviewer = Arc::new(Reviewer::default());
        let cache = TokenCache::new(reviewer.clone(), Duration::from_secs(120));
        // It has begun when its client leaves.
        assert!(cache.user("good").now_or_never().is_none());
        assert!(cache.user("good").await.unwrap().is_some());
        assert_eq!(reviewer.0.load(Ordering::Relaxed), 2);
    }

    #[tokio::test]
    async fn a_failed_review_is_not_cached() {
        let reviewer = Arc::new(Reviewer::default());
        let cache = TokenCache::new(reviewer.clone(), Duration::from_secs(120));
        for expected in 1..4 {
            let (one, other) = tokio::join!(cache.user("away"), cache.user("away"));
            assert_eq!(one.unwrap_err(), "the API server is away");
            assert_eq!(other.unwrap_err(), "the API server is away");
            assert_eq!(reviewer.0.load(Ordering::Relaxed), expected);
        }
    }
}
