//! The controllers of volumes: they create the claims of ephemeral volumes, bind claims to volumes, provision volumes, attach
//! them to nodes and detach them, and grow them. They run within the request that triggers them.
//!
//! They do the work of the controller manager (`pkg/controller/volume`) and of the sidecars of CSI drivers, as simply as tests
//! of nodes can use it: each request looks at all volumes.

use std::collections::BTreeSet;
use std::sync::Arc;

use kubelet_core::quantity::Amount;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::controlled_objects::Controllers;
use super::objects::Fields;
use super::resource::Resource;
use super::server::{ApiServerBuilder, Shared};
use super::write::name_of;

impl ApiServerBuilder {
    /// Runs the controllers of volumes. They
    ///
    /// * create the claims of generic ephemeral volumes, and delete them after their pods;
    /// * bind each claim to the smallest volume that matches it, or create a volume of the class's CSI driver. With
    ///   `WaitForFirstConsumer` they wait until a pod with the claim is on a node;
    /// * attach volumes of CSI drivers to nodes, with a `VolumeAttachment` and in the node's `status.volumesAttached`, and
    ///   detach them when no pod needs them and the node does not list them in `status.volumesInUse`;
    /// * grow a volume whose claim requests more, and leave the file system to the node.
    #[must_use]
    pub fn storage_controllers(mut self) -> Self {
        self.storage_controllers = true;
        self
    }
}

/// The resources of which a change concerns volumes.
const TRIGGERS: [&str; 7] = [
    "csidrivers",
    "nodes",
    "persistentvolumeclaims",
    "persistentvolumes",
    "pods",
    "storageclasses",
    "volumeattachments",
];
/// Marks a claim whose binding is complete (`AnnBindCompleted`).
const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// The name of the driver that created a volume (`AnnDynamicallyProvisioned`).
const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
/// A class whose volumes somebody else creates.
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

impl Shared {
    /// Runs the controllers after an object of this resource was written or removed.
    pub(crate) fn run_storage_controllers(&self, resource: &Resource, rng: &mut fastrand::Rng) {
        if !self.storage_controllers || !TRIGGERS.contains(&resource.plural) {
            return;
        }
        let mut controllers = Controllers { server: self, rng };
        controllers.keep_claims_of_ephemeral_volumes();
        controllers.bind_claims();
        controllers.grow_volumes();
        controllers.attach_and_detach();
        controllers.release_volumes();
    }
}

