//! The steps of a write: decoding, managed fields, admission, the kind's strategy, the store.
//!
//! A write reads the stored object, computes the new one, and stores it if the stored object has not changed.
//! Otherwise it starts again. So only the store's own work runs under its lock.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};

use super::managed_fields;
use super::objects::{self, Decoded, Deletion, FieldValidation, Posted};
use super::patch::{self, PatchType};
use super::request::Attributes;
use super::resource::Resource;
use super::server::Shared;
use super::status_error::{Cause, StatusError};
use super::store::{ListOptions, Listed, Raced, Selection};

/// How often the server generates a name for `generateName` before it returns that the name is taken.
const MAX_NAME_GENERATION_CREATE_ATTEMPTS: usize = 8;

const MODIFIED: &str =
    "the object has been modified; please apply your changes to the latest version and try again";

/// A completed write.
#[derive(Debug)]
pub(crate) struct Written {
    /// 200, or 201 for a new object.
    pub(crate) code: u16,
    pub(crate) object: Arc<Value>,
    pub(crate) warnings: Vec<String>,
}

impl Written {
    pub(crate) fn new(code: u16, object: impl Into<Arc<Value>>) -> Self {
        Written {
            code,
            object: object.into(),
            warnings: Vec::new(),
        }
    }

    pub(crate) fn with_warnings(mut self, warnings: Vec<String>) -> Self {
        self.warnings = warnings;
        self
    }
}

impl Shared {
    /// `POST` to a collection.
    ///
    /// # Errors
    ///
    /// The API server rejects the object.
    pub(crate) fn create(
        &self,
        attributes: &Attributes,
        body: &[u8],
        validation: FieldValidation,
    ) -> Result<Written, StatusError> {
        let decoded = objects::decode(attributes, body, validation)?;
        self.create_decoded(attributes, decoded)
    }

    fn create_decoded(&self, attributes: &Attributes, decoded: Decoded) -> Result<Written, StatusError> {
        let Decoded { mut object, warnings } = decoded;
        managed_fields::written(attributes, None, &mut object);
        let created = self.store_new(attributes, object)?;
        Ok(Written::new(201, created).with_warnings(warnings))
    }

    /// Stores a new object, with its managed fields.
    fn store_new(&self, attributes: &Attributes, object: Value) -> Result<Arc<Value>, StatusError> {
        let resource = attributes.resource;
        let generated = name_of(&object).is_empty();
        let mut rng = self.fork_rng();
        for attempt in 1.. {
            let prepared = objects::prepare_create(attributes, self, &mut rng, object.clone())?;
            let name = name_of(&prepared).to_owned();
            let namespace = &attributes.namespace;
            let stored = if !attributes.dry_run {
                self.commit(resource, namespace, &name, None, Some(prepared))
            } else if self.lookup(resource, namespace, &name).is_some() {
                Err(Raced)
            } else {
                Ok(Arc::new(prepared))
            };
            match stored {
                Ok(stored) => {
                    if !attributes.dry_run {
                        self.run_controllers(resource, &stored, &mut rng);
                    }
                    return Ok(stored);
                }
                Err(Raced) if generated && attempt < MAX_NAME_GENERATION_CREATE_ATTEMPTS => {}
                Err(Raced) => return Err(StatusError::already_exists(resource, &name)),
            }
        }
        Err(StatusError::already_exists(resource, name_of(&object)))
    }

    /// `PUT`.
    ///
    /// # Errors
    ///
    /// The API server rejects the object.
    pub(crate) fn update(
        &self,
        attributes: &Attributes,
        body: &[u8],
        validation: FieldValidation,
    ) -> Result<Written, StatusError> {
        let decoded = objects::decode(attributes, body, validation)?;
        loop {
            let Some(old) = self.lookup(attributes.resource, &attributes.namespace, &attributes.name) else {
                let whole = attributes.subresource.is_empty();
                if whole && allows_create_on_update(attributes.resource) {
                    return self.create_decoded(attributes, decoded);
                }
                return Err(StatusError::not_found(attributes.resource, &attributes.name));
            };
            let mut new = decoded.object.clone();
            managed_fields::written(attributes, Some(&old), &mut new);
            if let Ok(stored) = self.replace(attributes, &old, new)? {
                return Ok(Written::new(200, stored).with_warnings(decoded.warnings));
            }
        }
    }

