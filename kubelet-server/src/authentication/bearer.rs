//! Bearer tokens in the headers of a request.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::{AUTHORIZATION, SEC_WEBSOCKET_PROTOCOL};
use http::{HeaderMap, HeaderValue};

use super::Unauthenticated;
use crate::upgrade::is_websocket;

/// Browsers cannot set `Authorization` on a WebSocket request. So they send the token as a protocol with this prefix.
const PROTOCOL_PREFIX: &str = "base64url.bearer.authorization.k8s.io.";

/// The token of `Authorization: Bearer TOKEN`.
pub(super) fn of_authorization(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(AUTHORIZATION)?.to_str().ok()?.trim();
    let (scheme, token) = value.split_once(' ')?;
    let token = token.split(' ').next().unwrap_or_default();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then(|| token.to_owned())
}

/// The token among the protocols of a WebSocket request, which is removed there: it is not for the runtime.
pub(super) fn of_websocket_protocol(headers: &mut HeaderMap) -> Result<Option<String>, Unauthenticated> {
    if !is_websocket(headers) {
        return Ok(None);
    }
    let (mut token, mut others) = (None, Vec::new());
    for value in headers.get_all(SEC_WEBSOCKET_PROTOCOL) {
        for protocol in value.to_str().unwrap_or_default().split(',').map(str::trim) {
            match protocol.strip_prefix(PROTOCOL_PREFIX) {
                None => others.push(protocol.to_owned()),
                Some(_) if token.is_some() => {
                    return Err(Unauthenticated(
                        "multiple base64.bearer.authorization tokens specified".into(),
                    ));
                }
                Some(encoded) => token = Some(encoded.to_owned()),
            }
        }
    }
    let Some(encoded) = token else { return Ok(None) };
    if others.is_empty() {
        let message = "missing additional subprotocol, which is required when specifying bearer tokens";
        return Err(Unauthenticated(message.into()));
    }
    let invalid = || Unauthenticated("the token in Sec-WebSocket-Protocol is not valid".into());
    let token = URL_SAFE_NO_PAD.decode(encoded).map_err(|_| invalid())?;
    let token = String::from_utf8(token).map_err(|_| invalid())?;
    let others = HeaderValue::try_from(others.join(",")).map_err(|_| invalid())?;
    headers.insert(SEC_WEBSOCKET_PROTOCOL, others);
    Ok(Some(token))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| ((*name).parse().unwrap(), value.parse().unwrap()))
            .collect()
    }

    #[test]
    fn the_token_of_the_authorization_header() {
        for (value, token) in [
            ("Bearer abc", Some("abc")),
            ("bearer abc", Some("abc")),
            ("Bearer  abc", None),
            ("Bearer abc def", Some("abc")),
            ("Bearer", None),
            ("Bearer ", None),
            ("Basic YTpi", None),
            ("", None),
        ] {
            let found = of_authorization(&headers(&[("authorization", value)]));
            assert_eq!(found.as_deref(), token, "{value:?}");
        }
        assert_eq!(of_authorization(&HeaderMap::new()), None);
    }

    #[test]
    fn the_token_among_the_protocols_of_a_websocket() {
        let ask = |protocols: &str| {
            let mut headers = headers(&[
                ("upgrade", "websocket"),
                ("connection", "keep-alive, Upgrade"),
                ("sec-websocket-protocol", protocols),
            ]);
            let found = of_websocket_protocol(&mut headers).map_err(|error| error.0);
            (
                found,
                headers[SEC_WEBSOCKET_PROTOCOL].to_str().unwrap().to_owned(),
            )
        };
        let token = format!("{PROTOCOL_PREFIX}{}", URL_SAFE_NO_PAD.encode("secret"));
        assert_eq!(ask("v4.channel.k8s.io"), (Ok(None), "v4.channel.k8s.io".into()));
        let both = format!("v4.channel.k8s.io, {token}");
        assert_eq!(
            ask(&both),
            (Ok(Some("secret".into())), "v4.channel.k8s.io".into())
        );
        assert!(
            ask(&token)
                .0
                .unwrap_err()
                .contains("missing additional subprotocol")
        );
        assert!(
            ask(&format!("a,{token},{token}"))
                .0
                .unwrap_err()
                .contains("multiple")
        );
        assert!(
            ask(&format!("a,{PROTOCOL_PREFIX}%%%"))
                .0
                .unwrap_err()
                .contains("not valid")
        );
    }

    #[test]
    fn only_a_websocket_request_is_searched() {
        let token = format!("a,{PROTOCOL_PREFIX}{}", URL_SAFE_NO_PAD.encode("secret"));
        let mut headers = headers(&[("sec-websocket-protocol", &token)]);
        assert_eq!(of_websocket_protocol(&mut headers), Ok(None));
    }
}
