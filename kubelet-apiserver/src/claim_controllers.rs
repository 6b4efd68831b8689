//! The controllers of resource claims: they create the claims of templates, allocate devices of the node on which a pod is, reserve
//! claims for pods and free them after their pods. They run within the request that triggers them.
//!
//! They do the work of the controller manager (`pkg/controller/resourceclaim`) and of the scheduler's plugin for claims, as simply as
//! tests of nodes can use it. Of the selectors of a class they know `device.driver == "NAME"` alone.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};

use super::controlled_objects::Controllers;
use super::objects::Fields;
use super::resource::Resource;
use super::server::{ApiServerBuilder, Shared};
use super::write::name_of;

impl ApiServerBuilder {
    /// Runs the controllers of resource claims. They
    ///
    /// * create the claims of templates, note them in the pod's status, and delete them after their pods;
    /// * allocate devices to the claims of a pod that is on a node, from the node's `ResourceSlice`s, and reserve the claims for it. A
    ///   class selects devices by its driver: `device.driver == "gpu.example.com"`;
    /// * end the reservation and the allocation when the pod has ended or is gone.
    #[must_use]
    pub fn claim_controllers(mut self) -> Self {
        self.claim_controllers = true;
        self
    }
}

const GROUP: &str = "resource.k8s.io";
/// The resources of which a change concerns claims.
const TRIGGERS: [&str; 5] = [
    "deviceclasses",
    "pods",
    "resourceclaims",
    "resourceclaimtemplates",
    "resourceslices",
];
/// The entry in the pod for which a claim was made (`PodResourceClaimAnnotation`).
const POD_CLAIM_NAME: &str = "resource.kubernetes.io/pod-claim-name";

impl Shared {
    /// Runs the controllers after an object of this resource was written or removed.
    pub(crate) fn run_claim_controllers(&self, resource: &Resource, rng: &mut fastrand::Rng) {
        if !self.claim_controllers || !TRIGGERS.contains(&resource.plural) {
            return;
        }
        let mut controllers = Controllers { server: self, rng };
        controllers.free_claims();
        controllers.create_claims_of_templates();
        controllers.allocate();
    }
}