    /// `PATCH`.
    ///
    /// # Errors
    ///
    /// The API server rejects the patch.
    pub(crate) fn patch(
        &self,
        attributes: &Attributes,
        kind: PatchType,
        patch: &Value,
        force: bool,
        validation: FieldValidation,
    ) -> Result<Written, StatusError> {
        if kind == PatchType::Apply {
            return self.apply(attributes, patch, force, validation);
        }
        let resource = attributes.resource;
        loop {
            let old = self
                .lookup(resource, &attributes.namespace, &attributes.name)
                .ok_or_else(|| StatusError::not_found(resource, &attributes.name))?;
            let patched = patch::patch(kind, resource, &old, patch)?;
            let decoded = objects::decode_patched(attributes, patched, validation)?;
            let mut new = decoded.object;
            managed_fields::written(attributes, Some(&old), &mut new);
            if let Ok(stored) = self.replace(attributes, &old, new)? {
                return Ok(Written::new(200, stored).with_warnings(decoded.warnings));
            }
        }
    }

    /// Server-side apply: creates the object if it does not exist.
    fn apply(
        &self,
        attributes: &Attributes,
        applied: &Value,
        force: bool,
        validation: FieldValidation,
    ) -> Result<Written, StatusError> {
        let resource = attributes.resource;
        let warnings = objects::check_applied(attributes, applied, validation)?;
        loop {
            let old = self.lookup(resource, &attributes.namespace, &attributes.name);
            if old.is_none() && !attributes.subresource.is_empty() {
                return Err(StatusError::not_found(resource, &attributes.name));
            }
            let object = managed_fields::apply(
                resource,
                old.as_deref(),
                applied,
                &attributes.field_manager,
                force,
                attributes.subresource,
                attributes.now,
            )?;
            let new = objects::decode_patched(attributes, object, FieldValidation::Ignore)?.object;
            let Some(old) = old else {
                match self.store_new(attributes, new) {
                    Err(taken) if taken.reason == "AlreadyExists" => continue,
                    created => return Ok(Written::new(201, created?).with_warnings(warnings)),
                }
            };
            if let Ok(stored) = self.replace(attributes, &old, new)? {
                return Ok(Written::new(200, stored).with_warnings(warnings));
            }
        }
    }

    /// Replaces `old` with a decoded object, or removes it if its last finalizer is gone.
    fn replace(
        &self,
        attributes: &Attributes,
        old: &Arc<Value>,
        new: Value,
    ) -> Result<Result<Arc<Value>, Raced>, StatusError> {
        let resource = attributes.resource;
        let asked = new["metadata"]["resourceVersion"].as_str().unwrap_or_default();
        if !matches!(asked, "" | "0") && old["metadata"]["resourceVersion"] != asked {
            return Err(StatusError::conflict(resource, &attributes.name, MODIFIED));
        }
        let mut new = objects::prepare_update(attributes, self, old, new)?;
        new["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"].clone();
        managed_fields::keep_times(old, &mut new);
        if new == **old {
            return Ok(Ok(old.clone()));
        }
        if attributes.dry_run {
            return Ok(Ok(new.into()));
        }
        let (namespace, name) = (&attributes.namespace, &attributes.name);
        if objects::removable(resource, &new) {
            let removed = self.commit(resource, namespace, name, Some(old), None);
            self.after_removal(resource, namespace);
            return Ok(removed.map(|_| new.into()));
        }
        let stored = self.commit(resource, namespace, name, Some(old), Some(new));
        if let Ok(stored) = &stored {
            self.run_controllers(resource, stored, &mut self.fork_rng());
        }
        Ok(stored)
    }

    /// `POST` to a sub-resource.
    ///
    /// # Errors
    ///
    /// The API server rejects the request.
    pub(crate) fn post_subresource(
        &self,
        attributes: &Attributes,
        body: &[u8],
        validation: FieldValidation,
    ) -> Result<Written, StatusError> {
        let resource = attributes.resource;
        let Decoded {
            object: body,
            warnings,
        } = objects::decode(attributes, body, validation)?;
        loop {
            let parent = self
                .lookup(resource, &attributes.namespace, &attributes.name)
                .ok_or_else(|| StatusError::not_found(resource, &attributes.name))?;
            let mut rng = self.fork_rng();
            let posted = objects::post_subresource(attributes, self, &mut rng, &parent, body.clone())?;
            let answer = match posted {
                Posted::Answer(answer) => answer,
                Posted::Update { answer, .. } | Posted::Delete { answer, .. } if attributes.dry_run => answer,
                Posted::Update { object, answer } => {
                    let (namespace, name) = (&attributes.namespace, &attributes.name);
                    match self.commit(resource, namespace, name, Some(&parent), Some(object)) {
                        Ok(stored) => {
                            self.run_controllers(resource, &stored, &mut rng);
                            answer
                        }
                        Err(Raced) => continue,
                    }
                }
                Posted::Delete { options, answer } => {
                    let attributes = Attributes {
                        verb: "delete",
                        subresource: "",
                        ..attributes.clone()
                    };
                    self.delete(&attributes, &options)?;
                    answer
                }
            };
            return Ok(Written::new(201, answer).with_warnings(warnings));
        }
    }

