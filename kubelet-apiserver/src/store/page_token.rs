//! The `continue` token of a list.

use base64::Engine;
use base64::alphabet::URL_SAFE;
use base64::engine::general_purpose::{GeneralPurpose, NO_PAD};
use serde_json::{Value, json};

use crate::status_error::StatusError;

/// Decodes base64 as Go does: it ignores the unused bits of the last letter.
const BASE64: GeneralPurpose = GeneralPurpose::new(&URL_SAFE, NO_PAD.with_decode_allow_trailing_bits(true));

/// Where a list continues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PageToken {
    /// The revision of the list; `None` for the current one, once the first one is no longer kept.
    pub(super) revision: Option<u64>,
    /// The first key of the next page, without the namespace. There may be no object with this key.
    pub(super) start: String,
}

impl PageToken {
    /// The API server's form: JSON of version, revision and key, in base64.
    pub(super) fn encode(&self) -> String {
        let revision = self.revision.map_or(json!(-1), |r| json!(r));
        let start = json!(format!("/{}", self.start));
        BASE64.encode(format!(
            r#"{{"v":"meta.k8s.io/v1","rv":{revision},"start":{start}}}"#
        ))
    }

    /// Parses a token.
    ///
    /// # Errors
    ///
    /// 400 for an invalid one.
    pub(super) fn decode(token: &str) -> Result<Self, StatusError> {
        let data = BASE64
            .decode(token)
            .map_err(|_| invalid(": illegal base64 data"))?;
        let token: Value = serde_json::from_slice(&data).map_err(|_| {
            let first = data.first().copied().unwrap_or_default();
            invalid(&format!(
                ": invalid character '{}' looking for beginning of value",
                char::from(first)
            ))
        })?;
        if token["v"] != "meta.k8s.io/v1" {
            return Err(invalid(": server does not recognize this encoded version"));
        }
        let revision = match token["rv"].as_i64() {
            None | Some(0) => {
                return Err(invalid(
                    ": incorrect encoded start resourceVersion (version meta.k8s.io/v1)",
                ));
            }
            Some(revision) => u64::try_from(revision).ok(),
        };
        let start = token["start"].as_str().unwrap_or_default();
        if start.is_empty() {
            return Err(invalid(": encoded start key empty (version meta.k8s.io/v1)"));
        }
        let start = start.strip_prefix('/').unwrap_or(start);
        if start.split('/').any(|part| matches!(part, "" | "." | "..")) {
            return Err(invalid(&format!(": {start}")));
        }
        Ok(PageToken {
            revision,
            start: start.to_owned(),
        })
    }
}

fn invalid(why: &str) -> StatusError {
    StatusError::bad_request(format!("invalid continue token: continue key is not valid{why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_written_as_the_api_server_writes_it() {
        let token = PageToken {
            revision: Some(2203),
            start: "a\0".into(),
        };
        let text = "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MjIwMywic3RhcnQiOiIvYVx1MDAwMCJ9";
        assert_eq!(token.encode(), text);
        assert_eq!(PageToken::decode(text).unwrap(), token);
    }

    #[test]
    fn refuses_what_is_none() {
        let encode = |json: &str| BASE64.encode(json);
        for (token, message) in [
            (
                "xx".to_owned(),
                "invalid character 'Ç' looking for beginning of value",
            ),
            (
                encode(r#"{"v":"2","rv":1,"start":"/a"}"#),
                "server does not recognize this encoded version",
            ),
            (
                encode(r#"{"v":"meta.k8s.io/v1","rv":0,"start":"/a"}"#),
                "incorrect encoded start resourceVersion",
            ),
            (
                encode(r#"{"v":"meta.k8s.io/v1","rv":1,"start":""}"#),
                "encoded start key empty",
            ),
            (
                encode(r#"{"v":"meta.k8s.io/v1","rv":1,"start":"/../a"}"#),
                "continue key is not valid: ../a",
            ),
        ] {
            let error = PageToken::decode(&token).unwrap_err();
            assert_eq!(error.code, 400);
            assert!(error.message.contains(message), "{}", error.message);
        }
    }
}
