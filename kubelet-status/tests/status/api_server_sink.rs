//! What the sink sends to an API server: against the status patches that kubelet v1.36.2 was recorded to send, and
//! how it takes refusals.
use std::collections::VecDeque;
use std::io::Read;
use std::sync::Arc;

use super::logged::Logged;
use flate2::read::GzDecoder;
use http_body_util::BodyExt;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kube_client::Client;
use kube_client::client::Body;
use kubelet_core::{Error, PodStatusReporter, SinkPod, StatusSink};
use kubelet_status::{ApiServerEvents, ApiServerSink, EventSink, EventSinkError, StatusManager};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// Answers what it is told to, and keeps what it was asked.
#[derive(Clone, Default)]
struct Script {
    answers: Arc<Mutex<VecDeque<(u16, Value)>>>,
    requests: Arc<Mutex<Vec<Request>>>,
}

#[derive(Debug, Clone, PartialEq)]
struct Request {
    line: String,
    content_type: Option<String>,
    body: Value,
}

impl Script {
    fn answer(&self, code: u16, body: Value) {
        self.answers.lock().push_back((code, body));
    }

    fn asked(&self) -> Vec<Request> {
        std::mem::take(&mut self.requests.lock())
    }

    fn sink(&self) -> ApiServerSink {
        ApiServerSink::new(self.client())
    }

    fn client(&self) -> Client {
        let script = self.clone();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let script = script.clone();
            async move {
                let (head, body) = request.into_parts();
                let body = body.collect().await.unwrap().to_bytes();
                script.requests.lock().push(Request {
                    line: format!("{} {}", head.method, head.uri.path()),
                    content_type: head
                        .headers
                        .get("content-type")
                        .map(|v| v.to_str().unwrap().to_owned()),
                    body: if body.is_empty() {
                        Value::Null
                    } else {
                        serde_json::from_slice(&body).unwrap()
                    },
                });
                let (code, answer) = script.answers.lock().pop_front().unwrap();
                let answer = serde_json::to_vec(&answer).unwrap();
                Ok::<_, std::convert::Infallible>(
                    http::Response::builder()
                        .status(code)
                        .body(Body::from(answer))
                        .unwrap(),
                )
            }
        });
        Client::new(service, "default")
    }
}

fn pod() -> Arc<Pod> {
    let pod =
        json!({"metadata": {"name": "web", "namespace": "shop", "uid": "1"}, "spec": {"containers": []}});
    Arc::new(serde_json::from_value(pod).unwrap())
}

fn refusal(code: u16, reason: &str) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code,
        "reason": reason, "message": format!("pods \"web\": {reason}")})
}

/// Go writes times that are not set as `null`; of something new that says nothing.
fn without_unset_times(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            let times = ["lastProbeTime", "startedAt", "finishedAt"];
            fields.retain(|field, value| !(value.is_null() && times.contains(&field.as_str())));
            fields.values_mut().for_each(without_unset_times);
        }
        Value::Array(elements) => elements.iter_mut().for_each(without_unset_times),
        _ => {}
    }
}

#[tokio::test]
async fn every_recorded_patch_is_the_same() {
    let mut text = String::new();
    GzDecoder::new(&include_bytes!("../data/status-patches.jsonl.gz")[..])
        .read_to_string(&mut text)
        .unwrap();
    let script = Script::default();
    let sink = script.sink();
    let mut patches = 0;
    for line in text.lines() {
        let mut case: Value = serde_json::from_str(line).unwrap();
        without_unset_times(&mut case["patch"]);
        let status = |field: &str| serde_json::from_value::<PodStatus>(case[field].clone()).unwrap();
        let mut pod = (*pod()).clone();
        pod.metadata.uid = case["patch"]["metadata"]["uid"].as_str().map(str::to_owned);
        script.answer(200, serde_json::to_value(&pod).unwrap());
        sink.patch_status(&Arc::new(pod), &status("old"), &status("new"))
            .await
            .unwrap();
        let expected = Request {
            line: "PATCH /api/v1/namespaces/shop/pods/web/status".to_owned(),
            content_type: Some("application/strategic-merge-patch+json".to_owned()),
            body: case["patch"].clone(),
        };
        assert_eq!(
            script.asked(),
            [expected],
            "{}: {} -> {}",
            case["pod"],
            case["old"],
            case["new"]
        );
        patches += 1;
    }
    assert_eq!(patches, 337);
}

#[tokio::test]
async fn what_the_server_has_is_told_from_what_it_lacks() {
    let script = Script::default();
    let sink = script.sink();
    script.answer(200, serde_json::to_value(&*pod()).unwrap());
    assert!(matches!(sink.get(&pod()).await.unwrap(), SinkPod::Stored(stored) if stored == pod()));
    script.answer(404, refusal(404, "NotFound"));
    assert!(matches!(sink.get(&pod()).await.unwrap(), SinkPod::Absent));
    let unrelated = "pods \"web\" is forbidden: User \"system:node:one\" cannot get resource \"pods\" in API group \"\" in the \
        namespace \"shop\": no relationship found between node 'one' and this object";
    let mut gone = refusal(403, "Forbidden");
    gone["message"] = unrelated.into();
    script.answer(403, gone);
    assert!(matches!(sink.get(&pod()).await.unwrap(), SinkPod::Absent));
    // Any other refusal is not an absence.
    script.answer(403, refusal(403, "Forbidden"));
    let error = sink.get(&pod()).await.unwrap_err().to_string();
    assert!(
        error.contains("shop/web") && error.contains("Forbidden"),
        "{error}"
    );
}

