//! The part of the controller manager that agents depend on: it fills and empties namespaces, and approves and signs
//! certificates. It runs within the request that triggers it.

use std::sync::Arc;

use serde_json::{Value, json};

use super::objects::{self, Posted};
use super::request::{Attributes, User};
use super::resource::{RESOURCES, Resource};
use super::server::Shared;
#[cfg(feature = "tls")]
use super::store::Raced;
use super::write::name_of;

impl Shared {
    /// Runs the controllers after an object was stored.
    pub(crate) fn run_controllers(
        &self,
        resource: &'static Resource,
        object: &Arc<Value>,
        rng: &mut fastrand::Rng,
    ) {
        match resource.plural {
            "namespaces" if is_terminating(object) => self.empty_namespace(name_of(object)),
            "namespaces" => self.fill_namespace(name_of(object), rng),
            "pods" => self.bind(resource, object),
            #[cfg(feature = "tls")]
            "certificatesigningrequests" => self.sign(resource, object),
            _ => {}
        }
        self.run_storage_controllers(resource, rng);
        self.run_claim_controllers(resource, rng);
    }

    /// Runs the controllers after an object was removed: a terminating namespace that is now empty is removed.
    pub(crate) fn after_removal(&self, resource: &Resource, namespace: &str) {
        self.run_storage_controllers(resource, &mut self.fork_rng());
        self.run_claim_controllers(resource, &mut self.fork_rng());
        self.end_namespace(namespace);
    }

    fn end_namespace(&self, namespace: &str) {
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
        // If another request changed it meanwhile, that request runs this again.
        let _ = self.commit(namespaces, "", namespace, Some(&object), None);
    }

    fn fill_namespace(&self, namespace: &str, rng: &mut fastrand::Rng) {
        for (resource, object) in
            objects::beside_namespace(namespace, &self.namespace_defaults, self.now(), rng)
        {
            let name = name_of(&object).to_owned();
            // It exists already, so there is nothing to do.
            let _ = self.commit(resource, namespace, &name, None, Some(object));
        }
    }

    /// Deletes all objects in a namespace. Pods get their grace period, and the namespace stays until they are gone.
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
                // An object that is gone already is no error.
                let _ = self.delete(&attributes, &json!({}));
            }
        }
        self.end_namespace(namespace);
    }

    /// Binds a pod to the only node, as its scheduler.
    fn bind(&self, pods: &'static Resource, pod: &Arc<Value>) {
        let Some(node) = &self.bind_pods_to else { return };
        let (spec, meta) = (&pod["spec"], &pod["metadata"]);
        let is_gated = spec["schedulingGates"]
            .as_array()
            .is_some_and(|gates| !gates.is_empty());
        if spec["nodeName"].as_str().is_some_and(|node| !node.is_empty()) || is_gated || is_terminating(pod) {
            return;
        }
        let attributes = Attributes {
            user: User::admin(),
            verb: "create",
            resource: pods,
            subresource: "binding",
            namespace: meta["namespace"].as_str().unwrap_or_default().to_owned(),
            name: name_of(pod).to_owned(),
            field_selector: String::new(),
            field_manager: "kube-scheduler".into(),
            dry_run: false,
            now: self.now(),
        };
        let binding = json!({"metadata": {"name": name_of(pod)}, "target": {"kind": "Node", "name": node}});
        let bound = objects::post_subresource(&attributes, self, &mut self.fork_rng(), pod, binding);
        if let Ok(Posted::Update { object, .. }) = bound {
            // If another request changed it meanwhile, that request binds it.
            let _ = self.commit(
                pods,
                &attributes.namespace,
                &attributes.name,
                Some(pod),
                Some(object),
            );
        }
    }

    #[cfg(feature = "tls")]
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
                // The request that changed it first runs the signer again.
                Err(Raced) => return,
            }
        }
    }
}

fn is_terminating(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}
