//! What the kubelet answered: each request of each user, and each option of a log request.
//!
//! Differences on purpose: a `GET` to exec, attach or port-forward needs `create` (see [`StreamVerb`]); usage is not
//! served yet; the texts of metrics and of the folder of logs are checked elsewhere.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::sync::Arc;

use async_trait::async_trait;
use flate2::read::GzDecoder;
use http::{HeaderValue, Request};
use http_body_util::{BodyExt as _, Empty};
use k8s_openapi::api::core::v1::Pod;
use kubelet_core::HealthChecks;
use kubelet_core::runtime::streaming::{StreamError, StreamErrorKind, StreamOptions, StreamingRuntime};
use kubelet_core::runtime::{Container, ContainerState, RuntimePod, RuntimeReader};
use kubelet_core::{PodKey, PodUid};
use kubelet_server::authorization::StreamVerb;
use kubelet_server::system_logs::SystemLogs;
use kubelet_server::{
    AgentVersion, Authorization, LogVerbosity, MetricsSelection, MetricsSource, NodeApi, NodePods,
};
use serde_json::Value;
use tower::ServiceExt as _;

use crate::logs::LogFolder;
use crate::users::{self, Users};

fn recording() -> Value {
    let mut text = String::new();
    GzDecoder::new(include_bytes!("../data/server.json.gz").as_slice())
        .read_to_string(&mut text)
        .unwrap();
    serde_json::from_str(&text).unwrap()
}

/// A runtime that knows the containers of the pod `talks`, and no streaming server.
struct Runtime;

#[async_trait]
impl StreamingRuntime for Runtime {
    async fn exec_url(
        &self,
        _: &PodKey,
        container: &str,
        _: &[String],
        _: StreamOptions,
    ) -> Result<String, StreamError> {
        match container {
            "main" => Ok("http://127.0.0.1:1/exec/token".into()),
            name => Err(StreamError::other(format!("container not found ({name:?})"))),
        }
    }

    async fn attach_url(&self, _: &Pod, _: &str, _: StreamOptions) -> Result<String, StreamError> {
        Ok("http://127.0.0.1:1/attach/token".into())
    }

    async fn port_forward_url(&self, _: &PodKey, _: &[u16]) -> Result<String, StreamError> {
        Ok("http://127.0.0.1:1/portforward/token".into())
    }

    async fn run_in_container(
        &self,
        _: &PodKey,
        _: &str,
        _: &[String],
        _: std::time::Duration,
    ) -> Result<Vec<u8>, StreamError> {
        Ok(b"done\n".to_vec())
    }

    async fn checkpoint_container(
        &self,
        _: &PodKey,
        _: &str,
        _: &std::path::Path,
        _: std::time::Duration,
    ) -> Result<(), StreamError> {
        let message = "rpc error: code = Unimplemented desc = method CheckpointContainer not implemented";
        Err(StreamError::new(StreamErrorKind::Unimplemented, message))
    }
}

struct NoMetrics;

impl MetricsSource for NoMetrics {
    fn metrics(&self, _: MetricsSelection, _: &http::HeaderMap) -> (HeaderValue, Vec<u8>) {
        (
            HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8; escaping=underscores"),
            Vec::new(),
        )
    }
}

impl LogVerbosity for NoMetrics {
    fn set(&self, value: &str) -> Result<String, String> {
        Ok(format!("successfully set klog.logging.verbosity to {value}"))
    }
}

fn pods(recording: &Value) -> Vec<Arc<Pod>> {
    let items = recording["full"]["/pods"]["items"].as_array().unwrap();
    items
        .iter()
        .map(|pod| Arc::new(serde_json::from_value(pod.clone()).unwrap()))
        .collect()
}

fn api(recording: &Value, streams: StreamVerb, logs: &std::path::Path) -> NodeApi {
    let pods: Arc<dyn NodePods> = Arc::new(pods(recording));
    let authorization = Authorization::new("node1", Arc::new(Users)).stream_verb(streams);
    let version = AgentVersion::new("v1.36.2", "2026-11-23T05:03:30Z".parse().unwrap());
    NodeApi::builder(pods, users::authentication(), authorization)
        .health(
            HealthChecks::new()
                .check("log", || Ok(()))
                .check("syncloop", || Ok(())),
        )
        .logs(Arc::new(LogFolder(logs.to_owned())))
        .runtime(Arc::new(Runtime))
        .metrics(Arc::new(NoMetrics))
        .configz(recording["full"]["/configz"].to_string())
        .flags(users::flags())
        .agent(version)
        .verbosity(Arc::new(NoMetrics))
        .checkpoint_dir(logs.join("checkpoints"))
        .system_logs(SystemLogs::new(logs.join("var-log")))
        .build()
}

