//! Tokens of service accounts, from an API server (`pkg/kubelet/token`).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Pod, ServiceAccount, ServiceAccountTokenProjection};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube_client::Client;
use kube_client::api::{Api, PostParams};
use kubelet_core::{
    Clock, Error, Jitter, PodExt, PodUid, Result, ServiceAccountToken, ServiceAccountTokens, ServiceAccounts,
};
use parking_lot::Mutex;
use tokio::time::timeout;

/// An older token is renewed, however long it holds (`maxTTL`).
const MAX_AGE: SignedDuration = SignedDuration::from_hours(24);
/// So much sooner, at random (`maxJitter`).
const MAX_JITTER: Duration = Duration::from_secs(10);
/// How long an answer is waited for.
const DEADLINE: Duration = Duration::from_secs(10);
/// `expirationSeconds` where a pod names none, as the API server defaults it.
const DEFAULT_EXPIRATION: i64 = 3600;

/// Requests tokens of service accounts from an API server, bound to their pods, and caches them. A token is renewed
/// after four fifths of its lifetime, or after a day. If it cannot be renewed, the old token is returned until it
/// expires. Corresponds to the kubelet's `token.Manager`.
pub struct ApiServerTokens {
    client: Client,
    clock: Clock,
    jitter: Jitter,
    kept: Mutex<HashMap<Key, Token>>,
}

/// What makes one token another (`keyFunc`). The pod stands for its namespace and its account's name.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Key {
    pod: PodUid,
    /// The UID of the account, where one was asked for.
    account: Option<String>,
    audience: String,
    seconds: i64,
}

#[derive(Clone)]
struct Token {
    text: String,
    renew_at: Timestamp,
    expires_at: Timestamp,
}

impl ApiServerTokens {
    /// Tokens of the API server of `client`.
    pub fn new(client: Client) -> Self {
        Self {
            client,
            clock: Clock::system(),
            jitter: Jitter::default(),
            kept: Mutex::default(),
        }
    }

    /// The clock for the age of tokens. Default: the clock of the operating system.
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// The jitter of renewals. Default: seeded by the operating system.
    #[must_use]
    pub fn jitter(mut self, jitter: Jitter) -> Self {
        self.jitter = jitter;
        self
    }

    /// `GetServiceAccountToken`
    async fn get(
        &self,
        pod: &Pod,
        account_uid: Option<&str>,
        wanted: &ServiceAccountTokenProjection,
    ) -> Result<Token> {
        let key = Key {
            pod: pod.uid(),
            account: account_uid.map(str::to_owned),
            audience: wanted.audience.clone().unwrap_or_default(),
            seconds: wanted.expiration_seconds.unwrap_or(DEFAULT_EXPIRATION),
        };
        let kept = self.kept.lock().get(&key).cloned();
        let sooner = self.jitter.apply(MAX_JITTER, 1.0) - MAX_JITTER;
        let now = self.clock.now();
        let soon = now.checked_add(sooner).unwrap_or(now);
        if let Some(kept) = kept.as_ref().filter(|kept| soon <= kept.renew_at) {
            return Ok(kept.clone());
        }
        let why = match self.request(pod, &key).await {
            Ok(token) => {
                let mut tokens = self.kept.lock();
                // Not every pod that asked for a token is forgotten later (`cleanup`).
                tokens.retain(|_, token| token.expires_at > now);
                tokens.insert(key, token.clone());
                return Ok(token);
            }
            Err(why) => why,
        };
        let message = match kept {
            None => format!("failed to fetch token: {why}"),
            Some(kept) if now > kept.expires_at => format!("token expired and refresh failed: {why}"),
            Some(kept) => {
                tracing::error!(pod = %pod.key(), uid = pod.uid_str(), error = why, "Couldn't update token");
                return Ok(kept);
            }
        };
        Err(failed(pod, message))
    }

    fn accounts(&self, pod: &Pod) -> Api<ServiceAccount> {
        Api::namespaced(self.client.clone(), &pod.key().namespace)
    }

