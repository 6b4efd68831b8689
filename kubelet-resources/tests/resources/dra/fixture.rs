//! A node in memory with DRA drivers, for tests in virtual time.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use k8s_openapi::api::resource::v1::ResourceClaim;
use kubelet_core::{Disk, PodUid};
use kubelet_plugins::{DRA_PLUGIN, Plugin, PluginHandler as _};
use kubelet_resources::checkpoint::StateStore;
use kubelet_resources::dra::{
    ClaimObjects, ClaimState, DRA_MANAGER_STATE, DraGates, DraManager, read_claims,
};
use kubelet_resources::{BoxError, NodePods};
use kubelet_testing::dra_driver::{MemoryDra, MemoryDraPlugins};
use serde_json::{Value, from_value, json};
use tokio::sync::watch;

pub(super) const DRIVER: &str = "gpu.example.com";

/// What outlives the agent: the state file, the drivers, the API server.
#[derive(Clone)]
pub(super) struct World {
    pub(super) store: Arc<Store>,
    pub(super) api: Arc<Api>,
    pub(super) drivers: MemoryDraPlugins,
    pub(super) pods: Arc<Pods>,
}

/// A state file. The writes from a certain one on fail.
#[derive(Default)]
pub(super) struct Store {
    files: Mutex<BTreeMap<String, Vec<u8>>>,
    writes: Mutex<usize>,
    /// The first write that fails, and whether the file has been replaced by then.
    fails: Mutex<Option<(usize, bool)>>,
}

impl Store {
    pub(super) fn claims(&self) -> Vec<ClaimState> {
        let files = self.files.lock().unwrap();
        files
            .get(DRA_MANAGER_STATE)
            .map_or_else(Vec::new, |contents| read_claims(contents).unwrap())
    }

    pub(super) fn put(&self, contents: &[u8]) {
        let mut files = self.files.lock().unwrap();
        files.insert(DRA_MANAGER_STATE.to_owned(), contents.to_vec());
    }

    /// The write after so many more fails, and all after it.
    pub(super) fn fail_after(&self, more: usize, replaced: bool) {
        *self.fails.lock().unwrap() = Some((*self.writes.lock().unwrap() + more + 1, replaced));
    }

    pub(super) fn repair(&self) {
        *self.fails.lock().unwrap() = None;
    }

    pub(super) fn writes(&self) -> usize {
        *self.writes.lock().unwrap()
    }
}

impl StateStore for Store {
    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        Ok(self.files.lock().unwrap().get(name).cloned())
    }

    fn write(&self, name: &str, contents: &[u8]) -> io::Result<()> {
        let mut writes = self.writes.lock().unwrap();
        *writes += 1;
        let fails = self.fails.lock().unwrap().filter(|(at, _)| *writes >= *at);
        if fails.is_none_or(|(at, replaced)| replaced && *writes == at) {
            let mut files = self.files.lock().unwrap();
            files.insert(name.to_owned(), contents.to_vec());
        }
        match fails {
            Some(_) => Err(io::Error::other("disk full")),
            None => Ok(()),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        PathBuf::from("/var/lib/kubelet").join(name)
    }
}

/// Claims, and which drivers' slices were deleted.
#[derive(Default)]
pub(super) struct Api {
    claims: Mutex<BTreeMap<(String, String), ResourceClaim>>,
    pub(super) wiped: watch::Sender<Vec<Option<String>>>,
    /// So many more deletions fail.
    pub(super) failing_wipes: Mutex<usize>,
}

impl Api {
    pub(super) fn put(&self, claim: ResourceClaim) {
        let key = (
            claim.metadata.namespace.clone().unwrap(),
            claim.metadata.name.clone().unwrap(),
        );
        self.claims.lock().unwrap().insert(key, claim);
    }
}

#[async_trait]
impl ClaimObjects for Api {
    async fn claim(&self, namespace: &str, name: &str) -> Result<ResourceClaim, BoxError> {
        let claims = self.claims.lock().unwrap();
        let claim = claims.get(&(namespace.to_owned(), name.to_owned())).cloned();
        claim.ok_or_else(|| format!("resourceclaims.resource.k8s.io \"{name}\" not found").into())
    }

    async fn delete_slices(&self, driver: Option<&str>) -> Result<(), BoxError> {
        let mut failing = self.failing_wipes.lock().unwrap();
        if *failing > 0 {
            *failing -= 1;
            return Err("Unauthorized".into());
        }
        self.wiped
            .send_modify(|wiped| wiped.push(driver.map(ToOwned::to_owned)));
        Ok(())
    }
}

/// The active pods.
pub(super) struct Pods {
    pub(super) active: Mutex<BTreeMap<String, Arc<Pod>>>,
    pub(super) sources_ready: Mutex<bool>,
}