impl Controllers<'_> {
    /// (`pkg/controller/volume/ephemeral`, and the garbage collector)
    fn keep_claims_of_ephemeral_volumes(&mut self) {
        let (pods, claims) = (self.list("", "pods"), self.list("", "persistentvolumeclaims"));
        for pod in &pods {
            if pod["metadata"].has("deletionTimestamp") {
                continue;
            }
            let meta = &pod["metadata"];
            for volume in pod["spec"].list("volumes") {
                let Some(template) = volume["ephemeral"].field("volumeClaimTemplate") else {
                    continue;
                };
                let name = format!("{}-{}", meta.text("name"), volume.text("name"));
                let is_it = |claim: &Arc<Value>| {
                    name_of(claim) == name && claim["metadata"]["namespace"] == meta["namespace"]
                };
                if claims.iter().any(is_it) {
                    continue;
                }
                let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"],
                    "controller": true, "blockOwnerDeletion": true});
                let claim = json!({
                    "metadata": {"name": name, "namespace": meta["namespace"], "ownerReferences": [owner],
                        "labels": template["metadata"]["labels"], "annotations": template["metadata"]["annotations"]},
                    "spec": template["spec"],
                    "status": {"phase": "Pending"},
                });
                self.write("", "persistentvolumeclaims", None, Some(claim));
            }
        }
        for claim in &claims {
            let mut owners = claim["metadata"].list("ownerReferences").iter();
            let owner = owners.find(|owner| owner.text("kind") == "Pod");
            if let Some(owner) = owner
                && !pods.iter().any(|pod| pod["metadata"]["uid"] == owner["uid"])
            {
                self.write("", "persistentvolumeclaims", Some(claim), None);
            }
        }
    }

    /// Deletes or keeps the volumes whose claims are gone (`reclaimVolume`).
    fn release_volumes(&mut self) {
        let claims = self.list("", "persistentvolumeclaims");
        let attachments = self.list("storage.k8s.io", "volumeattachments");
        for volume in self.list("", "persistentvolumes") {
            let reference = &volume["spec"]["claimRef"];
            let has_uid = !reference.text("uid").is_empty();
            if !has_uid
                || claims
                    .iter()
                    .any(|claim| claim["metadata"]["uid"] == reference["uid"])
            {
                continue;
            }
            let is_attached = attachments
                .iter()
                .any(|it| it["spec"]["source"].text("persistentVolumeName") == name_of(&volume));
            if volume["spec"].text("persistentVolumeReclaimPolicy") == "Delete" && !is_attached {
                self.write("", "persistentvolumes", Some(&volume), None);
            } else {
                let mut released = (*volume).clone();
                released["status"]["phase"] = json!("Released");
                self.write("", "persistentvolumes", Some(&volume), Some(released));
            }
        }
    }

    /// (`pkg/controller/volume/persistentvolume`)
    fn bind_claims(&mut self) {
        for claim in self.list("", "persistentvolumeclaims") {
            if claim["status"].text("phase") == "Bound" || claim["metadata"].has("deletionTimestamp") {
                continue;
            }
            let class = self.class_of(&claim);
            let waits = class
                .as_ref()
                .is_some_and(|class| class.text("volumeBindingMode") == "WaitForFirstConsumer");
            if waits && !self.is_used_on_a_node(&claim) {
                continue;
            }
            let volumes = self.list("", "persistentvolumes");
            let mut fitting: Vec<_> = volumes.iter().filter(|volume| fits(volume, &claim)).collect();
            // One that names the claim, before the smallest.
            fitting.sort_by_key(|volume| {
                (
                    !volume["spec"]["claimRef"].is_object(),
                    amount(&volume["spec"]["capacity"]),
                )
            });
            if let Some(volume) = fitting.first() {
                self.bind(&claim, volume);
            } else if let Some(class) = class.filter(|class| class.text("provisioner") != NO_PROVISIONER) {
                self.provision(&claim, &class);
            }
        }
    }

    fn class_of(&self, claim: &Value) -> Option<Arc<Value>> {
        let name = claim["spec"].text("storageClassName");
        let classes = self.list("storage.k8s.io", "storageclasses");
        classes
            .into_iter()
            .find(|class| !name.is_empty() && name_of(class) == name)
    }

    fn is_used_on_a_node(&self, claim: &Value) -> bool {
        self.list("", "pods").iter().any(|pod| {
            !pod["spec"].text("nodeName").is_empty()
                && pod["metadata"]["namespace"] == claim["metadata"]["namespace"]
                && claim_names(pod).contains(name_of(claim))
        })
    }

    /// Creates the volume that a driver's sidecar would create, and binds it.
    fn provision(&mut self, claim: &Arc<Value>, class: &Value) {
        let name = format!("pvc-{}", claim["metadata"].text("uid"));
        let driver = class.text("provisioner");
        let spec = &claim["spec"];
        let mut csi =
            json!({"driver": driver, "volumeHandle": name, "volumeAttributes": class["parameters"]});
        let fs_type = class["parameters"].text("csi.storage.k8s.io/fstype");
        if !fs_type.is_empty() {
            csi["fsType"] = json!(fs_type);
        }
        let volume = json!({
            "metadata": {"name": name, "annotations": {PROVISIONED_BY: driver}},
            "spec": {
                "capacity": {"storage": spec["resources"]["requests"]["storage"]},
                "accessModes": spec["accessModes"], "volumeMode": spec["volumeMode"],
                "storageClassName": spec["storageClassName"], "mountOptions": class["mountOptions"],
                "persistentVolumeReclaimPolicy": class["reclaimPolicy"],
                "csi": csi,
            },
            "status": {"phase": "Pending"},
        });
        self.write("", "persistentvolumes", None, Some(volume));
        let volumes = self.list("", "persistentvolumes");
        if let Some(volume) = volumes.iter().find(|volume| name_of(volume) == name) {
            self.bind(claim, volume);
        }
    }

    fn bind(&mut self, claim: &Arc<Value>, volume: &Arc<Value>) {
        let (now, meta) = (self.now(), &claim["metadata"]);
        let mut bound = (**volume).clone();
        bound["spec"]["claimRef"] = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "namespace": meta["namespace"], "name": meta["name"], "uid": meta["uid"],
            "resourceVersion": meta["resourceVersion"]});
        bound["status"] = json!({"phase": "Bound", "lastPhaseTransitionTime": now});
        self.write("", "persistentvolumes", Some(volume), Some(bound));
        let mut bound = (**claim).clone();
        bound["metadata"]["annotations"]
            .fields_mut()
            .insert(BIND_COMPLETED.into(), json!("yes"));
        bound["spec"]["volumeName"] = json!(name_of(volume));
        let spec = &volume["spec"];
        bound["status"] =
            json!({"phase": "Bound", "accessModes": spec["accessModes"], "capacity": spec["capacity"]});
        self.write("", "persistentvolumeclaims", Some(claim), Some(bound));
    }

    /// (the resize controller of CSI's sidecars)
    fn grow_volumes(&mut self) {
        let volumes = self.list("", "persistentvolumes");
        for claim in self.list("", "persistentvolumeclaims") {
            let requested = &claim["spec"]["resources"]["requests"];
            let has = amount(&claim["status"]["capacity"]);
            let is_pending = claim["status"]["allocatedResources"]["storage"] == requested["storage"];
            if claim["status"].text("phase") != "Bound" || amount(requested) <= has || is_pending {
                continue;
            }
            let grows = self
                .class_of(&claim)
                .is_some_and(|class| class.flag("allowVolumeExpansion"));
            let volume = volumes
                .iter()
                .find(|volume| name_of(volume) == claim["spec"].text("volumeName"));
            let Some(volume) = volume.filter(|_| grows) else {
                continue;
            };
            let mut larger = (**volume).clone();
            larger["spec"]["capacity"]["storage"] = requested["storage"].clone();
            self.write("", "persistentvolumes", Some(volume), Some(larger));
            let mut pending = (*claim).clone();
            pending["status"]["allocatedResources"]["storage"] = requested["storage"].clone();
            pending["status"]["allocatedResourceStatuses"]["storage"] = json!("NodeResizePending");
            pending["status"]["conditions"] = json!([{
                "type": "FileSystemResizePending", "status": "True", "lastTransitionTime": self.now(),
                "message": "Waiting for user to (re-)start a pod to finish file system resize of volume on node.",
            }]);
            self.write("", "persistentvolumeclaims", Some(&claim), Some(pending));
        }
    }

    /// (`pkg/controller/volume/attachdetach`)
    fn attach_and_detach(&mut self) {
        let drivers = self.list("storage.k8s.io", "csidrivers");
        let must_attach = |volume: &Value| {
            let csi = &volume["spec"]["csi"];
            let driver = drivers
                .iter()
                .find(|driver| name_of(driver) == csi.text("driver"));
            csi.is_object()
                && driver.is_none_or(|driver| {
                    driver["spec"]
                        .field("attachRequired")
                        .is_none_or(|required| *required == true)
                })
        };
        let volumes = self.list("", "persistentvolumes");
        let volumes: Vec<_> = volumes.into_iter().filter(|volume| must_attach(volume)).collect();
        let wanted = self.wanted_attachments(&volumes);
        let nodes = self.list("", "nodes");
        let is_in_use = |node: &str, volume: &str| {
            let mut nodes = nodes.iter().filter(|known| name_of(known) == node);
            nodes.any(|node| {
                node["status"]
                    .list("volumesInUse")
                    .iter()
                    .any(|used| used == volume)
            })
        };
        let mut there = self.list("storage.k8s.io", "volumeattachments");
        there.retain(|attachment| {
            let node = attachment["spec"].text("nodeName");
            let name = attachment["spec"]["source"].text("persistentVolumeName");
            let volume = volumes.iter().find(|volume| name_of(volume) == name);
            let is_needed = wanted.contains(&(node.to_owned(), name.to_owned()))
                || volume.is_some_and(|volume| is_in_use(node, &unique_name(volume)));
            if !is_needed {
                self.write("storage.k8s.io", "volumeattachments", Some(attachment), None);
            }
            is_needed
        });
        for (node, name) in &wanted {
            let Some(volume) = volumes.iter().find(|volume| name_of(volume) == name) else {
                continue;
            };
            let of_volume = |it: &&Arc<Value>| it["spec"]["source"].text("persistentVolumeName") == name;
            let attached_to: Vec<&str> = there
                .iter()
                .filter(of_volume)
                .map(|it| it["spec"].text("nodeName"))
                .collect();
            let is_shared = volume["spec"]
                .list("accessModes")
                .iter()
                .any(|mode| mode.as_str().is_some_and(|mode| mode.ends_with("Many")));
            if attached_to.contains(&node.as_str()) || !attached_to.is_empty() && !is_shared {
                continue;
            }
            let attachment = json!({
                "metadata": {"name": attachment_name(volume, node)},
                "spec": {"attacher": volume["spec"]["csi"]["driver"], "nodeName": node,
                    "source": {"persistentVolumeName": name}},
                "status": {"attached": true},
            });
            self.write(
                "storage.k8s.io",
                "volumeattachments",
                None,
                Some(attachment.clone()),
            );
            there.push(Arc::new(attachment));
        }
        for node in &nodes {
            let of_node = there
                .iter()
                .filter(|it| it["spec"].text("nodeName") == name_of(node));
            let attached = of_node
                .filter(|it| it["status"].flag("attached"))
                .filter_map(|it| {
                    let name = it["spec"]["source"].text("persistentVolumeName");
                    let volume = volumes.iter().find(|volume| name_of(volume) == name)?;
                    Some(json!({"name": unique_name(volume), "devicePath": ""}))
                });
            let attached: Vec<Value> = attached.collect();
            if node["status"].list("volumesAttached") != attached {
                let mut changed = (**node).clone();
                changed["status"]["volumesAttached"] = Value::Array(attached);
                self.write("", "nodes", Some(node), Some(changed));
            }
        }
    }

    /// Which volumes the pods of each node need.
    fn wanted_attachments(&self, volumes: &[Arc<Value>]) -> BTreeSet<(String, String)> {
        let claims = self.list("", "persistentvolumeclaims");
        let mut wanted = BTreeSet::new();
        for pod in self.list("", "pods") {
            let node = pod["spec"].text("nodeName");
            if node.is_empty() || matches!(pod["status"].text("phase"), "Succeeded" | "Failed") {
                continue;
            }
            let names = claim_names(&pod);
            let of_pod = claims.iter().filter(|claim| {
                claim["metadata"]["namespace"] == pod["metadata"]["namespace"]
                    && names.contains(name_of(claim))
                    && claim["status"].text("phase") == "Bound"
            });
            for claim in of_pod {
                let volume = claim["spec"].text("volumeName");
                if volumes.iter().any(|known| name_of(known) == volume) {
                    wanted.insert((node.to_owned(), volume.to_owned()));
                }
            }
        }
        wanted
    }
}

