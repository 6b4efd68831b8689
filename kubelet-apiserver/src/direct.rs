//! The server without HTTP: for the set-up and the assertions of a test.

use std::marker::PhantomData;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::serde::Serialize;
use k8s_openapi::serde::de::DeserializeOwned;
use k8s_openapi::{Metadata, Resource as Kind};
use serde_json::{Value, json};

use super::call::Verb;
use super::objects::FieldValidation;
use super::request::{Attributes, User};
use super::resource::Resource;
use super::server::ApiServer;
use super::status_error::StatusError;
use super::store::{Event, EventType, Events, ListOptions, Selection};
use crate::Result;

/// As the administrator, past users, faults and the record of calls.
impl ApiServer {
    /// An object, if it is there. `namespace` is empty for kinds that have none.
    ///
    /// # Errors
    ///
    /// For a kind that is not served.
    pub fn get<K: Kind + DeserializeOwned>(&self, namespace: &str, name: &str) -> Result<Option<K>> {
        let object = self.shared.lookup(served::<K>()?, namespace, name);
        object.map(|object| typed(&object)).transpose()
    }

    /// All objects of a kind, in the order of namespace and name.
    ///
    /// # Errors
    ///
    /// For a kind that is not served.
    pub fn list<K: Kind + DeserializeOwned>(&self) -> Result<Vec<K>> {
        let resource = served::<K>()?;
        let objects = self.shared.with_store(|store| store.objects(resource, ""));
        objects.iter().map(|object| typed(object)).collect()
    }

    /// Makes an object, in the namespace it says or in `default`. Returns it as it was stored.
    ///
    /// # Errors
    ///
    /// As the API server refuses it.
    pub fn create<K>(&self, object: &K) -> Result<K>
    where
        K: Kind + Metadata<Ty = ObjectMeta> + Serialize + DeserializeOwned,
    {
        let (attributes, body) = self.request(Verb::Create, object)?;
        let written = self.shared.create(&attributes, &body, FieldValidation::Strict);
        typed(&written?.object)
    }

    /// Puts an object in the place of the one of its name. Its status stays as it is, where it is written apart.
    ///
    /// # Errors
    ///
    /// As the API server refuses it: what is not there, or was changed since its `resourceVersion`.
    pub fn replace<K>(&self, object: &K) -> Result<K>
    where
        K: Kind + Metadata<Ty = ObjectMeta> + Serialize + DeserializeOwned,
    {
        let (attributes, body) = self.request(Verb::Update, object)?;
        let written = self.shared.update(&attributes, &body, FieldValidation::Strict);
        typed(&written?.object)
    }

    /// Puts the status of an object in the place of the one of its name.
    ///
    /// # Errors
    ///
    /// As the API server refuses it: what is not there, or was changed since its `resourceVersion`.
    pub fn replace_status<K>(&self, object: &K) -> Result<K>
    where
        K: Kind + Metadata<Ty = ObjectMeta> + Serialize + DeserializeOwned,
    {
        let (mut attributes, body) = self.request(Verb::Update, object)?;
        attributes.subresource = "status";
        let written = self.shared.update(&attributes, &body, FieldValidation::Strict);
        typed(&written?.object)
    }

    /// Deletes an object as a client does that says nothing about how: a pod gets its time to end.
    ///
    /// # Errors
    ///
    /// As the API server refuses it: what is not there.
    pub fn delete<K: Kind>(&self, namespace: &str, name: &str) -> Result<()> {
        let attributes = self.attributes(Verb::Delete, served::<K>()?, namespace, name);
        self.shared.delete(&attributes, &json!({}))?;
        Ok(())
    }

    /// Watches all objects of a kind: the changes after a revision, or with 0 first the objects that are there. The stream ends
    /// when watches end; call this again then, with the last revision seen.
    ///
    /// # Errors
    ///
    /// If the kind is not served, or the server has forgotten the revision.
    pub fn changes<K: Kind>(&self, since: u64) -> Result<Changes<K>> {
        let options = ListOptions {
            resource_version: since.to_string(),
            send_initial_events: Some(since == 0),
            allow_watch_bookmarks: true,
            ..ListOptions::default()
        };
        let resource = served::<K>()?;
        let watched = self
            .shared
            .with_store(|store| store.watch(resource, Selection::default(), &options));
        Ok(Changes(watched?.events, PhantomData))
    }

    fn request<K>(&self, verb: Verb, object: &K) -> Result<(Attributes, Vec<u8>)>
    where
        K: Kind + Metadata<Ty = ObjectMeta> + Serialize,
    {
        let (resource, metadata) = (served::<K>()?, object.metadata());
        let namespace = match metadata.namespace.as_deref() {
            _ if !resource.namespaced => "",
            Some(namespace) if !namespace.is_empty() => namespace,
            _ => "default",
        };
        let name = match verb {
            Verb::Create => "",
            _ => metadata.name.as_deref().unwrap_or_default(),
        };
        let body = serde_json::to_vec(object).map_err(|e| StatusError::bad_request(e.to_string()))?;
        Ok((self.attributes(verb, resource, namespace, name), body))
    }

    fn attributes(&self, verb: Verb, resource: &'static Resource, namespace: &str, name: &str) -> Attributes {
        Attributes {
            user: User::admin(),
            verb: verb.as_str(),
            resource,
            subresource: "",
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            field_selector: String::new(),
            field_manager: "kubelet-apiserver".into(),
            dry_run: false,
            now: self.shared.now(),
        }
    }
}

/// The changes of all objects of a kind, from [`ApiServer::changes`].
pub struct Changes<K>(Events, PhantomData<fn() -> K>);

/// One change, with the revision to continue from.
pub enum Change<K> {
    /// The object was there at the beginning.
    Found(K),
    /// These were all the objects at the beginning.
    FoundAll(u64),
    /// The object was created or changed.
    Changed(u64, K),
    /// The object was deleted; this is its last state.
    Gone(u64, K),
}

impl<K: DeserializeOwned> Changes<K> {
    /// The next change; `None` when the watch ended. An object that cannot be decoded as `K` is skipped.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: no change is lost.
    pub async fn next(&mut self) -> Option<Change<K>> {
        loop {
            let change = match self.0.next().await? {
                Event::Initial(object) => typed(&object).map(Change::Found),
                Event::InitialEnd(revision) => Ok(Change::FoundAll(revision)),
                Event::Change(change, event) => {
                    let gone = event == EventType::Deleted;
                    typed(change.shown(event)).map(|object| match gone {
                        true => Change::Gone(change.revision, object),
                        false => Change::Changed(change.revision, object),
                    })
                }
            };
            if let Ok(change) = change {
                return Some(change);
            }
        }
    }
}

fn served<K: Kind>() -> Result<&'static Resource> {
    let found = Resource::find(K::GROUP, K::VERSION, K::URL_PATH_SEGMENT);
    found.ok_or_else(|| {
        let message = format!("{} {} is not served", K::API_VERSION, K::KIND);
        StatusError::new(404, "NotFound", message).into()
    })
}

fn typed<K: DeserializeOwned>(object: &Value) -> Result<K> {
    K::deserialize(object).map_err(|e| StatusError::new(500, "InternalError", e.to_string()).into())
}
