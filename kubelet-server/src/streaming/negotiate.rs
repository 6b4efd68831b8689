//! The handshakes: which protocol a client asks for, and which one it gets.

use crate::body::{self, Body};
use http::header::{
    CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION,
    UPGRADE,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use super::answer::text_error;
use crate::upgrade::{is_upgrade, is_websocket};

/// The name of SPDY in `Upgrade` headers.
pub(super) const SPDY: &str = "SPDY/3.1";
/// What a client over SPDY can speak, and what the server chose.
pub(super) const STREAM_PROTOCOL: HeaderName = HeaderName::from_static("x-stream-protocol-version");
const ACCEPTED_PROTOCOLS: HeaderName = HeaderName::from_static("x-accepted-stream-protocol-versions");
/// The prefix of WebSocket protocols that carry the bytes of a SPDY connection.
pub(super) const TUNNEL_PREFIX: &str = "SPDY/3.1+";
/// The WebSocket protocol that can end one channel.
pub(super) const CHANNEL_V5: &str = "v5.channel.k8s.io";

/// Whether a request asks for a WebSocket protocol that can end one channel (`v5.channel.k8s.io`).
pub fn wants_close_signal(headers: &HeaderMap) -> bool {
    is_websocket(headers) && websocket_protocols(headers).contains(&CHANNEL_V5)
}

/// Whether a request asks for a tunnel of SPDY through WebSocket (`SPDY/3.1+portforward.k8s.io`).
pub fn wants_tunnel(headers: &HeaderMap) -> bool {
    is_websocket(headers) && !tunnel_protocols(headers).is_empty()
}

/// The SPDY protocols that a client wants to tunnel.
pub(super) fn tunnel_protocols(headers: &HeaderMap) -> Vec<&str> {
    let of = |protocol: &'_ str| protocol.ends_with(".k8s.io");
    websocket_protocols(headers)
        .into_iter()
        .filter_map(|p| p.strip_prefix(TUNNEL_PREFIX))
        .filter(|p| of(p))
        .collect()
}

fn contains(value: &HeaderValue, part: &str) -> bool {
    value
        .to_str()
        .is_ok_and(|v| v.to_ascii_lowercase().contains(part))
}

fn websocket_protocols(headers: &HeaderMap) -> Vec<&str> {
    let Some(value) = headers.get(SEC_WEBSOCKET_PROTOCOL).and_then(|v| v.to_str().ok()) else {
        return Vec::new();
    };
    let value = value.trim();
    if value.is_empty() {
        Vec::new()
    } else {
        value.split(',').map(str::trim).collect()
    }
}

/// The handshake of SPDY. Gives the protocol and the response.
pub(super) fn spdy<B>(
    request: &Request<B>,
    supported: &[&'static str],
) -> Result<(&'static str, Response<Body>), Box<Response<Body>>> {
    let headers = request.headers();
    let refuse = |status, message: String| Err(Box::new(text_error(status, message)));
    if !headers.contains_key(STREAM_PROTOCOL) {
        let message = format!(
            "unable to upgrade: header X-Stream-Protocol-Version does not exist in request with {} headers",
            headers.keys_len()
        );
        return refuse(StatusCode::BAD_REQUEST, message);
    }
    let values: Vec<&str> = headers
        .get_all(STREAM_PROTOCOL)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .collect();
    let wanted: Vec<&str> = values
        .iter()
        .flat_map(|v| v.split(','))
        .map(|p| p.trim_matches(' '))
        .filter(|p| !p.is_empty())
        .collect();
    if wanted.is_empty() {
        let message = format!(
            "unable to upgrade: header X-Stream-Protocol-Version contains [{}], but no valid protocols",
            values.join(" ")
        );
        return refuse(StatusCode::BAD_REQUEST, message);
    }
    let Some(protocol) = wanted.iter().find_map(|w| supported.iter().find(|s| *s == w)) else {
        let message = format!(
            "unable to upgrade: unable to negotiate protocol: client supports [{}], server accepts [{}]",
            wanted.join(" "),
            supported.join(" ")
        );
        let mut response = text_error(StatusCode::FORBIDDEN, message);
        for protocol in supported {
            response
                .headers_mut()
                .append(ACCEPTED_PROTOCOLS, HeaderValue::from_static(protocol));
        }
        return Err(Box::new(response));
    };
    if !is_upgrade(headers) || !headers.get(UPGRADE).is_some_and(|v| contains(v, "spdy/3.1")) {
        let message = "unable to upgrade: missing upgrade headers in request".to_owned();
        return refuse(StatusCode::BAD_REQUEST, message);
    }
    let mut response = switching(SPDY);
    response
        .headers_mut()
        .insert(STREAM_PROTOCOL, HeaderValue::from_static(protocol));
    Ok((protocol, response))
}

/// The handshake of WebSocket. Gives the protocol and the response. A client that names no protocol gets `""`.
pub(super) fn websocket<B>(
    request: &Request<B>,
    supported: &[&'static str],
) -> Result<(&'static str, Response<Body>), Box<Response<Body>>> {
    let refuse = |status, message: &str| Err(Box::new(text_error(status, message)));
    let headers = request.headers();
    if request.method() != Method::GET {
        return refuse(StatusCode::METHOD_NOT_ALLOWED, "bad method");
    }
    if headers.get(SEC_WEBSOCKET_VERSION).is_none_or(|v| v != "13") {
        let mut response = text_error(StatusCode::BAD_REQUEST, "missing or bad WebSocket Version");
        response
            .headers_mut()
            .insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
        return Err(Box::new(response));
    }
    let Some(key) = headers.get(SEC_WEBSOCKET_KEY).filter(|key| !key.is_empty()) else {
        return refuse(StatusCode::BAD_REQUEST, "mismatch challenge/response");
    };
    let wanted = match websocket_protocols(headers) {
        protocols if protocols.is_empty() => vec![""],
        protocols => protocols,
    };
    // As the reference does, the first protocol of the client that the server has. The streaming server of the reference
    // does not have v5, so a client that offers v5 and an older one expects the older one.
    let of = |w: &&str| supported.iter().find(|s| *s == w).copied();
    let older = wanted.iter().filter(|w| **w != CHANNEL_V5).find_map(of);
    let Some(protocol) = older.or_else(|| wanted.iter().find_map(of)) else {
        let mut response = Response::new(body::full(""));
        *response.status_mut() = StatusCode::FORBIDDEN;
        return Err(Box::new(response));
    };
    Ok((protocol, websocket_response(key, protocol)))
}

/// The response that accepts a WebSocket.
pub(super) fn websocket_response(key: &HeaderValue, protocol: &str) -> Response<Body> {
    let mut response = switching("websocket");
    let headers = response.headers_mut();
    if let Ok(accept) = HeaderValue::from_str(&derive_accept_key(key.as_bytes())) {
        headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
    }
    if !protocol.is_empty()
        && let Ok(protocol) = HeaderValue::from_str(protocol)
    {
        headers.insert(SEC_WEBSOCKET_PROTOCOL, protocol);
    }
    response
}

fn switching(protocol: &'static str) -> Response<Body> {
    let mut response = Response::new(body::full(""));
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    response
        .headers_mut()
        .insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    response
        .headers_mut()
        .insert(UPGRADE, HeaderValue::from_static(protocol));
    response
}
