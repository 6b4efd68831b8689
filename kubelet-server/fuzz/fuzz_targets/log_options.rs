//! Any query of a log request is answered: with the log of options that the API allows, or with a refusal.
#![no_main]

use std::sync::{Arc, LazyLock};

use futures::executor::block_on;
use futures::stream::{self, BoxStream, StreamExt as _};
use http::Request;
use http_body_util::Empty;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kubelet_core::runtime::streaming::StreamError;
use kubelet_core::runtime::{ContainerLogs, PodLogOptions};
use kubelet_server::authorization::AlwaysAllow;
use kubelet_server::{Authentication, Authorization, NodeApi};
use libfuzzer_sys::fuzz_target;
use tower::Service as _;

/// A runtime that checks the options.
struct Checks;

#[async_trait::async_trait]
impl ContainerLogs for Checks {
    async fn container_logs(
        &self,
        _: &Pod,
        _: &PodStatus,
        _: &str,
        options: PodLogOptions,
    ) -> Result<BoxStream<'static, Result<Vec<u8>, StreamError>>, StreamError> {
        assert!(options.problems().is_empty(), "{options:?}");
        Ok(stream::empty().boxed())
    }
}

static API: LazyLock<NodeApi> = LazyLock::new(|| {
    let pod = r#"{"metadata":{"namespace":"ns","name":"pod"},"spec":{"containers":[{"name":"c"}]}}"#;
    let pod: Pod = serde_json::from_str(pod).unwrap();
    let authorization = Authorization::new("node", Arc::new(AlwaysAllow));
    NodeApi::builder(Arc::new(vec![Arc::new(pod)]), Authentication::anonymous(), authorization)
        .logs(Arc::new(Checks))
        .build()
});

fuzz_target!(|query: &[u8]| {
    // Bytes that no URI has are refused before.
    let Ok(uri) = [b"/containerLogs/ns/pod/c?", query].concat().try_into() else {
        return;
    };
    let mut request = Request::new(Empty::<bytes::Bytes>::new());
    *request.uri_mut() = uri;
    let Ok(answer) = block_on(API.clone().call(request));
    assert!(matches!(answer.status().as_u16(), 200 | 400 | 422), "{answer:?}");
});
