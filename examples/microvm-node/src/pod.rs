//! A pod: an engine of its own, and the address of its guest. It begins before the image is known, and ends after the last VM.

use std::fs::DirBuilder;
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kubelet_cri::verbs::{Pod, PodKey, PodSpec, Pods, Result, RuntimeError};

use crate::engine::{Engine, remove_dir};
use crate::record::{self, PodRecord};
use crate::runtime::{MicrovmRuntime, Shared};

pub(crate) struct VmPod {
    pub(crate) dir: PathBuf,
    pub(crate) record: PodRecord,
    pub(crate) engine: Engine,
    begun: AtomicBool,
    /// Held while a VM is started: an engine has one.
    pub(crate) turn: tokio::sync::Mutex<()>,
}

impl VmPod {
    fn new(dir: PathBuf, record: PodRecord, engine: Engine, begun: bool) -> Arc<Self> {
        Arc::new(Self { dir, record, engine, begun: AtomicBool::new(begun), turn: Default::default() })
    }

    /// Whether VMs can be started in it.
    pub(crate) fn is_up(&self) -> bool {
        self.begun.load(Ordering::Relaxed) && self.engine.is_running()
    }

    pub(crate) fn guest(&self) -> Option<IpAddr> {
        self.record.lease.map(|lease| lease.guest.into())
    }

    fn pod(&self) -> Pod {
        let mut pod = Pod::new(self.record.key());
        pod.addresses.extend(self.guest());
        pod
    }

    /// Where the engine says why it ended.
    fn log(&self) -> String {
        let log = std::fs::read_to_string(self.dir.join("engine.log")).unwrap_or_default();
        log.lines().last().unwrap_or_default().to_owned()
    }
}

impl Shared {
    fn pod_dir(&self, key: &PodKey) -> PathBuf {
        self.pods_dir.join(format!("{}_{}", key.uid, key.attempt))
    }

    pub(crate) fn pod(&self, key: &PodKey) -> Option<Arc<VmPod>> {
        self.pods.lock().get(key).cloned()
    }

    /// Takes over the pods of an earlier agent. One whose engine has ended is not listed, and the kubelet ends it.
    pub(crate) async fn adopt_pods(&self) -> io::Result<()> {
        for entry in std::fs::read_dir(&self.pods_dir)? {
            let dir = entry?.path();
            let Some(record) = record::read::<PodRecord>(&dir)? else { continue };
            if let Some(engine) = Engine::adopt(&dir).await? {
                let key = record.key();
                tracing::info!(uid = %key.uid, "took over the virtual machine of an earlier agent");
                self.pods.lock().insert(key, VmPod::new(dir, record, engine, true));
            }
        }
        Ok(())
    }

    /// Starts the engine. No await: what was started is in the list, and the end of the pod finds it.
    fn launch(&self, spec: &PodSpec) -> Result<Arc<VmPod>> {
        let failed = |error: io::Error| RuntimeError::transient(&spec.key, error.to_string());
        let mut pods = self.pods.lock();
        if let Some(pod) = pods.get(&spec.key) {
            return Ok(pod.clone());
        }
        let lease = match self.subnet {
            None => None,
            Some(subnet) => {
                let taken = pods.values().filter_map(|pod| pod.record.lease).collect();
                let lease = subnet.lease(&taken);
                Some(lease.ok_or_else(|| RuntimeError::throttled(&spec.key, "no address is free"))?)
            }
        };
        let dir = self.pod_dir(&spec.key);
        DirBuilder::new().recursive(true).mode(0o700).create(&dir).map_err(failed)?;
        let engine = Engine::launch(&self.engine, &dir).map_err(failed)?;
        let pod = VmPod::new(dir, PodRecord::new(&spec.key, lease, spec.dns.to_string()), engine, false);
        pods.insert(spec.key.clone(), pod.clone());
        Ok(pod)
    }
}

#[async_trait::async_trait]
impl Pods for MicrovmRuntime {
    async fn list(&self) -> Result<Vec<Pod>> {
        let pods = self.shared.pods.lock();
        Ok(pods.values().filter(|pod| pod.is_up()).map(|pod| pod.pod()).collect())
    }

    async fn begin(&self, spec: &PodSpec) -> Result<Pod> {
        if spec.host_network || !spec.host_ports.is_empty() {
            let message = "a virtual machine cannot have the network or ports of the host";
            return Err(RuntimeError::permanent(&spec.key, message));
        }
        let pod = self.shared.launch(spec)?;
        let failed = |error: io::Error| RuntimeError::transient(&spec.key, format!("{error}; {}", pod.log()));
        pod.engine.answers().await.map_err(failed)?;
        record::write(&pod.dir, &pod.record).map_err(failed)?;
        pod.begun.store(true, Ordering::Relaxed);
        Ok(pod.pod())
    }

    async fn end(&self, key: &PodKey) -> Result<()> {
        let failed = |error: io::Error| RuntimeError::transient(key, error.to_string());
        let dir = self.shared.pod_dir(key);
        match self.shared.pod(key) {
            Some(pod) => pod.engine.end().await,
            // An earlier agent may have left it.
            None => {
                if let Some(engine) = Engine::adopt(&dir).await.map_err(failed)? {
                    engine.end().await;
                }
            }
        }
        remove_dir(&dir).map_err(failed)?;
        self.shared.pods.lock().remove(key);
        Ok(())
    }
}
