//! Events, which are stored once and served by two groups.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::Value;

use crate::objects;
use crate::resource::{RESOURCES, Resource};

/// Whether the objects of a resource are stored as another resource's.
pub(crate) fn is_twin(resource: &Resource) -> bool {
    resource.group == "events.k8s.io"
}

/// The resource whose objects are stored: events are the core group's.
pub(super) fn stored(resource: &Resource) -> &Resource {
    RESOURCES
        .iter()
        .find(|r| is_twin(resource) && r.group.is_empty() && r.plural == resource.plural)
        .unwrap_or(resource)
}

/// A stored object in the form of a resource.
pub(crate) fn shown(resource: &Resource, object: &Arc<Value>) -> Arc<Value> {
    if is_twin(resource) {
        Arc::new(converted(object, resource))
    } else {
        object.clone()
    }
}

/// As [`shown`], without a copy if possible.
pub(super) fn seen<'a>(resource: &Resource, object: &'a Value) -> Cow<'a, Value> {
    if is_twin(resource) {
        Cow::Owned(converted(object, resource))
    } else {
        Cow::Borrowed(object)
    }
}

/// An object in its stored form.
pub(super) fn to_store(resource: &Resource, mut object: Value) -> Value {
    if is_twin(resource) {
        objects::convert_event(&mut object, stored(resource));
    }
    object
}

fn converted(object: &Value, to: &Resource) -> Value {
    let mut object = object.clone();
    objects::convert_event(&mut object, to);
    object
}
