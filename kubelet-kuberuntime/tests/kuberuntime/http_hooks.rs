//! Life cycle hooks that are HTTP requests, against a server on loopback.

use std::sync::{Arc, Mutex};

use kubelet_core::{PodExt, Runtime, RuntimeReader};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::rig::{Rig, pod};

/// Records requests and answers them with 500; answers TLS with an HTTP error.
struct Server {
    port: u16,
    requests: Arc<Mutex<Vec<String>>>,
    _task: JoinSet<()>,
}

impl Server {
    async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (mut task, kept) = (JoinSet::new(), requests.clone());
        task.spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut request = vec![0; 1];
                stream.read_exact(&mut request).await.unwrap();
                let speaks_tls = request[0] == 22;
                while !speaks_tls && !request.ends_with(b"\r\n\r\n") {
                    request.push(stream.read_u8().await.unwrap());
                }
                let answer = b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n";
                stream.write_all(answer).await.unwrap();
                stream.shutdown().await.unwrap();
                match speaks_tls {
                    true => drop(stream.read_to_end(&mut Vec::new()).await),
                    false => kept.lock().unwrap().push(String::from_utf8(request).unwrap()),
                }
            }
        });
        Self {
            port,
            requests,
            _task: task,
        }
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

fn hooked(hooks: Value) -> Value {
    let container = json!({"name": "main", "image": "i", "lifecycle": hooks,
        "ports": [{"name": "web", "containerPort": 1}]});
    json!({"containers": [container]})
}

#[tokio::test]
async fn hooks_are_called_whatever_they_answer() {
    let (rig, server) = (Rig::new().await, Server::new().await);
    let action = |path: &str| json!({"httpGet": {"host": "127.0.0.1", "port": server.port, "path": path}});
    let pod = pod(
        "p",
        hooked(json!({"postStart": action("started"), "preStop": action("/stop?now")})),
    );
    rig.sync_ok(&pod).await;
    let running = rig.manager.pod(&pod.uid()).await.unwrap().unwrap();
    rig.manager.kill_pod(Some(&pod), &running, None).await.unwrap();
    let requests = server.requests();
    assert!(
        requests[0].starts_with("GET /started HTTP/1.1\r\n"),
        "{requests:?}"
    );
    assert!(
        requests[0].contains("User-Agent: kube-lifecycle/1.36\r\n"),
        "{requests:?}"
    );
    assert!(requests[0].contains("Accept: */*\r\n"), "{requests:?}");
    assert!(
        requests[1].starts_with("GET /stop?now HTTP/1.1\r\n"),
        "{requests:?}"
    );
    let failed = rig
        .events
        .take()
        .into_iter()
        .filter(|event| event.contains("Hook"));
    assert_eq!(failed.collect::<Vec<_>>(), [""; 0]);
}

#[tokio::test]
async fn a_hook_that_asks_for_tls_and_gets_http_is_called_without() {
    let (rig, server) = (Rig::new().await, Server::new().await);
    let action = json!({"httpGet": {"host": "127.0.0.1", "port": server.port, "path": "bar", "scheme": "HTTPS",
        "httpHeaders": [{"name": "Authorization", "value": "secret"}]}});
    let pod = pod("p", hooked(json!({"postStart": action})));
    rig.sync_ok(&pod).await;
    let requests = server.requests();
    assert!(
        requests.len() == 1 && !requests[0].contains("secret"),
        "{requests:?}"
    );
    let message = format!(
        "LifecycleHTTPFallback : request to HTTPS lifecycle hook 127.0.0.1:{} got HTTP response, retry with HTTP succeeded",
        server.port
    );
    assert!(rig.events.take().contains(&message));
}

#[tokio::test]
async fn a_hook_that_nobody_answers_fails() {
    // handler → the error that the container's state shows
    let table = [
        (
            json!({"httpGet": {"host": "127.0.0.1", "port": "web", "path": "bar"}}),
            "HTTP lifecycle hook (bar) for Container \"main\" in Pod \"p_ns(p)\" failed - error: \
             Get \"http://127.0.0.1:1/bar\": dial tcp 127.0.0.1:1: connect: connection refused",
        ),
        (
            json!({"httpGet": {"host": "127.0.0.1", "port": "qux"}}),
            "HTTP lifecycle hook () for Container \"main\" in Pod \"p_ns(p)\" failed - error: \
             strconv.Atoi: parsing \"qux\": invalid syntax",
        ),
    ];
    for (action, message) in table {
        let rig = Rig::new().await;
        let pod = pod("p", hooked(json!({"postStart": action})));
        let result = rig.sync(&pod).await;
        let failure = result.results.last().unwrap().failure.clone().unwrap();
        assert_eq!(
            (failure.reason.as_str(), failure.message.as_str()),
            ("PostStartHookError", message)
        );
        let events = rig.events.take();
        let told = "FailedPostStartHook spec.containers{main}: PostStartHook failed";
        assert!(events.iter().any(|event| event == told), "{events:?}");
    }
}

#[tokio::test]
async fn a_hook_of_a_socket_is_refused() {
    let rig = Rig::new().await;
    let pod = pod("p", hooked(json!({"postStart": {"tcpSocket": {"port": 80}}})));
    let result = rig.sync(&pod).await;
    let failure = result.results.last().unwrap().failure.clone().unwrap();
    assert!(
        failure
            .message
            .starts_with("Cannot run handler: invalid handler: "),
        "{}",
        failure.message
    );
}
