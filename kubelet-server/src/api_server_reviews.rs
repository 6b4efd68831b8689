//! Tokens and permissions, reviewed by an API server.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube_client::api::{Api, PostParams};
use kube_client::{Client, Error};
use kubelet_core::Jitter;
use metrics::{counter, histogram};
use tokio::time::Instant;

use crate::BoxError;
use crate::authentication::{TokenReviewer, UserInfo};
use crate::authorization::{Attributes, SubjectAccessReviewer};

/// How long an answer is waited for (`TokenAccessReviewTimeout`).
const DEADLINE: Duration = Duration::from_secs(10);
/// How often a token is reviewed, and the waits between (`DefaultAuthWebhookRetryBackoff`).
const TRIES: u32 = 5;
const FIRST_WAIT: Duration = Duration::from_millis(500);

/// `TokenReview` and `SubjectAccessReview` of an API server (`authentication.webhook`, `authorization.mode: Webhook`).
#[derive(Clone)]
pub struct ApiServerReviews {
    client: Client,
    jitter: Jitter,
}

impl ApiServerReviews {
    /// Reviews by the API server of `client`.
    pub fn new(client: Client) -> Self {
        Self {
            client,
            jitter: Jitter::from_entropy(),
        }
    }
}

async fn create<T>(client: &Client, review: &T, metrics: &Names) -> Result<T, BoxError>
where
    T: kube_client::Resource<DynamicType = (), Scope = k8s_openapi::ClusterResourceScope>
        + Clone
        + serde::Serialize
        + serde::de::DeserializeOwned
        + std::fmt::Debug,
{
    let (api, begun) = (Api::<T>::all(client.clone()), Instant::now());
    let answer = match tokio::time::timeout(DEADLINE, api.create(&PostParams::default(), review)).await {
        Ok(answer) => answer.map_err(BoxError::from),
        Err(_) => Err(format!("no answer within {DEADLINE:?}").into()),
    };
    let code = match &answer {
        Ok(_) => "201".to_owned(),
        Err(error) => match error.downcast_ref::<Error>() {
            Some(Error::Api(status)) => status.code.to_string(),
            _ => "<error>".to_owned(),
        },
    };
    counter!(metrics.requests, "code" => code.clone()).increment(1);
    histogram!(metrics.seconds, "code" => code).record(begun.elapsed());
    answer
}

/// The names of the metrics of one kind of review.
struct Names {
    requests: &'static str,
    seconds: &'static str,
}

const AUTHENTICATION: Names = Names {
    requests: "apiserver_delegated_authn_request_total",
    seconds: "apiserver_delegated_authn_request_duration_seconds",
};
const AUTHORIZATION: Names = Names {
    requests: "apiserver_delegated_authz_request_total",
    seconds: "apiserver_delegated_authz_request_duration_seconds",
};

/// Whether to try again (`webhook.DefaultShouldRetry`): the API server is away or busy.
///
/// A connection that is refused, or no answer in time, is not tried again: the client waits.
fn is_transient(error: &BoxError) -> bool {
    if let Some(Error::Api(status)) = error.downcast_ref::<Error>() {
        return matches!(status.code, 429 | 500 | 503 | 504);
    }
    let broken = |error: &std::io::Error| {
        matches!(
            error.kind(),
            ErrorKind::ConnectionReset
                | ErrorKind::ConnectionAborted
                | ErrorKind::BrokenPipe
                | ErrorKind::UnexpectedEof
        )
    };
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&**error);
    while let Some(error) = cause {
        if error.downcast_ref().is_some_and(broken) {
            return true;
        }
        cause = error.source();
    }
    false
}

#[async_trait]
impl TokenReviewer for ApiServerReviews {
    async fn review(&self, token: &str) -> Result<Option<UserInfo>, BoxError> {
        let spec = TokenReviewSpec {
            token: token.to_owned(),
            audiences: None,
        };
        let review = TokenReview {
            spec,
            ..TokenReview::default()
        };
        let (mut tried, mut wait) = (1, FIRST_WAIT);
        let status = loop {
            match create(&self.client, &review, &AUTHENTICATION).await {
                Ok(review) => break review.status.unwrap_or_default(),
                Err(error) if tried < TRIES && is_transient(&error) => {
                    tracing::warn!(%error, "Failed to make webhook authenticator request; retry");
                    tokio::time::sleep(self.jitter.apply(wait, 0.2)).await;
                    (tried, wait) = (tried + 1, wait.mul_f64(1.5));
                }
                Err(error) => return Err(error),
            }
        };
        if !status.authenticated.unwrap_or(false) {
            return match status.error.filter(|error| !error.is_empty()) {
                Some(error) => Err(error.into()),
                None => Ok(None),
            };
        }
        let user = status.user.unwrap_or_default();
        Ok(Some(UserInfo {
            name: user.username.unwrap_or_default(),
            uid: user.uid.unwrap_or_default(),
            groups: user.groups.unwrap_or_default(),
            extra: user.extra.unwrap_or_default().into_iter().collect(),
        }))
    }
}

#[async_trait]
impl SubjectAccessReviewer for ApiServerReviews {
    async fn review(&self, user: &UserInfo, attributes: &Attributes) -> Result<bool, BoxError> {
        let text = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        let extra: BTreeMap<String, Vec<String>> = user.extra.clone();
        let spec = SubjectAccessReviewSpec {
            user: text(&user.name),
            uid: text(&user.uid),
            groups: Some(user.groups.clone()).filter(|groups| !groups.is_empty()),
            extra: Some(extra).filter(|extra| !extra.is_empty()),
            resource_attributes: Some(ResourceAttributes {
                verb: text(attributes.verb),
                version: text("v1"),
                resource: text("nodes"),
                subresource: text(attributes.subresource),
                name: text(&attributes.node_name),
                ..ResourceAttributes::default()
            }),
            ..SubjectAccessReviewSpec::default()
        };
        let review = SubjectAccessReview {
            spec,
            ..SubjectAccessReview::default()
        };
        let review = create(&self.client, &review, &AUTHORIZATION).await?;
        let status = review.status.unwrap_or_default();
        match (status.allowed, status.denied.unwrap_or(false)) {
            (true, true) => Err("webhook subject access review returned both allow and deny response".into()),
            (allowed, _) => Ok(allowed),
        }
    }

    fn is_transient(&self, error: &BoxError) -> bool {
        is_transient(error)
    }
}