fn claim_names(pod: &Value) -> BTreeSet<String> {
    super::authorize::claims(pod).collect()
}

fn fits(volume: &Value, claim: &Value) -> bool {
    let (has, wants) = (&volume["spec"], &claim["spec"]);
    let reference = &has["claimRef"];
    let is_free = !reference.is_object()
        || (reference["name"] == claim["metadata"]["name"]
            && reference["namespace"] == claim["metadata"]["namespace"]
            && matches!(reference.text("uid"), uid if uid.is_empty() || uid == claim["metadata"].text("uid")));
    let named = wants.text("volumeName");
    let labels = &wants["selector"]["matchLabels"];
    is_free
        && (named.is_empty() || named == name_of(volume))
        && has.text("storageClassName") == wants.text("storageClassName")
        && has.text("volumeMode") == wants.text("volumeMode")
        && wants
            .list("accessModes")
            .iter()
            .all(|mode| has.list("accessModes").contains(mode))
        && amount(&has["capacity"]) >= amount(&wants["resources"]["requests"])
        && labels
            .as_object()
            .into_iter()
            .flatten()
            .all(|(key, value)| volume["metadata"]["labels"][key] == *value)
}

/// The amount of `storage` in a list of resources.
fn amount(resources: &Value) -> Amount {
    resources.text("storage").parse().unwrap_or_default()
}

/// (`GetUniqueVolumeNameFromSpec` of a CSI volume)
fn unique_name(volume: &Value) -> String {
    let csi = &volume["spec"]["csi"];
    format!(
        "kubernetes.io/csi/{}^{}",
        csi.text("driver"),
        csi.text("volumeHandle")
    )
}

/// (`getAttachmentName`)
fn attachment_name(volume: &Value, node: &str) -> String {
    let csi = &volume["spec"]["csi"];
    let hash = Sha256::digest(format!(
        "{}{}{node}",
        csi.text("volumeHandle"),
        csi.text("driver")
    ));
    let digits: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("csi-{digits}")
}
