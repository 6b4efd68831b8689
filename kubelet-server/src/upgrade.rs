//! Whether a request asks for another protocol.

use http::HeaderMap;
use http::header::{CONNECTION, UPGRADE};

/// Whether a request asks for another protocol (`httpstream.IsUpgradeRequest`).
pub fn is_upgrade(headers: &HeaderMap) -> bool {
    let values = headers.get_all(CONNECTION).iter();
    let mut values = values.filter_map(|value| value.to_str().ok());
    values.any(|value| value.to_ascii_lowercase().contains("upgrade"))
}

/// Whether a request asks for WebSocket (`wsstream.IsWebSocketRequest`).
pub fn is_websocket(headers: &HeaderMap) -> bool {
    let protocol = headers.get(UPGRADE);
    protocol.is_some_and(|it| it.as_bytes().eq_ignore_ascii_case(b"websocket")) && is_upgrade(headers)
}