impl NodePods for Pods {
    fn sources_ready(&self) -> bool {
        *self.sources_ready.lock().unwrap()
    }

    fn active_pods(&self) -> Vec<Arc<Pod>> {
        self.active.lock().unwrap().values().cloned().collect()
    }

    fn pod_status(&self, _: &PodUid) -> Option<Arc<PodStatus>> {
        None
    }
}

impl Pods {
    pub(super) fn set(&self, pods: &[&Pod]) {
        let pods = pods
            .iter()
            .map(|pod| (pod.metadata.uid.clone().unwrap(), Arc::new((*pod).clone())));
        *self.active.lock().unwrap() = pods.collect();
    }
}

impl World {
    pub(super) fn new() -> Self {
        Self {
            store: Arc::default(),
            api: Arc::default(),
            drivers: MemoryDraPlugins::new(),
            pods: Arc::new(Pods {
                active: Mutex::default(),
                sources_ready: Mutex::new(true),
            }),
        }
    }

    /// An agent starts.
    pub(super) async fn manager(&self) -> DraManager {
        self.manager_with(DraGates::default()).await
    }

    pub(super) async fn manager_with(&self, gates: DraGates) -> DraManager {
        let builder = DraManager::builder(self.store.clone(), self.api.clone());
        let builder = builder
            .dialer(Arc::new(self.drivers.clone()))
            .disk(Disk::inline())
            .gates(gates);
        builder.start().await.unwrap()
    }

    /// A driver that serves, registered with the manager.
    pub(super) async fn driver(&self, manager: &DraManager, name: &str) -> MemoryDra {
        let driver = MemoryDra::new(name);
        self.register(manager, &driver, "1").await;
        driver
    }

    /// An instance of a driver registers.
    pub(super) async fn register(&self, manager: &DraManager, driver: &MemoryDra, instance: &str) {
        let plugin = plugin(driver.name(), instance);
        self.drivers.serve(&plugin.endpoint, driver);
        manager.plugins().register(&plugin).await.unwrap();
    }
}

pub(super) fn plugin(driver: &str, instance: &str) -> Plugin {
    Plugin::new(DRA_PLUGIN, driver, format!("/{driver}-{instance}.sock"))
        .versions(["v1.DRAPlugin", "v1beta1.DRAPlugin"])
}

/// An allocated claim in namespace `default` that is reserved for pods.
pub(super) fn claim(name: &str, drivers: &[&str], pods: &[&str]) -> ResourceClaim {
    claim_with(name, &format!("uid-{name}"), drivers, pods)
}

pub(super) fn claim_with(name: &str, uid: &str, drivers: &[&str], pods: &[&str]) -> ResourceClaim {
    let results = drivers.iter().map(
        |driver| json!({"driver": driver, "pool": "pool", "device": format!("dev-{name}"), "request": "r"}),
    );
    let reserved = pods
        .iter()
        .map(|pod| json!({"resource": "pods", "name": pod, "uid": format!("uid-{pod}")}));
    from_value(json!({
        "metadata": {"namespace": "default", "name": name, "uid": uid},
        "spec": {},
        "status": {
            "allocation": {"devices": {"results": results.collect::<Vec<Value>>()}},
            "reservedFor": reserved.collect::<Vec<Value>>(),
        },
    }))
    .unwrap()
}

/// A pod whose entries have the names of the claims, and one container `c` that uses all.
pub(super) fn pod(name: &str, claims: &[&str]) -> Pod {
    let entries = claims
        .iter()
        .map(|claim| json!({"name": claim, "resourceClaimName": claim}));
    let used = claims.iter().map(|claim| json!({"name": claim}));
    from_value(json!({
        "metadata": {"namespace": "default", "name": name, "uid": format!("uid-{name}")},
        "spec": {
            "containers": [{"name": "c", "resources": {"claims": used.collect::<Vec<Value>>()}}],
            "resourceClaims": entries.collect::<Vec<Value>>(),
        },
    }))
    .unwrap()
}

pub(super) fn changed(pod: &Pod, patch: &Value) -> Pod {
    let mut value = serde_json::to_value(pod).unwrap();
    merge(&mut value, patch);
    from_value(value).unwrap()
}

fn merge(value: &mut Value, patch: &Value) {
    match (value, patch) {
        (Value::Object(object), Value::Object(fields)) => {
            for (name, field) in fields {
                merge(object.entry(name.clone()).or_insert(Value::Null), field);
            }
        }
        (value, patch) => *value = patch.clone(),
    }
}

pub(super) fn names(claims: &[ClaimState]) -> BTreeSet<String> {
    claims.iter().map(|claim| claim.claim_name.clone()).collect()
}
