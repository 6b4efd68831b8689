//! What is around the plugins.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, ServiceAccountTokenProjection, Volume};
use kubelet_core::{
    ConfigObjects, Event, EventRecorder, FixedNode, PodUid, Result, ServiceAccountToken, ServiceAccountTokens,
};
use kubelet_volume::{InTreePlugins, VolumePlugin, VolumeSpec};
use parking_lot::Mutex;
use serde_json::{Value, json};

/// The allocatable memory of the node of the recordings.
const ALLOCATABLE: &str = "24581692Ki";

#[derive(Default)]
pub(super) struct World {
    objects: Mutex<Vec<Value>>,
    events: Mutex<BTreeSet<(String, String)>>,
    srv: PathBuf,
    _listener: Option<UnixListener>,
}

impl World {
    /// With the other folders of the node in `srv`.
    pub(super) fn new(srv: &Path) -> Self {
        fs::create_dir_all(srv.join("hp/dir")).unwrap();
        fs::write(srv.join("hp/file"), "f").unwrap();
        fs::create_dir(srv.join("local")).unwrap();
        fs::set_permissions(srv.join("local"), fs::Permissions::from_mode(0o755)).unwrap();
        Self {
            srv: srv.to_owned(),
            _listener: Some(UnixListener::bind(srv.join("hp/sock")).unwrap()),
            ..Self::default()
        }
    }

    pub(super) fn plugins(self: &Arc<Self>, root: &Path) -> Vec<Arc<dyn VolumePlugin>> {
        let node = json!({"metadata": {}, "status": {"allocatable": {"cpu": "2", "memory": ALLOCATABLE, "ephemeral-storage": "0"}}});
        let node = Arc::new(serde_json::from_value(node).unwrap());
        InTreePlugins::new(root)
            .config_objects(self.clone())
            .tokens(self.clone())
            .recorder(self.clone())
            .node(Arc::new(FixedNode::new(node)))
            .build()
    }

    pub(super) fn set(&self, objects: &[Value]) {
        *self.objects.lock() = objects.to_owned();
    }

    /// The volume, or the one that its claim is bound to.
    pub(super) fn resolve(&self, volume: &Volume) -> Option<VolumeSpec> {
        let Some(claim) = &volume.persistent_volume_claim else {
            return Some(VolumeSpec::of_pod(Arc::new(volume.clone())));
        };
        let source = match claim.claim_name.as_str() {
            "local" => json!({"local": {"path": self.srv.join("local")}}),
            "hp" => json!({"hostPath": {"path": self.srv.join("hp/dir"), "type": ""}}),
            _ => return None,
        };
        let persistent = json!({"metadata": {"name": claim.claim_name}, "spec": source});
        let persistent = serde_json::from_value(persistent).unwrap();
        let read_only = claim.read_only.unwrap_or(false);
        Some(VolumeSpec::persistent(Arc::new(persistent), read_only))
    }

    pub(super) fn events(&self, reason: &str) -> BTreeSet<String> {
        let events = self.events.lock();
        let of_reason = events.iter().filter(|(found, _)| found == reason);
        of_reason.map(|(_, message)| message.clone()).collect()
    }

    fn object(&self, kind: &str, name: &str) -> Option<Value> {
        let objects = self.objects.lock();
        let mut objects = objects.iter();
        objects
            .find(|object| object["kind"] == kind && object["metadata"]["name"] == name)
            .cloned()
    }
}

#[async_trait]
impl ConfigObjects for World {
    async fn config_map(&self, _: &str, name: &str) -> Result<Option<Arc<ConfigMap>>> {
        let found = self.object("ConfigMap", name);
        let found = found.or_else(|| (name == "empty").then(|| json!({"metadata": {"name": "empty"}})));
        Ok(found.map(|found| Arc::new(serde_json::from_value(found).unwrap())))
    }

    async fn secret(&self, _: &str, name: &str) -> Result<Option<Arc<Secret>>> {
        let Some(found) = self.object("Secret", name) else {
            return Ok(None);
        };
        let data: BTreeMap<String, String> = serde_json::from_value(found["stringData"].clone()).unwrap();
        let data = data
            .into_iter()
            .map(|(key, value)| (key, ByteString(value.into())));
        Ok(Some(Arc::new(Secret {
            data: Some(data.collect()),
            ..Secret::default()
        })))
    }
}

#[async_trait]
impl ServiceAccountTokens for World {
    async fn token(&self, _: &Arc<Pod>, _: &ServiceAccountTokenProjection) -> Result<ServiceAccountToken> {
        Ok(ServiceAccountToken::new("<token>"))
    }

    fn forget(&self, _: &PodUid) {}
}

impl EventRecorder for World {
    fn record(&self, event: Event<'_>) {
        self.events
            .lock()
            .insert((event.reason.to_owned(), event.message));
    }
}

/// What the sync of a pod makes before its volumes (`makePodDataDirs`).
pub(super) fn make_pod_dirs(root: &Path, uid: &PodUid) {
    let pod = root.join("pods").join(uid.as_str());
    for dir in ["volumes", "plugins"] {
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o750).create(pod.join(dir)).unwrap();
    }
}
