//! What is around the volumes: the API server's objects, and the other folders of the node.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{
    ConfigMap, PersistentVolume, PersistentVolumeClaim, Pod, Secret, ServiceAccountTokenProjection,
};
use kubelet_core::{
    ConfigObjectChanges, ConfigObjectKind, ConfigObjectRef, ConfigObjects, Event, EventRecorder, PodUid,
    Result, ServiceAccountToken, ServiceAccountTokens,
};
use kubelet_volume::VolumeObjects;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::broadcast;

pub(super) struct World {
    objects: Mutex<Vec<Value>>,
    changes: broadcast::Sender<ConfigObjectRef>,
    events: Mutex<BTreeSet<(String, String)>>,
    srv: PathBuf,
    _listener: UnixListener,
}

impl World {
    /// With the other folders of the node in `srv`.
    pub(super) fn new(srv: &Path) -> Self {
        fs::create_dir_all(srv.join("hp/dir")).unwrap();
        fs::write(srv.join("hp/file"), "f").unwrap();
        fs::create_dir(srv.join("local")).unwrap();
        fs::set_permissions(srv.join("local"), fs::Permissions::from_mode(0o755)).unwrap();
        Self {
            objects: Mutex::default(),
            changes: broadcast::Sender::new(16),
            events: Mutex::default(),
            srv: srv.to_owned(),
            _listener: UnixListener::bind(srv.join("hp/sock")).unwrap(),
        }
    }

    /// Config maps and secrets change.
    pub(super) fn set(&self, objects: &[Value]) {
        *self.objects.lock() = objects.to_owned();
        for object in objects {
            let kind = match object["kind"].as_str().unwrap() {
                "ConfigMap" => ConfigObjectKind::ConfigMap,
                _ => ConfigObjectKind::Secret,
            };
            let _ = self.changes.send(ConfigObjectRef {
                kind,
                namespace: object["metadata"]["namespace"].as_str().unwrap().into(),
                name: object["metadata"]["name"].as_str().unwrap().into(),
            });
        }
    }

    /// The events, as reason and message.
    pub(super) fn events(&self) -> BTreeSet<(String, String)> {
        self.events.lock().clone()
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

    fn changes(&self) -> Option<ConfigObjectChanges> {
        Some(self.changes.subscribe())
    }
}

/// Claims that are bound to volumes of the same name: a folder as `local` volume, and one as `hostPath`.
#[async_trait]
impl VolumeObjects for World {
    async fn claim(
        &self,
        namespace: &str,
        name: &str,
    ) -> kubelet_volume::Result<Option<Arc<PersistentVolumeClaim>>> {
        let mut claim = json!({"metadata": {"name": name, "namespace": namespace, "uid": name}, "spec": {}});
        if name != "unbound" {
            claim["spec"]["volumeName"] = json!(name);
            claim["status"] = json!({"phase": "Bound"});
        }
        Ok(Some(Arc::new(serde_json::from_value(claim).unwrap())))
    }

    async fn volume(&self, name: &str) -> kubelet_volume::Result<Option<Arc<PersistentVolume>>> {
        let mut spec = match name {
            "local" => json!({"local": {"path": self.srv.join("local")}}),
            _ => json!({"hostPath": {"path": self.srv.join("hp/dir"), "type": ""}}),
        };
        spec["claimRef"] = json!({"namespace": "vol", "name": name, "uid": name});
        let volume = json!({"metadata": {"name": name}, "spec": spec});
        Ok(Some(Arc::new(serde_json::from_value(volume).unwrap())))
    }

    async fn patch_claim_status(
        &self,
        claim: &PersistentVolumeClaim,
        _: Value,
    ) -> kubelet_volume::Result<Arc<PersistentVolumeClaim>> {
        Ok(Arc::new(claim.clone()))
    }

    async fn attached(&self) -> kubelet_volume::Result<Vec<(String, String)>> {
        Ok(Vec::new())
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
