//! What the controller manager does to the objects that agents live by: it fills and empties namespaces, and approves and
//! signs certificates. Here it is done at once, in the request that gives rise to it.

use std::sync::Arc;

use serde_json::{Value, json};

use super::objects;
use super::request::{Attributes, User};
use super::resource::{RESOURCES, Resource};
use super::server::Shared;
#[cfg(feature = "signing")]
use super::store::Raced;
use super::write::name_of;

impl Shared {
    /// What follows from an object that was stored.
    pub(crate) fn run_controllers(
        &self,
        resource: &'static Resource,
        object: &Arc<Value>,
        rng: &mut fastrand::Rng,
    ) {
        match resource.plural {
            "namespaces" if is_terminating(object) => self.empty_namespace(name_of(object)),
            "namespaces" => self.fill_namespace(name_of(object), rng),
            #[cfg(feature = "signing")]
            "certificatesigningrequests" => self.sign(resource, object),
            _ => {}
        }
    }

    /// What follows from an object that was removed: an empty namespace goes, if that was waited for.
    pub(crate) fn after_removal(&self, namespace: &str) {
        let Some(namespaces) = Resource::find("", "v1", "namespaces").filter(|_| !namespace.is_empty())
        else {
            return;
        };
        let Some(object) = self
            .lookup(namespaces, "", namespace)
            .filter(|object| is_terminating(object))
        else {
            return;
        };
        let mut contents = RESOURCES.iter().filter(|r| r.namespaced);
        if contents.any(|resource| {
            !self
                .with_store(|store| store.objects(resource, namespace))
                .is_empty()
        }) {
            return;
        }
        // Whoever changed it meanwhile brings it here again.
        let _ = self.commit(namespaces, "", namespace, Some(&object), None);
    }

    fn fill_namespace(&self, namespace: &str, rng: &mut fastrand::Rng) {
        for (resource, object) in objects::beside_namespace(namespace, self.now(), rng) {
            let name = name_of(&object).to_owned();
            // Already there: nothing to do, as for the controllers.
            let _ = self.commit(resource, namespace, &name, None, Some(object));
        }
    }

    /// Deletes all that is in a namespace; pods get their time to end, and keep it until they are gone.
    fn empty_namespace(&self, namespace: &str) {
        for resource in RESOURCES.iter().filter(|r| r.namespaced) {
            for object in self.with_store(|store| store.objects(resource, namespace)) {
                let attributes = Attributes {
                    user: User::admin(),
                    verb: "delete",
                    resource,
                    subresource: "",
                    namespace: namespace.to_owned(),
                    name: name_of(&object).to_owned(),
                    field_selector: String::new(),
                    field_manager: "kube-controller-manager".into(),
                    dry_run: false,
                    now: self.now(),
                };
                // Gone already: so much the better.
                let _ = self.delete(&attributes, &json!({}));
            }
        }
        self.after_removal(namespace);
    }

    #[cfg(feature = "signing")]
    fn sign(&self, resource: &'static Resource, request: &Arc<Value>) {
        let Some(signer) = &self.signer else { return };
        let mut request = request.clone();
        let (now, name) = (self.now(), name_of(&request).to_owned());
        while let Some(next) = signer
            .approve(&request, now)
            .or_else(|| signer.sign(&request, now))
        {
            match self.commit(resource, "", &name, Some(&request), Some(next)) {
                Ok(stored) => request = stored,
                // Whoever was faster is looked at in its turn.
                Err(Raced) => return,
            }
        }
    }
}

fn is_terminating(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}
