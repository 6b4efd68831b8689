//! OpenAPI without schemas: enough for clients to leave the validation of fields to the server.

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::discovery::{group_versions, of_version};
use crate::resource::Served;

/// `/openapi/v3`.
pub(super) fn v3_index(served: Served) -> Value {
    let paths: Map<String, Value> = group_versions(served)
        .into_iter()
        .map(|(group, version)| {
            let path = path_of(group, version);
            let url = format!("/openapi/v3/{path}");
            (path, json!({"serverRelativeURL": url}))
        })
        .collect();
    json!({"paths": paths})
}

/// `/openapi/v3/<path>`; `None` for a group and version that are not served.
pub(super) fn v3(served: Served, path: &str) -> Option<Value> {
    let (group, version) = group_versions(served)
        .into_iter()
        .find(|(group, version)| path_of(group, version) == path)?;
    let parameters: Vec<Value> = ["dryRun", "fieldManager", "fieldValidation"]
        .into_iter()
        .map(|name| json!({"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": true}}))
        .collect();
    // It leaves out the strategic merge patch, for which a client would read merge keys from the schemas.
    let content = json!({
        "application/apply-patch+yaml": {}, "application/json-patch+json": {}, "application/merge-patch+json": {},
    });
    let paths: Map<String, Value> = of_version(served, group, version)
        .map(|resource| {
            let namespace = if resource.namespaced {
                "namespaces/{namespace}/"
            } else {
                ""
            };
            let operation = json!({
                "parameters": parameters, "requestBody": {"content": content},
                "responses": {"200": {"description": "OK"}},
                "x-kubernetes-action": "patch",
                "x-kubernetes-group-version-kind": {"group": group, "version": version, "kind": resource.kind},
            });
            let path = format!("/{path}/{namespace}{}/{{name}}", resource.plural);
            (path, json!({"patch": operation}))
        })
        .collect();
    Some(json!({
        "openapi": "3.0.0", "info": {"title": "Kubernetes", "version": "v1.36.2"}, "paths": paths,
        "components": {"schemas": {}},
    }))
}

/// `/openapi/v2` in JSON.
pub(super) fn v2() -> Value {
    json!({
        "swagger": "2.0", "info": {"title": "Kubernetes", "version": "v1.36.2"}, "paths": {}, "definitions": {},
    })
}

/// The prefix of [`v2_protobuf`]'s media type in requests; older clients write the version differently.
pub(super) const V2_PROTOBUF_ASKED: &str = "application/com.github.proto-openapi.spec.v2";

/// The media type of [`v2_protobuf`].
pub(super) const V2_PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// `/openapi/v2` for kubectl: the content of [`v2`] as a message `openapi.v2.Document`.
pub(super) fn v2_protobuf() -> Bytes {
    let mut info = field(1, b"Kubernetes");
    info.extend(field(2, b"v1.36.2"));
    let mut document = field(1, b"2.0");
    document.extend(field(2, &info));
    document.extend(field(8, b""));
    document.extend(field(9, b""));
    document.into()
}

/// A field of fewer than 128 bytes.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut field = vec![number << 3 | 2, bytes.len() as u8];
    field.extend(bytes);
    field
}

fn path_of(group: &str, version: &str) -> String {
    if group.is_empty() {
        format!("api/{version}")
    } else {
        format!("apis/{group}/{version}")
    }
}
