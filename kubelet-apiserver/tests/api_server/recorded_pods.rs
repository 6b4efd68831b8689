//! Compares the pods that the API server in memory stores with those that a real one, v1.36.2, stored: 74 manifests and
//! their objects, compared as a whole but for status, UIDs, versions and times.

use std::io::Read;

use flate2::read::GzDecoder;
use http::Request;
use http_body_util::{BodyExt, Full};
use kubelet_apiserver::{ApiServer, User};
use serde_json::{Value, json};
use tower::ServiceExt;

fn recording() -> Vec<Value> {
    let mut text = String::new();
    GzDecoder::new(include_bytes!("../data/pods.jsonl.gz").as_slice())
        .read_to_string(&mut text)
        .expect("the recording");
    text.lines()
        .map(|line| serde_json::from_str(line).expect("a recorded pod"))
        .collect()
}

async fn create(server: &ApiServer, path: &str, object: &Value) -> (u16, Value) {
    let request = Request::post(path)
        .header("Content-Type", "application/json")
        .body(Full::<bytes::Bytes>::from(object.to_string()))
        .expect("a request");
    let response = server
        .service_as(User::admin())
        .oneshot(request)
        .await
        .expect("an answer");
    let status = response.status().as_u16();
    let bytes = response.into_body().collect().await.expect("a body").to_bytes();
    (status, serde_json::from_slice(&bytes).expect("JSON"))
}

/// What a scheduler and a kubelet do later, and what differs from run to run.
fn leave_out(pod: &mut Value) {
    for key in ["uid", "resourceVersion", "creationTimestamp", "managedFields"] {
        pod["metadata"].as_object_mut().expect("metadata").remove(key);
    }
    let class = pod["status"]["qosClass"].clone();
    pod["status"] = json!({"qosClass": class});
    let spec = pod["spec"].as_object_mut().expect("a spec");
    spec.remove("nodeName");
    let text = pod.to_string();
    if let Some(at) = text.find("kube-api-access-") {
        let name = &text[at..at + "kube-api-access-".len() + 5];
        *pod = serde_json::from_str(&text.replace(name, "kube-api-access-")).expect("JSON");
    }
}

#[tokio::test(start_paused = true)]
async fn pods_become_what_they_became() {
    let server = ApiServer::builder().seed(1).build();
    let mut failures = Vec::new();
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "golden"}});
    assert_eq!(create(&server, "/api/v1/namespaces", &namespace).await.0, 201);
    let records = recording();
    for record in &records {
        let manifest = &record["manifest"];
        let (status, mut made) = create(&server, "/api/v1/namespaces/golden/pods", manifest).await;
        if status != 201 {
            failures.push(format!("{}: {}", record["name"], made["message"]));
            continue;
        }
        let mut recorded = record["object"].clone();
        leave_out(&mut recorded);
        leave_out(&mut made);
        if made != recorded {
            failures.push(format!("{}:\n  {recorded}\n  {made}", record["name"]));
        }
    }
    assert!(
        failures.is_empty(),
        "{} of {} differ:\n{}",
        failures.len(),
        records.len(),
        failures.join("\n")
    );
}