async fn ask(api: &NodeApi, user: &str, method: &str, path: &str) -> (u16, http::HeaderMap, String) {
    let mut request = Request::builder().method(method).uri(path);
    if let Some(credentials) = users::credentials(user) {
        request = request.header("authorization", credentials);
    }
    let response = api
        .clone()
        .oneshot(request.body(Empty::<bytes::Bytes>::new()).unwrap())
        .await
        .unwrap();
    let (head, sent) = response.into_parts();
    let bytes = sent.collect().await.unwrap().to_bytes();
    (
        head.status.as_u16(),
        head.headers,
        String::from_utf8_lossy(&bytes).into_owned(),
    )
}

/// The entries of the recorded folder.
fn system_logs(recording: &Value, folder: &std::path::Path) {
    let requests = recording["requests"].as_array().unwrap();
    let listing = requests
        .iter()
        .find(|it| it["path"] == "/logs/" && it["answer"]["status"] == 200)
        .unwrap();
    for line in listing["answer"]["body"]
        .as_str()
        .unwrap()
        .lines()
        .filter(|line| line.starts_with("<a "))
    {
        let name = line.split('"').nth(1).unwrap();
        match name.strip_suffix('/') {
            Some(name) => std::fs::create_dir_all(folder.join(name)).unwrap(),
            None => {
                std::fs::create_dir_all(folder).unwrap();
                std::fs::write(folder.join(name), "").unwrap();
            }
        }
    }
}

#[tokio::test]
async fn each_request_of_each_user() {
    let recording = recording();
    let folder = tempfile::tempdir().unwrap();
    system_logs(&recording, &folder.path().join("var-log"));
    let api = api(&recording, StreamVerb::OfMethod, folder.path());
    let mut differences = BTreeMap::new();
    for recorded in recording["requests"].as_array().unwrap() {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let (user, method, path) = (
            text(&recorded["user"]),
            text(&recorded["method"]),
            text(&recorded["path"]),
        );
        let answer = &recorded["answer"];
        let (status, headers, text) = ask(&api, &user, &method, &path).await;
        let is_usage =
            path.starts_with("/stats/summary") || path == "/metrics/cadvisor" || path == "/metrics/resource";
        let expected = answer["status"].as_u64().unwrap();
        if is_usage && matches!(expected, 200 | 500) {
            assert_eq!(
                status, 404,
                "{user} {method} {path}: usage has a provider now; compare it"
            );
            continue;
        }
        let mut problems = Vec::new();
        if u64::from(status) != expected {
            problems.push(format!("status {status}, not {expected}"));
        }
        if let Some(expected) = answer["body"].as_str()
            && expected != text
            && (status != 200 || text == "ok" || expected == "ok" || path.starts_with("/logs/"))
        {
            problems.push(format!("body {text:?}, not {expected:?}"));
        }
        for name in ["content-type", "allow", "location", "x-content-type-options"] {
            let expected = answer["headers"][name].as_str();
            let found = headers.get(name).map(|value| value.to_str().unwrap());
            if expected != found && name != "x-content-type-options" {
                problems.push(format!("{name} {found:?}, not {expected:?}"));
            }
        }
        if !problems.is_empty() {
            differences.insert(format!("{user} {method} {path}"), problems);
        }
    }
    assert!(differences.is_empty(), "{differences:#?}");
}

#[tokio::test]
async fn to_read_is_not_enough_to_run_commands() {
    let recording = recording();
    let folder = tempfile::tempdir().unwrap();
    let api = api(&recording, StreamVerb::Create, folder.path());
    for path in [
        "/exec/srv/talks/main?command=ls&output=1",
        "/attach/srv/talks/main?output=1",
        "/portForward/srv/talks",
        "/run/srv/talks/main?cmd=ls",
    ] {
        let (status, _, text) = ask(&api, "proxy-get", "GET", path).await;
        let refused = "Forbidden (user=system:serviceaccount:srv:proxy-get, verb=create, resource=nodes, \
                       subresource(s)=[proxy])\n";
        assert_eq!((status, &*text), (403, refused), "{path}");
        assert_ne!(ask(&api, "proxy-all", "GET", path).await.0, 403, "{path}");
    }
}

