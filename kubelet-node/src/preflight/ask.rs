//! The requests of a preflight, and the findings from their answers.

use std::time::Duration;

use http::header::{CONTENT_TYPE, DATE};
use http::{Method, Request, StatusCode};
use k8s_openapi::jiff::Timestamp;
use k8s_openapi::jiff::fmt::rfc2822::DateTimeParser;
use kube_client::client::Body;
use kube_client::{Client, Error as ClientError};
use serde_json::Value;
use tokio::time::timeout;

use super::{Asked, Finding, MissingPermission};

/// How long to wait for an answer.
const DEADLINE: Duration = Duration::from_secs(10);

/// Sends requests to an API server.
pub(super) struct Ask {
    client: Client,
    bootstrapping: bool,
}

/// The result of a request.
pub(super) enum Answer {
    Found(Value),
    NotThere,
    Finding(Finding),
}

impl Ask {
    pub(super) fn new(client: Client, bootstrapping: bool) -> Self {
        Self {
            client,
            bootstrapping,
        }
    }

    /// Checks that the server answers an authenticated request, and returns its time if it sends it. Every
    /// authenticated client may read the version.
    pub(super) async fn hello(&self) -> Result<Option<Timestamp>, Finding> {
        let unreachable = |why: String| Finding::ServerUnreachable { why };
        let request = Request::get("/version")
            .body(Body::empty())
            .map_err(|error| unreachable(error.to_string()))?;
        let answer = match timeout(DEADLINE, self.client.send(request)).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => return Err(unreachable(chain(&error))),
            Err(_) => return Err(unreachable(format!("no answer within {} s", DEADLINE.as_secs()))),
        };
        if answer.status() == StatusCode::UNAUTHORIZED {
            return Err(self.refused("Unauthorized".to_owned()));
        }
        let date = answer.headers().get(DATE).and_then(|date| date.to_str().ok());
        Ok(date.and_then(|date| DateTimeParser::new().parse_timestamp(date).ok()))
    }

    pub(super) async fn get(&self, asked: Asked, path: &str) -> Answer {
        self.ask(asked, Method::GET, path.to_owned(), None).await
    }

    /// The result that a real request would have.
    pub(super) async fn dry_run(&self, asked: Asked, method: &str, path: &str, body: &Value) -> Answer {
        let method = Method::from_bytes(method.as_bytes()).unwrap_or_default();
        self.ask(asked, method, format!("{path}?dryRun=All"), Some(body))
            .await
    }

    async fn ask(&self, asked: Asked, method: Method, uri: String, body: Option<&Value>) -> Answer {
        let content_type = match method {
            Method::PATCH => "application/strategic-merge-patch+json",
            _ => "application/json",
        };
        let body = body.map(Value::to_string).unwrap_or_default().into_bytes();
        let request = Request::builder()
            .method(method)
            .uri(uri)
            .header(CONTENT_TYPE, content_type)
            .body(body);
        let what = format!("{} {}", asked.0, asked.2);
        let Ok(request) = request else {
            return Answer::NotThere;
        };
        let unreachable = |why: String| {
            Answer::Finding(Finding::ServerUnreachable {
                why: format!("{what}: {why}"),
            })
        };
        match timeout(DEADLINE, self.client.request::<Value>(request)).await {
            Ok(Ok(object)) => Answer::Found(object),
            Ok(Err(ClientError::Api(status))) => match status.code {
                401 => Answer::Finding(self.refused(status.message)),
                403 => Answer::Finding(forbidden(asked, what, status.message)),
                404 => Answer::NotThere,
                429 | 500.. => unreachable(status.message),
                // Another client changed or created the object in between, so the request would have been
                // allowed.
                409 => Answer::NotThere,
                _ => Answer::Finding(Finding::Refused {
                    what,
                    message: status.message,
                }),
            },
            Ok(Err(error)) => unreachable(chain(&error)),
            Err(_) => unreachable(format!("no answer within {} s", DEADLINE.as_secs())),
        }
    }

    fn refused(&self, message: String) -> Finding {
        Finding::CredentialsRefused {
            message,
            bootstrapping: self.bootstrapping,
        }
    }
}

/// Authorizers name the missing permission; admission names the problem in the request.
fn forbidden((verb, group, resource): Asked, what: String, message: String) -> Finding {
    if message.contains(&format!(" cannot {verb} resource ")) {
        Finding::PermissionMissing(MissingPermission {
            verb,
            group,
            resource,
            message,
        })
    } else {
        Finding::Refused { what, message }
    }
}

/// The error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}
