//! Repeats the requests of a recording.

use std::time::Duration;

use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use k8s_openapi::jiff::Timestamp;
use kubelet_apiserver::{ApiServer, User};
use kubelet_core::Clock;
use serde_json::Value;
use tower::ServiceExt;

use super::compare::Names;
use super::others;

/// An answer: status, headers, documents (one, but for watches).
pub(crate) struct Answer {
    pub(crate) status: u64,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) documents: Vec<Value>,
}

pub(crate) struct Replay {
    server: ApiServer,
    clock: Clock,
    names: Names,
    others: Vec<others::Version>,
}

impl Replay {
    pub(crate) fn new(records: &[Value]) -> Self {
        let start = records
            .iter()
            .find_map(|record| moment(&record["response"]))
            .expect("a time in the recording");
        let clock = Clock::starting_at(start);
        let server = ApiServer::builder()
            .clock(clock)
            .seed(1)
            .sign_certificates()
            .build();
        // The recorded server had been running for a while, so its first versions were gone.
        server.compact();
        Replay {
            server,
            clock,
            names: Names::default(),
            others: others::versions(records),
        }
    }

    /// Makes one request and returns how its response differs from the recorded one.
    pub(crate) async fn run(&mut self, record: &Value) -> Vec<String> {
        self.act_for_others(record).await;
        if let Some(moment) = moment(&record["response"]) {
            self.advance_to(moment).await;
        }
        self.annotate_for_others(record).await;
        let path = self.names.here(record["path"].as_str().unwrap_or_default());
        let body = match &record["request"] {
            Value::Null => String::new(),
            Value::String(text) => text.clone(),
            object => {
                let mut object = object.clone();
                super::compare::leave_out(&mut object);
                self.names.translate(&mut object);
                object.to_string()
            }
        };
        let method = record["method"].as_str().unwrap_or_default();
        let user = record["as"].as_str().unwrap_or_default();
        let content_type = record["content_type"].as_str();
        let answer = self.request(user, method, &path, content_type, body).await;
        self.names.compare(record, answer)
    }

    /// Whether resource versions grew as they did in the recording.
    pub(crate) fn disorder(&self) -> Vec<String> {
        self.names.disorder()
    }

    pub(crate) async fn request(
        &self,
        user: &str,
        method: &str,
        path: &str,
        content_type: Option<&str>,
        body: String,
    ) -> Answer {
        let user = match user {
            "admin" => User {
                name: "admin".into(),
                groups: vec!["system:masters".into(), "system:authenticated".into()],
            },
            node => User::node(node),
        };
        let mut request = Request::builder()
            .method(Method::from_bytes(method.as_bytes()).expect("a method"))
            .uri(path);
        if let Some(content_type) = content_type {
            request = request.header("Content-Type", content_type);
        }
        let request = request.body(Full::<bytes::Bytes>::from(body)).expect("a request");
        let response = self
            .server
            .service_as(user)
            .oneshot(request)
            .await
            .expect("an answer");
        let status = response.status().as_u16().into();
        let headers = response
            .headers()
            .iter()
            .map(|(name, value)| (name.to_string(), value.to_str().unwrap_or_default().to_owned()))
            .collect();
        let bytes = response.into_body().collect().await.expect("a body").to_bytes();
        let documents = serde_json::Deserializer::from_slice(&bytes)
            .into_iter()
            .map(|document| document.unwrap_or_else(|error| Value::String(format!("not JSON: {error}"))))
            .collect();
        Answer {
            status,
            headers,
            documents,
        }
    }

    async fn advance_to(&self, moment: Timestamp) {
        let wait = moment.duration_since(self.clock.now());
        if let Ok(wait) = Duration::try_from(wait)
            && wait > Duration::ZERO
        {
            tokio::time::advance(wait).await;
        }
    }

    /// Makes the changes that other clients made before this response.
    async fn act_for_others(&mut self, record: &Value) {
        let due = others::due(&self.others, record);
        for version in self.others.drain(..due).collect::<Vec<_>>() {
            if let Some(moment) = moment(&version.object) {
                self.advance_to(moment).await;
            }
            let path = self.names.here(&version.path);
            let current = self.request("admin", "GET", &path, None, String::new()).await;
            let mut recorded = version.object.clone();
            self.names.translate(&mut recorded);
            if let Some(act) = others::act(&current.documents[0], &recorded) {
                let path = format!("{path}{}", act.below);
                let kind = Some(act.content_type);
                let answer = self
                    .request("admin", act.method, &path, kind, act.body.to_string())
                    .await;
                assert!(
                    answer.status < 300,
                    "{} {path}: {:?}",
                    act.method,
                    answer.documents
                );
                let path = self.names.here(&version.path);
                let seen = self.request("admin", "GET", &path, None, String::new()).await;
                self.names
                    .learn(&version.object["metadata"], &seen.documents[0]["metadata"]);
            }
        }
    }

    /// Adds the annotations that controllers added before this response.
    async fn annotate_for_others(&mut self, record: &Value) {
        let Some(path) = others::object_path(record) else {
            return;
        };
        let path = self.names.here(&path);
        for act in others::annotations(&record["response"]) {
            let current = self.request("admin", "GET", &path, None, String::new()).await;
            if current.status == 200 && others::lacks(&current.documents[0], &act.body) {
                let path = format!("{path}{}", act.below);
                let kind = Some(act.content_type);
                self.request("admin", act.method, &path, kind, act.body.to_string())
                    .await;
            }
        }
    }
}

/// When an object was written, if it says so.
fn moment(response: &Value) -> Option<Timestamp> {
    let meta = &response["metadata"];
    let time = |value: &Value| value.as_str().and_then(|text| text.parse::<Timestamp>().ok());
    let managed = meta["managedFields"].as_array().into_iter().flatten();
    let times = managed.map(|entry| time(&entry["time"]));
    let conditions = response["status"]["conditions"].as_array().into_iter().flatten();
    let updates = conditions.map(|condition| time(&condition["lastUpdateTime"]));
    let deleted = time(&meta["deletionTimestamp"]).map(|due| {
        let grace = meta["deletionGracePeriodSeconds"].as_i64().unwrap_or(0);
        due - k8s_openapi::jiff::SignedDuration::from_secs(grace)
    });
    times
        .chain(updates)
        .chain([time(&meta["creationTimestamp"]), deleted])
        .flatten()
        .max()
}