#[tokio::test]
async fn nothing_is_sent_where_nothing_differs() {
    let script = Script::default();
    let status = PodStatus {
        phase: Some("Running".to_owned()),
        ..PodStatus::default()
    };
    let unchanged = script
        .sink()
        .patch_status(&pod(), &status, &status)
        .await
        .unwrap();
    assert_eq!(unchanged, Some(pod()));
    assert_eq!(script.asked(), []);
}

#[tokio::test]
async fn a_pod_is_deleted_at_once_and_only_by_its_uid() {
    let script = Script::default();
    let sink = script.sink();
    for (code, reason) in [(404, "NotFound"), (409, "Conflict")] {
        script.answer(code, refusal(code, reason));
        sink.delete(&pod()).await.unwrap();
    }
    let asked = script.asked();
    assert_eq!(asked[0].line, "DELETE /api/v1/namespaces/shop/pods/web");
    assert_eq!(asked[0].body["gracePeriodSeconds"], 0);
    assert_eq!(asked[0].body["preconditions"], json!({"uid": "1"}));

    script.answer(500, refusal(500, "InternalError"));
    assert!(
        sink.delete(&pod())
            .await
            .unwrap_err()
            .to_string()
            .contains("shop/web")
    );
}

/// Answers to a patch of a pod that was deleted, and one that says something else.
fn answers_to_a_patch() -> [(u16, &'static str, bool); 6] {
    [
        (404, "pods \"web\" not found", true),
        (404, "namespaces \"shop\" not found", true),
        (
            403,
            "no relationship found between node 'one' and this object",
            true,
        ),
        (
            422,
            "Pod \"web\" is invalid: metadata.uid: Invalid value: \"1\": field is immutable",
            true,
        ),
        (
            422,
            "Pod \"web\" is invalid: status.phase: Invalid value: \"Up\"",
            false,
        ),
        (
            403,
            "User \"system:node:one\" cannot patch resource \"pods/status\"",
            false,
        ),
    ]
}

#[tokio::test]
async fn a_pod_that_is_gone_is_told_from_a_refusal() {
    let script = Script::default();
    let status = PodStatus {
        phase: Some("Running".to_owned()),
        ..PodStatus::default()
    };
    for (code, message, is_gone) in answers_to_a_patch() {
        let mut answer = refusal(code, "Refused");
        answer["message"] = message.into();
        script.answer(code, answer);
        let patched = script
            .sink()
            .patch_status(&pod(), &PodStatus::default(), &status)
            .await;
        let error = patched.unwrap_err();
        assert_eq!(
            matches!(error, Error::StatusSinkPodGone { .. }),
            is_gone,
            "{error}"
        );
        assert!(error.to_string().contains("shop/web"), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn only_what_is_no_deletion_is_logged_as_a_warning() {
    for (code, message, is_gone) in answers_to_a_patch() {
        let (logged, _guard) = Logged::start();
        let script = Script::default();
        let mut answer = refusal(code, "Refused");
        answer["message"] = message.into();
        script.answer(code, answer);
        let manager = StatusManager::new(script.sink());
        let mut pod = Pod::clone(&pod());
        pod.metadata.resource_version = Some("1".to_owned());
        let running = PodStatus {
            phase: Some("Running".to_owned()),
            ..PodStatus::default()
        };
        manager.handle().set_pod_status(&Arc::new(pod), running);
        let shutdown = CancellationToken::new();
        shutdown.cancel();
        // It tries once what is pending.
        manager.run(shutdown).await;
        let line = match is_gone {
            true => "DEBUG Status not sent, the pod no longer exists",
            false => "WARN Failed to send status, will retry",
        };
        assert_eq!(logged.lines("tatus"), [line], "{code} {message}");
    }
}

#[tokio::test]
async fn an_event_in_a_namespace_that_is_deleted_is_told_from_a_refusal() {
    let script = Script::default();
    let events = ApiServerEvents::new(script.client());
    let mut terminating = refusal(403, "Forbidden");
    terminating["details"] = json!({"causes": [{"reason": "NamespaceTerminating",
        "message": "namespace shop is being terminated", "field": "metadata.namespace"}]});
    script.answer(403, terminating);
    let error = events.create(&Default::default()).await.unwrap_err();
    assert!(
        matches!(error, EventSinkError::NamespaceTerminating(_)),
        "{error}"
    );
    script.answer(403, refusal(403, "Forbidden"));
    let error = events.create(&Default::default()).await.unwrap_err();
    assert!(matches!(error, EventSinkError::Refused(_)), "{error}");
}

#[tokio::test]
async fn an_event_that_an_earlier_attempt_created_is_written() {
    let script = Script::default();
    let events = ApiServerEvents::new(script.client());
    script.answer(409, refusal(409, "AlreadyExists"));
    events.create(&Default::default()).await.unwrap();
}