    /// Asks for one (`CreateToken`).
    async fn request(&self, pod: &Pod, wanted: &Key) -> Result<Token, String> {
        let seconds = wanted.seconds;
        let key = pod.key();
        let request = TokenRequest {
            metadata: ObjectMeta {
                // The API server refuses if the account has another one.
                uid: wanted.account.clone(),
                ..ObjectMeta::default()
            },
            spec: Some(TokenRequestSpec {
                audiences: (!wanted.audience.is_empty()).then(|| vec![wanted.audience.clone()]),
                expiration_seconds: Some(seconds),
                bound_object_ref: Some(BoundObjectReference {
                    api_version: Some("v1".to_owned()),
                    kind: Some("Pod".to_owned()),
                    name: Some(key.name.to_string()),
                    uid: Some(pod.uid().to_string()),
                }),
            }),
            ..TokenRequest::default()
        };
        let (parameters, asked_at) = (PostParams::default(), self.clock.now());
        let (accounts, account) = (self.accounts(pod), account_name(pod));
        let answer = in_time(accounts.create_token_request(account, &parameters, &request)).await?;
        let status = answer.status.unwrap_or_default();
        let (Some(text), Some(expires_at)) = (status.token, status.expiration_timestamp) else {
            return Err("the answer holds no token".to_owned());
        };
        let expires_at = expires_at.0;
        // What the server made of it counts, as a day may have become a year.
        let seconds = answer
            .spec
            .and_then(|spec| spec.expiration_seconds)
            .unwrap_or(seconds);
        let issued_at = expires_at.saturating_sub(SignedDuration::from_secs(seconds));
        let issued_at = issued_at.unwrap_or(asked_at);
        let fifth = expires_at.saturating_sub(SignedDuration::from_secs(seconds * 20 / 100));
        let day = issued_at.saturating_add(MAX_AGE);
        let renew_at = fifth.unwrap_or(expires_at).min(day.unwrap_or(expires_at));
        Ok(Token {
            text,
            renew_at,
            expires_at,
        })
    }
}

kubelet_core::impl_debug!(ApiServerTokens);

/// As in the kubelet, requests for volumes do not name the UID of the account.
#[async_trait]
impl ServiceAccountTokens for ApiServerTokens {
    async fn token(
        &self,
        pod: &Arc<Pod>,
        wanted: &ServiceAccountTokenProjection,
    ) -> Result<ServiceAccountToken> {
        let token = self.get(pod, None, wanted).await?;
        let mut issued = ServiceAccountToken::new(token.text);
        (issued.renew_at, issued.expires_at) = (Some(token.renew_at), Some(token.expires_at));
        Ok(issued)
    }

    fn forget(&self, uid: &PodUid) {
        self.kept.lock().retain(|key, _| key.pod != *uid);
    }
}

#[async_trait]
impl ServiceAccounts for ApiServerTokens {
    async fn account(&self, pod: &Pod) -> Result<ServiceAccount> {
        let account = in_time(self.accounts(pod).get(account_name(pod))).await;
        account.map_err(|why| failed(pod, why))
    }

    async fn account_token(&self, pod: &Pod, account_uid: &str, audience: &str) -> Result<String> {
        let wanted = ServiceAccountTokenProjection {
            audience: Some(audience.to_owned()),
            ..ServiceAccountTokenProjection::default()
        };
        Ok(self.get(pod, Some(account_uid), &wanted).await?.text)
    }
}

fn account_name(pod: &Pod) -> &str {
    let spec = pod.spec.as_ref();
    let name = spec.and_then(|spec| spec.service_account_name.as_deref());
    name.filter(|name| !name.is_empty()).unwrap_or("default")
}

async fn in_time<T>(answer: impl Future<Output = kube_client::Result<T>>) -> Result<T, String> {
    match timeout(DEADLINE, answer).await {
        Ok(answer) => answer.map_err(|error| error.to_string()),
        Err(elapsed) => Err(elapsed.to_string()),
    }
}

fn failed(pod: &Pod, message: String) -> Error {
    Error::SyncPod {
        pod: pod.key(),
        uid: pod.uid(),
        message,
    }
}
