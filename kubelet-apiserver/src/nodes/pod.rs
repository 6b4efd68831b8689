//! `pods/log`, `pods/exec`, `pods/attach` and `pods/portforward`.

use std::sync::Arc;

use http::header::{CACHE_CONTROL, CONTENT_TYPE, HOST, HeaderValue};
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};

use super::connection::Connection;
use super::location::{Location, container};
use super::{NodeRequest, options, plain_error, proxy};
use crate::http::ApiBody;
use crate::objects::Fields;
use crate::status_error::StatusError;

/// How much of a node's error the API server reads.
const MAX_ERROR_BYTES: usize = 50_000;

/// `pods/log`.
pub(super) async fn log(request: NodeRequest<'_>) -> Result<Response<ApiBody>, StatusError> {
    let query = options::log(&request)?;
    let pod = find(&request)?;
    let path = path_to(&request, &pod, "containerLogs")?;
    let node = pod["spec"].text("nodeName");
    if node.is_empty() {
        let mut nothing = Response::new(proxy::empty());
        *nothing.status_mut() = StatusCode::NO_CONTENT;
        return Ok(nothing);
    }
    let location = Location::kubelet(request.shared, node)?;
    let path = proxy::target(&path, &query);
    let failed = |error: String| plain_error(format!("Get {:?}: {error}", format!("{location}{path}")));
    let mut asked = Request::new(proxy::empty());
    *asked.uri_mut() = path
        .parse()
        .map_err(|error: http::uri::InvalidUri| failed(error.to_string()))?;
    if let Ok(host) = HeaderValue::from_str(&location.authority()) {
        asked.headers_mut().insert(HOST, host);
    }
    let connection = Connection::open(request.shared, &location)
        .await
        .map_err(failed)?;
    let answered = connection.send(asked).await.map_err(failed)?;
    let status = answered.response.status();
    let body = answered.into_response().into_body();
    if !matches!(status.as_u16(), 200..=206) {
        return Err(refusal(status, body, &request.attributes.name).await);
    }
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    Ok(response)
}

/// `pods/exec`, `pods/attach`, `pods/portforward`.
pub(super) async fn stream(request: NodeRequest<'_>) -> Result<Response<ApiBody>, StatusError> {
    let query = match request.attributes.subresource {
        "portforward" => options::ports(&request)?,
        _ => options::streams(&request),
    };
    let pod = find(&request)?;
    let path = match request.attributes.subresource {
        "portforward" => {
            let (namespace, name) = (&request.attributes.namespace, &request.attributes.name);
            format!("/portForward/{namespace}/{name}")
        }
        subresource => path_to(&request, &pod, subresource)?,
    };
    let node = pod["spec"].text("nodeName");
    if node.is_empty() {
        let name = &request.attributes.name;
        let message = format!("pod {name} does not have a host assigned");
        return Err(StatusError::bad_request(message));
    }
    let location = Location::kubelet(request.shared, node)?;
    proxy::upgrade_required(request, &location, &proxy::target(&path, &query)).await
}

fn find(request: &NodeRequest<'_>) -> Result<Arc<Value>, StatusError> {
    let attributes = request.attributes;
    let (resource, name) = (attributes.resource, &attributes.name);
    let pod = request.shared.lookup(resource, &attributes.namespace, name);
    pod.ok_or_else(|| StatusError::not_found(resource, name))
}

/// The kubelet's path for a container.
fn path_to(request: &NodeRequest<'_>, pod: &Value, endpoint: &str) -> Result<String, StatusError> {
    let (namespace, name) = (&request.attributes.namespace, &request.attributes.name);
    let container = container(pod, name, &request.parameter("container"))?;
    Ok(format!("/{endpoint}/{namespace}/{name}/{container}"))
}

/// The beginning of a refusal's body; all that arrived, if the connection broke.
async fn beginning(mut body: ApiBody) -> String {
    let mut text = Vec::new();
    while let Some(Ok(frame)) = body.frame().await {
        text.extend(frame.into_data().unwrap_or_default());
        if text.len() >= MAX_ERROR_BYTES {
            text.truncate(MAX_ERROR_BYTES);
            break;
        }
    }
    String::from_utf8_lossy(&text).into_owned()
}

/// The error for a node's refusal (`GenericHttpResponseChecker`).
async fn refusal(status: StatusCode, body: ApiBody, pod: &str) -> StatusError {
    let text = beginning(body).await;
    let code = status.as_u16();
    let (reason, message) = match code {
        400 => return StatusError::bad_request(text),
        500 => {
            let causes = json!({"causes": [{"message": text}]});
            let message = format!("Internal error occurred: {text}");
            return StatusError::new(500, "InternalError", message).with_details(causes);
        }
        401 => (
            "Unauthorized",
            "the server has asked for the client to provide credentials".into(),
        ),
        403 => ("Forbidden", text),
        404 => (
            "NotFound",
            "the server could not find the requested resource".into(),
        ),
        405 => (
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource".into(),
        ),
        406 => ("NotAcceptable", text),
        415 => ("UnsupportedMediaType", text),
        422 => (
            "Invalid",
            "the server rejected our request due to an error in our request".into(),
        ),
        409 => ("Conflict", "the server reported a conflict".into()),
        429 => (
            "TooManyRequests",
            "the server has received too many requests and has asked us to try again later".into(),
        ),
        503 => (
            "ServiceUnavailable",
            "the server is currently unable to handle the request".into(),
        ),
        504 => (
            "Timeout",
            "the server was unable to return a response in the time allotted, but may still be processing the request"
                .into(),
        ),
        501.. => (
            "InternalError",
            format!("an error on the server ({text:?}) has prevented the request from succeeding"),
        ),
        _ => (
            "",
            format!("the server responded with the status code {code} but did not return more information"),
        ),
    };
    // The space is where Go has the verb, which is empty.
    StatusError::new(code, reason, format!("{message} ( pods/log {pod})"))
        .with_details(json!({"name": pod, "kind": "pods/log"}))
}
