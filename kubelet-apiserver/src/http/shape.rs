//! Objects and lists in the shape that the client accepts.

use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::media::Shape;
use crate::resource::Resource;
use crate::store::Listed;
use crate::table;

/// Converts objects for a response.
#[derive(Debug, Clone)]
pub(super) struct Presenter {
    pub(super) resource: &'static Resource,
    pub(super) shape: Shape,
    /// `includeObject` of a table: `None`, `Metadata`, `Object`.
    pub(super) include_object: String,
    pub(super) now: Timestamp,
}

impl Presenter {
    pub(super) fn object(&self, object: &Arc<Value>) -> Arc<Value> {
        match self.shape {
            Shape::Object => object.clone(),
            Shape::Metadata => Arc::new(partial(object)),
            Shape::Table => {
                let metadata = json!({"resourceVersion": object["metadata"]["resourceVersion"]});
                Arc::new(self.table(std::slice::from_ref(object), metadata, true))
            }
        }
    }

    /// An object in a watch. Only the first table of a watch has columns.
    pub(super) fn watched(&self, object: &Arc<Value>, first: bool) -> Value {
        match self.shape {
            Shape::Object => object.as_ref().clone(),
            Shape::Metadata => partial(object),
            Shape::Table => {
                let metadata = json!({"resourceVersion": object["metadata"]["resourceVersion"]});
                self.table(std::slice::from_ref(object), metadata, first)
            }
        }
    }

    /// The object of a bookmark.
    pub(super) fn bookmark(&self, revision: u64, initial_events_end: bool) -> Value {
        let mut metadata = json!({"resourceVersion": revision.to_string()});
        if initial_events_end {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        match self.shape {
            Shape::Table => self.table(&[], metadata, false),
            Shape::Metadata => {
                json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata})
            }
            Shape::Object => {
                let mut object = json!({
                    "kind": self.resource.kind, "apiVersion": self.resource.api_version(), "metadata": metadata,
                });
                // The API server writes these kinds so when they are empty.
                if self.resource.kind == "Pod" {
                    object["spec"] = json!({"containers": null});
                    object["status"] = json!({});
                }
                object
            }
        }
    }

    pub(super) fn list(&self, listed: &Listed) -> Value {
        let mut metadata = json!({"resourceVersion": listed.revision.to_string()});
        if !listed.token.is_empty() {
            metadata["continue"] = json!(listed.token);
        }
        if let Some(remaining) = listed.remaining {
            metadata["remainingItemCount"] = json!(remaining);
        }
        match self.shape {
            Shape::Object => json!({
                "kind": format!("{}List", self.resource.kind), "apiVersion": self.resource.api_version(),
                "metadata": metadata, "items": listed.items.iter().map(|o| item(o)).collect::<Vec<_>>(),
            }),
            Shape::Metadata => json!({
                "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
                "items": listed.items.iter().map(|o| partial(o)).collect::<Vec<_>>(),
            }),
            Shape::Table => self.table(&listed.items, metadata, true),
        }
    }

    fn table(&self, objects: &[Arc<Value>], metadata: Value, columns: bool) -> Value {
        let rows: Vec<Value> = objects
            .iter()
            .map(|object| {
                let shown = match self.include_object.as_str() {
                    "None" => Value::Null,
                    "Object" => object.as_ref().clone(),
                    _ => partial(object),
                };
                json!({"cells": table::cells(self.resource, object, self.now), "object": shown})
            })
            .collect();
        let columns = if columns {
            table::columns(self.resource)
        } else {
            json!([])
        };
        json!({
            "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "columnDefinitions": columns,
            "rows": rows,
        })
    }
}

/// An object within a list, without kind and version.
fn item(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(fields) = object.as_object_mut() {
        fields.remove("kind");
        fields.remove("apiVersion");
    }
    object
}

fn partial(object: &Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]})
}