#[tokio::test]
async fn whole_bodies() {
    let recording = recording();
    let folder = tempfile::tempdir().unwrap();
    let api = api(&recording, StreamVerb::Create, folder.path());
    for path in ["/pods", "/configz"] {
        let (status, _, text) = ask(&api, "admin", "GET", path).await;
        assert_eq!(status, 200);
        let mut found: Value = serde_json::from_str(&text).unwrap();
        let mut expected = recording["full"][path].clone();
        normalize(&mut found);
        normalize(&mut expected);
        assert_eq!(found, expected, "{path}");
    }
}

/// Times of `managedFields` and numbers keep their meaning, not their spelling.
fn normalize(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(normalize);
        }
        Value::Array(items) => items.iter_mut().for_each(normalize),
        _ => {}
    }
}

/// The pods that ran, as the runtime listed them.
struct Running(Vec<Arc<RuntimePod>>);

#[async_trait]
impl RuntimeReader for Running {
    async fn pods(&self, _: bool) -> kubelet_core::Result<Vec<Arc<RuntimePod>>> {
        Ok(self.0.clone())
    }

    async fn pod_status(
        &self,
        _: &RuntimePod,
    ) -> kubelet_core::Result<Arc<kubelet_core::runtime::PodStatus>> {
        Err(kubelet_core::Error::Unsupported { what: "status" })
    }
}

#[tokio::test]
async fn the_pods_that_run() {
    let recording = recording();
    let expected = recording["full"]["/runningpods/"].clone();
    let pods = expected["items"].as_array().unwrap().iter().map(|item| {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let metadata = &item["metadata"];
        let key = PodKey::new(text(&metadata["namespace"]), text(&metadata["name"]));
        let mut pod = RuntimePod::empty(PodUid::new(text(&metadata["uid"])), key);
        for container in item["spec"]["containers"].as_array().into_iter().flatten() {
            let name = text(&container["name"]);
            let id = format!("containerd://{name}").parse().unwrap();
            let mut running = Container::new(id, name, ContainerState::Running);
            running.image = text(&container["image"]);
            pod.containers.push(running);
        }
        let ended = Container::new("containerd://old".parse().unwrap(), "old", ContainerState::Exited);
        pod.containers.push(ended);
        Arc::new(pod)
    });
    let running = Running(pods.collect());
    let pods: Arc<dyn NodePods> = Arc::new(Vec::new());
    let api = NodeApi::builder(
        pods,
        users::authentication(),
        Authorization::new("node1", Arc::new(Users)),
    )
    .running_pods(Arc::new(running))
    .build();
    let (status, _, text) = ask(&api, "admin", "GET", "/runningpods/").await;
    assert_eq!(
        (status, serde_json::from_str::<Value>(&text).unwrap()),
        (200, expected)
    );
    assert_eq!(ask(&api, "admin", "GET", "/runningpods").await.0, 307);
}

#[tokio::test]
async fn each_option_of_a_log_request() {
    let recording = recording();
    let folder = tempfile::tempdir().unwrap();
    let all = recording["logs"].as_array().unwrap();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    for files in all.iter().filter(|it| it["files"].is_object()) {
        let pod = folder.path().join(text(&files["pod"]));
        std::fs::create_dir_all(&pod).unwrap();
        for (_, content) in files["files"].as_object().unwrap() {
            let file = pod.join(format!("{}.log", text(&files["container"])));
            std::fs::write(file, content.as_str().unwrap()).unwrap();
        }
    }
    let api = api(&recording, StreamVerb::Create, folder.path());
    let mut differences = BTreeMap::new();
    let mut compared = 0;
    for recorded in all.iter().filter(|it| it["answer"].is_object()) {
        let (pod, container, query) = (&recorded["pod"], &recorded["container"], text(&recorded["query"]));
        let path = format!("/containerLogs/srv/{}/{}?{query}", text(pod), text(container));
        let (status, _, found) = ask(&api, "admin", "GET", &path).await;
        let answer = &recorded["answer"];
        let expected = answer["body"].as_str().unwrap_or_default();
        let is_cut = answer["cut"].is_number() || answer["cut"].is_boolean();
        let is_same = if is_cut {
            found.starts_with(expected)
        } else {
            found == expected
        };
        if Some(u64::from(status)) != answer["status"].as_u64() || !is_same {
            let short = |text: &str| text.chars().take(200).collect::<String>();
            differences.insert(
                path,
                (status, short(&found), answer["status"].clone(), short(expected)),
            );
        }
        compared += 1;
    }
    assert!(differences.is_empty(), "{differences:#?}");
    assert_eq!(compared, 209);
}
