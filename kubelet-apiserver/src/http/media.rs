//! Media types of requests and responses.

use http::HeaderMap;
use http::header::{ACCEPT, CONTENT_TYPE};
use serde_json::Value;

use super::protobuf;
use crate::status_error::StatusError;

/// The shape of objects in a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// The objects themselves.
    Object,
    /// `as=Table`: as `kubectl get` shows them.
    Table,
    /// `as=PartialObjectMetadata`, and its list.
    Metadata,
}

/// The response that a client accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Accepted {
    pub(crate) shape: Shape,
    /// `application/yaml`: answered in JSON, which is YAML.
    pub(crate) yaml: bool,
    /// `as=APIGroupDiscoveryList`.
    pub(crate) aggregated: bool,
}

/// JSON objects.
pub(super) const PLAIN: Accepted = Accepted {
    shape: Shape::Object,
    yaml: false,
    aggregated: false,
};

impl Accepted {
    /// Reads the `Accept` header: of the supported types with the highest weight, the first one.
    ///
    /// # Errors
    ///
    /// 406 if no type is supported, for example with protobuf alone.
    pub(crate) fn of(headers: &HeaderMap) -> Result<Accepted, StatusError> {
        let accept: Vec<&str> = headers
            .get_all(ACCEPT)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .collect();
        if accept.is_empty() {
            return Ok(PLAIN);
        }
        let mut best: Option<(Accepted, f32)> = None;
        for clause in accept.iter().flat_map(|value| value.split(',')) {
            if let Some((accepted, weight)) = clause_of(clause)
                && best.is_none_or(|(_, best)| weight > best)
            {
                best = Some((accepted, weight));
            }
        }
        best.map(|(accepted, _)| accepted).ok_or_else(|| {
            StatusError::new(
                406,
                "NotAcceptable",
                "only the following media types are accepted: application/json, application/yaml",
            )
        })
    }

    /// The `Content-Type` of the answer.
    pub(crate) fn content_type(self) -> &'static str {
        if self.yaml {
            "application/yaml"
        } else {
            "application/json"
        }
    }
}

/// The response for one clause of an `Accept` header, and its weight.
fn clause_of(clause: &str) -> Option<(Accepted, f32)> {
    let mut parts = clause.split(';').map(str::trim);
    let yaml = match parts.next()? {
        "application/json" | "application/*" | "*/*" => false,
        "application/yaml" => true,
        _ => return None,
    };
    let (mut shape, mut group, mut version, mut weight) = ("", "", "", 1.0);
    for part in parts {
        match part.split_once('=')? {
            ("as", value) => shape = value,
            ("g", value) => group = value,
            ("v", value) => version = value,
            ("q", value) => weight = value.parse().ok()?,
            _ => {}
        }
    }
    let plain = Accepted { yaml, ..PLAIN };
    let accepted = match (shape, group, version) {
        ("", _, _) => plain,
        ("Table", "meta.k8s.io", "v1" | "v1beta1") => Accepted {
            shape: Shape::Table,
            ..plain
        },
        ("PartialObjectMetadata" | "PartialObjectMetadataList", "meta.k8s.io", "v1") => Accepted {
            shape: Shape::Metadata,
            ..plain
        },
        ("APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2") => Accepted {
            aggregated: true,
            ..plain
        },
        _ => return None,
    };
    Some((accepted, weight))
}

/// The media type of a body, without its parameters; empty for none.
pub(super) fn content_type(headers: &HeaderMap) -> &str {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    value
        .unwrap_or_default()
        .split(';')
        .next()
        .unwrap_or_default()
        .trim()
}

/// The JSON of a body that is an object.
///
/// # Errors
///
/// 415 for media types other than JSON and YAML, and for most kinds in protobuf; 400 for invalid YAML and protobuf.
pub(super) fn json_body(content_type: &str, body: bytes::Bytes) -> Result<bytes::Bytes, StatusError> {
    match content_type {
        "" | "application/json" => Ok(body),
        "application/yaml" => Ok(yaml(&body)?.to_string().into()),
        "application/vnd.kubernetes.protobuf" => protobuf::json(&body),
        _ => Err(StatusError::new(
            415,
            "UnsupportedMediaType",
            "the body of the request was in an unknown format - accepted media types include: application/json, \
             application/yaml, application/vnd.kubernetes.protobuf",
        )),
    }
}

/// A body in YAML.
///
/// # Errors
///
/// 400 for invalid YAML.
pub(super) fn yaml(body: &[u8]) -> Result<Value, StatusError> {
    serde_saphyr::from_slice(body)
        .map_err(|e| StatusError::bad_request(format!("error decoding YAML: {}", e.to_string().trim())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepted(accept: &str) -> Result<Accepted, u16> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, accept.parse().unwrap());
        Accepted::of(&headers).map_err(|e| e.code)
    }

    #[test]
    fn chooses_what_it_can_serve() {
        let table = Ok(Accepted {
            shape: Shape::Table,
            ..PLAIN
        });
        for (accept, wanted) in [
            ("*/*", Ok(PLAIN)),
            ("application/json", Ok(PLAIN)),
            ("application/vnd.kubernetes.protobuf, application/json", Ok(PLAIN)),
            ("application/vnd.kubernetes.protobuf", Err(406)),
            (
                "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
                table,
            ),
            (
                "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1;\
                 g=meta.k8s.io",
                table,
            ),
            ("application/json;as=Bogus;v=v1;g=meta.k8s.io", Err(406)),
            (
                "application/json;q=0.5, application/yaml;q=0.9",
                Ok(Accepted { yaml: true, ..PLAIN }),
            ),
            (
                "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json",
                Ok(Accepted {
                    aggregated: true,
                    ..PLAIN
                }),
            ),
        ] {
            assert_eq!(accepted(accept), wanted, "{accept}");
        }
        assert_eq!(Accepted::of(&HeaderMap::new()), Ok(PLAIN));
    }
}
