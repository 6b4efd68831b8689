//! Requests that the API server forwards: logs, exec, attach, port-forward and `nodes/proxy` to the server of a node,
//! `pods/proxy` to a pod.

mod connection;
mod location;
mod options;
mod pod;
mod proxy;
mod tls;
mod tunnel;

use std::borrow::Cow;

use bytes::Bytes;
use http::header::HOST;
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use http_body_util::BodyExt;
use hyper::upgrade::OnUpgrade;

use connection::Connection;
use location::Location;

use crate::http::ApiBody;
use crate::listener::Streams;
use crate::request::Attributes;
use crate::server::Shared;
use crate::status_error::StatusError;

/// A request for a node, authorized.
pub(crate) struct NodeRequest<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) attributes: &'a Attributes,
    pub(crate) method: &'a Method,
    pub(crate) uri: &'a Uri,
    /// The path after `proxy`, as the client wrote it.
    pub(crate) tail: &'a str,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) body: ApiBody,
    /// The client's connection, if it asks for an upgrade and the connection can be upgraded.
    pub(crate) upgrade: Option<(OnUpgrade, Streams)>,
}

/// Forwards a request and returns the response of the node.
///
/// # Errors
///
/// The pod or the node does not exist, the options are not valid, or the node does not respond.
pub(crate) async fn forward(request: NodeRequest<'_>) -> Result<Response<ApiBody>, StatusError> {
    match request.attributes.subresource {
        "log" => pod::log(request).await,
        "proxy" => proxy::as_it_is(request).await,
        _ => pod::stream(request).await,
    }
}

impl NodeRequest<'_> {
    /// The query parameters with this name, in the order of the query.
    fn parameters<'a>(&'a self, name: &'a str) -> impl Iterator<Item = Cow<'a, str>> {
        let query = self.uri.query().unwrap_or_default();
        let parsed = form_urlencoded::parse(query.as_bytes());
        parsed.filter(move |(key, _)| key == name).map(|(_, value)| value)
    }

    /// The first query parameter with this name; empty if there is none.
    fn parameter<'a>(&'a self, name: &'a str) -> Cow<'a, str> {
        self.parameters(name).next().unwrap_or_default()
    }

    /// Whether a parameter is set. One without a value is.
    fn is_set(&self, name: &str) -> bool {
        let value = self.parameters(name).next();
        value.is_some_and(|value| !value.eq_ignore_ascii_case("false") && value != "0")
    }
}

/// The body of a node's answer to a GET of the API server.
///
/// # Errors
///
/// The node does not exist or does not answer, or it answers with another status than 200.
pub(crate) async fn get(shared: &Shared, node: &str, path: &str) -> Result<Bytes, String> {
    let location = Location::kubelet(shared, node).map_err(|error| error.message)?;
    let request = Request::get(path)
        .header(HOST, location.authority())
        .body(proxy::empty())
        .map_err(|error| error.to_string())?;
    let answered = Connection::open(shared, &location).await?.send(request).await?;
    let response = answered.into_response();
    if response.status() != StatusCode::OK {
        return Err(format!("node {node:?} answers {path} with {}", response.status()));
    }
    let body = response
        .into_body()
        .collect()
        .await
        .map_err(|error| error.to_string())?;
    Ok(body.to_bytes())
}

/// An error that is no `Status` of its own, as the API server returns it.
fn plain_error(message: String) -> StatusError {
    StatusError::new(500, "", message)
}
