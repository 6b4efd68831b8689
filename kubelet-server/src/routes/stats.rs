//! `/stats/summary`, `/metrics/cadvisor` and `/metrics/resource`: the usage of node, pods and containers.

use std::convert::Infallible;

use bytes::Bytes;
use futures::stream;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, Response, StatusCode};
use kubelet_core::StatsProvider;

use super::parameters;
use crate::body::{self, Body};

const PROMETHEUS: HeaderValue =
    HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8; escaping=underscores");

/// The answer to a request below `/stats/`.
pub(crate) async fn serve(
    stats: Option<&dyn StatsProvider>,
    method: &Method,
    path: &str,
    query: &str,
) -> Response<Body> {
    let (Some(stats), "/stats/summary") = (stats, path.trim_end_matches('/')) else {
        return body::page_not_found();
    };
    if !matches!(*method, Method::GET | Method::POST) {
        return body::method_not_allowed("GET, POST");
    }
    let wanted: Vec<String> = parameters(query, "only_cpu_and_memory").collect();
    match stats.summary(wanted == ["true"]).await {
        Ok(summary) => body::answer(StatusCode::OK, body::JSON, summary),
        Err(error) => failed(&error.message),
    }
}

/// The answer to `/metrics/cadvisor` or `/metrics/resource`.
pub(crate) async fn serve_metrics(stats: Option<&dyn StatsProvider>, path: &str) -> Response<Body> {
    let Some(stats) = stats else {
        return body::not_found();
    };
    let answer = match path {
        "/metrics/cadvisor" => stats.cadvisor_metrics().await.map(|pieces| {
            let pieces = pieces.map(|piece| Ok::<_, Infallible>(Bytes::from(piece)));
            let mut answer = Response::new(body::streamed(stream::iter(pieces)));
            answer.headers_mut().insert(CONTENT_TYPE, PROMETHEUS);
            answer
        }),
        _ => {
            let text = stats.resource_metrics().await;
            text.map(|text| body::answer(StatusCode::OK, PROMETHEUS, text))
        }
    };
    answer.unwrap_or_else(|error| failed(&error.message))
}

fn failed(message: &str) -> Response<Body> {
    body::text(
        StatusCode::INTERNAL_SERVER_ERROR,
        format!("Internal Error: {message}"),
    )
}