    /// `DELETE` of one object.
    ///
    /// # Errors
    ///
    /// The API server rejects the request.
    pub(crate) fn delete(&self, attributes: &Attributes, options: &Value) -> Result<Written, StatusError> {
        let (resource, name) = (attributes.resource, &attributes.name);
        loop {
            let old = self
                .lookup(resource, &attributes.namespace, name)
                .ok_or_else(|| StatusError::not_found(resource, name))?;
            if let Ok((object, removed)) = self.delete_once(attributes, &old, options)? {
                if removed {
                    self.after_removal(resource, &attributes.namespace);
                }
                if removed && !objects::returns_deleted(resource) {
                    return Ok(Written::new(200, success(resource, &object)));
                }
                return Ok(Written::new(200, object));
            }
        }
    }

    /// The object in the response, and whether it is removed.
    fn delete_once(
        &self,
        attributes: &Attributes,
        old: &Arc<Value>,
        options: &Value,
    ) -> Result<Result<(Arc<Value>, bool), Raced>, StatusError> {
        let (resource, namespace, name) = (attributes.resource, &attributes.namespace, &attributes.name);
        let commit =
            |old: &Arc<Value>, new: Option<Value>| self.commit(resource, namespace, name, Some(old), new);
        Ok(match objects::prepare_delete(attributes, self, old, options)? {
            Deletion::Pending => Ok((old.clone(), false)),
            Deletion::Remove if attributes.dry_run => Ok((old.clone(), true)),
            Deletion::Store(new) if attributes.dry_run => Ok((new.into(), false)),
            Deletion::Remove => commit(old, None).map(|object| (object, true)),
            Deletion::Store(new) => match commit(old, Some(new)) {
                Ok(stored) if objects::removable(resource, &stored) => {
                    commit(&stored, None).map(|removed| (removed, true))
                }
                Ok(stored) => {
                    self.run_controllers(resource, &stored, &mut self.fork_rng());
                    Ok((stored, false))
                }
                Err(raced) => Err(raced),
            },
        })
    }

    /// `DELETE` of a collection: deletes what the selection has now, and returns it.
    ///
    /// # Errors
    ///
    /// The API server rejects a deletion. Objects deleted before that stay deleted.
    pub(crate) fn delete_collection(
        &self,
        attributes: &Attributes,
        selection: &Selection,
        options: &Value,
    ) -> Result<Listed, StatusError> {
        let mut listed = self.list(attributes.resource, selection, &ListOptions::default())?;
        for item in &mut listed.items {
            let one = Attributes {
                name: name_of(item).to_owned(),
                ..attributes.clone()
            };
            match self.delete(&one, options) {
                Ok(_) => {}
                Err(gone) if gone.reason == "NotFound" => {}
                Err(refused) => return Err(refused),
            }
        }
        Ok(listed)
    }
}

/// `fieldManager`, where it is required.
///
/// # Errors
///
/// 422 for an apply without one.
pub(crate) fn required_field_manager(given: &str) -> Result<(), StatusError> {
    if !given.is_empty() {
        return Ok(());
    }
    let cause = Cause {
        reason: "FieldValueRequired",
        field: "fieldManager".into(),
        message: "Required value: is required for apply patch".into(),
    };
    Err(StatusError::invalid(&PATCH_OPTIONS, "", &[cause]))
}

static PATCH_OPTIONS: Resource = Resource {
    group: "meta.k8s.io",
    version: "v1",
    plural: "patchoptions",
    singular: "patchoptions",
    kind: "PatchOptions",
    namespaced: false,
    short_names: &[],
    subresources: &[],
};

/// Whether a `PUT` creates an object that does not exist (`AllowCreateOnUpdate`).
fn allows_create_on_update(resource: &Resource) -> bool {
    matches!(resource.plural, "leases" | "events" | "services")
}

pub(crate) fn name_of(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

/// The `Status` in the response to a deletion.
fn success(resource: &Resource, object: &Value) -> Value {
    let mut details = resource.details(name_of(object));
    details["uid"] = object["metadata"]["uid"].clone();
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
}

/// The body of a `DELETE`: `DeleteOptions`, or nothing.
///
/// # Errors
///
/// 400 for any other body.
pub(crate) fn delete_options(body: &Bytes) -> Result<Value, StatusError> {
    if body.is_empty() {
        return Ok(json!({}));
    }
    serde_json::from_slice(body).map_err(|e| StatusError::bad_request(e.to_string()))
}