impl Controllers<'_> {
    /// Ends reservations for pods that have ended or are gone, and deletes the claims that were made for them.
    fn free_claims(&mut self) {
        let pods = self.list("", "pods");
        let find = |uid: &str| pods.iter().find(|pod| pod["metadata"].text("uid") == uid);
        for claim in self.list(GROUP, "resourceclaims") {
            let mut owners = claim["metadata"].list("ownerReferences").iter();
            let owner = owners.find(|owner| owner.text("kind") == "Pod");
            if owner.is_some_and(|owner| find(owner.text("uid")).is_none()) {
                self.write(GROUP, "resourceclaims", Some(&claim), None);
                continue;
            }
            let mut consumers = claim["status"].list("reservedFor").to_vec();
            if consumers.is_empty() {
                continue;
            }
            consumers.retain(|consumer| find(consumer.text("uid")).is_some_and(|pod| !has_ended(pod)));
            let mut freed = Value::clone(&claim);
            match consumers.is_empty() {
                true => freed["status"] = json!({}),
                false => freed["status"]["reservedFor"] = json!(consumers),
            }
            self.write(GROUP, "resourceclaims", Some(&claim), Some(freed));
        }
    }

    fn create_claims_of_templates(&mut self) {
        let templates = self.list(GROUP, "resourceclaimtemplates");
        for pod in self.list("", "pods") {
            let meta = &pod["metadata"];
            if meta.has("deletionTimestamp") || has_ended(&pod) {
                continue;
            }
            let mut statuses = pod["status"].list("resourceClaimStatuses").to_vec();
            for entry in pod["spec"].list("resourceClaims") {
                let template = entry.text("resourceClaimTemplateName");
                let is_known = statuses.iter().any(|status| status["name"] == entry["name"]);
                let template = templates
                    .iter()
                    .find(|it| name_of(it) == template && it["metadata"]["namespace"] == meta["namespace"]);
                let Some(template) = template.filter(|_| !is_known) else {
                    continue;
                };
                let name = format!("{}-{}", meta.text("name"), entry.text("name"));
                let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"],
                    "controller": true, "blockOwnerDeletion": true});
                let of_template = &template["spec"]["metadata"];
                let mut claim = json!({
                    "metadata": {"name": name, "namespace": meta["namespace"], "ownerReferences": [owner],
                        "labels": of_template["labels"], "annotations": of_template["annotations"]},
                    "spec": template["spec"]["spec"],
                    "status": {},
                });
                claim["metadata"]["annotations"][POD_CLAIM_NAME] = entry["name"].clone();
                self.write(GROUP, "resourceclaims", None, Some(claim));
                statuses.push(json!({"name": entry["name"], "resourceClaimName": name}));
            }
            let mut noted = Value::clone(&pod);
            if !statuses.is_empty() {
                noted["status"]["resourceClaimStatuses"] = json!(statuses);
            }
            self.write("", "pods", Some(&pod), Some(noted));
        }
    }

    /// Allocates and reserves the claims of the pods that are on a node.
    fn allocate(&mut self) {
        for pod in self.list("", "pods") {
            let node = pod["spec"].text("nodeName");
            if node.is_empty() || has_ended(&pod) {
                continue;
            }
            for name in claims_of(&pod) {
                // Read anew for each claim: a device goes to one claim.
                let claims = self.list(GROUP, "resourceclaims");
                let claim = claims.iter().find(|claim| {
                    name_of(claim) == name && claim["metadata"]["namespace"] == pod["metadata"]["namespace"]
                });
                let Some(claim) = claim else { continue };
                let mut reserved = Value::clone(claim);
                if !claim["status"].has("allocation") {
                    let Some(results) = self.devices_for(claim, &claims, node) else {
                        continue;
                    };
                    reserved["status"]["allocation"] = json!({"devices": {"results": results}});
                }
                let mut consumers = claim["status"].list("reservedFor").to_vec();
                let meta = &pod["metadata"];
                if !consumers.iter().any(|consumer| consumer["uid"] == meta["uid"]) {
                    consumers.push(json!({"resource": "pods", "name": meta["name"], "uid": meta["uid"]}));
                }
                reserved["status"]["reservedFor"] = json!(consumers);
                self.write(GROUP, "resourceclaims", Some(claim), Some(reserved));
            }
        }
    }

    /// A device of the node for each request of the claim; `None` if there are too few that are free.
    fn devices_for(&self, claim: &Value, claims: &[Arc<Value>], node: &str) -> Option<Vec<Value>> {
        let mut taken: BTreeSet<[String; 3]> = BTreeSet::new();
        for claim in claims {
            let results = claim["status"]["allocation"]["devices"].list("results");
            let own = results.iter().filter(|result| !result.flag("adminAccess"));
            taken.extend(
                own.map(|result| ["driver", "pool", "device"].map(|key| result.text(key).to_owned())),
            );
        }
        let mut chosen = Vec::new();
        for request in claim["spec"]["devices"].list("requests") {
            let name = request.text("name");
            if request.has("exactly") {
                chosen.extend(self.request(name, &request["exactly"], node, &mut taken)?);
                continue;
            }
            let alternatives = request.list("firstAvailable").iter();
            chosen.extend(alternatives.into_iter().find_map(|alternative| {
                let name = format!("{name}/{}", alternative.text("name"));
                self.request(&name, alternative, node, &mut taken)
            })?);
        }
        Some(chosen)
    }

    fn request(
        &self,
        name: &str,
        request: &Value,
        node: &str,
        taken: &mut BTreeSet<[String; 3]>,
    ) -> Option<Vec<Value>> {
        let driver = self.driver_of(request.text("deviceClassName"))?;
        let is_admin = request.flag("adminAccess");
        let mut devices = Vec::new();
        for slice in self.list(GROUP, "resourceslices") {
            let spec = &slice["spec"];
            if spec.text("nodeName") != node || spec.text("driver") != driver {
                continue;
            }
            let pool = spec["pool"].text("name");
            let keys = spec
                .list("devices")
                .iter()
                .map(|device| [driver.clone(), pool.to_owned(), device.text("name").to_owned()]);
            devices.extend(keys.filter(|key| is_admin || !taken.contains(key)));
        }
        devices.sort();
        devices.dedup();
        if request.text("allocationMode") != "All" {
            let count = usize::try_from(request.number("count").unwrap_or(1)).ok()?;
            if devices.len() < count {
                return None;
            }
            devices.truncate(count);
        }
        if !is_admin {
            taken.extend(devices.iter().cloned());
        }
        let results = devices.into_iter().map(|[driver, pool, device]| {
            let mut result = json!({"request": name, "driver": driver, "pool": pool, "device": device});
            if is_admin {
                result["adminAccess"] = json!(true);
            }
            result
        });
        Some(results.collect())
    }

    /// The driver that a class selects.
    fn driver_of(&self, class: &str) -> Option<String> {
        let classes = self.list(GROUP, "deviceclasses");
        let class = classes.iter().find(|it| name_of(it) == class)?;
        let expression = class["spec"].list("selectors").first()?["cel"].text("expression");
        let quoted = expression.trim().strip_prefix("device.driver")?.trim_start();
        let quoted = quoted.strip_prefix("==")?.trim();
        let name = quoted.trim_matches(['"', '\'']);
        (!name.is_empty()).then(|| name.to_owned())
    }
}

fn has_ended(pod: &Value) -> bool {
    matches!(pod["status"].text("phase"), "Succeeded" | "Failed")
}

/// The names of a pod's claims that exist.
fn claims_of(pod: &Value) -> Vec<String> {
    let named = pod["spec"].list("resourceClaims").iter();
    let made = pod["status"].list("resourceClaimStatuses").iter();
    named
        .chain(made)
        .map(|claim| claim.text("resourceClaimName").to_owned())
        .filter(|name| !name.is_empty())
        .collect()
}
