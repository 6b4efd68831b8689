//! A sink that stores pods as an API server does, and misbehaves on demand; pods and statuses to report.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{Pod, PodStatus as ApiPodStatus};
use kubelet_core::{Clock, Error, PodExt, Result, SinkPod, StatusSink};
use kubelet_status::{StatusManager, StatusManagerConfig, StatusManagerHandle};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// A store of pods by name. Every call is written down.
#[derive(Clone, Default)]
pub(crate) struct Store(Arc<Inner>);

#[derive(Default)]
struct Inner {
    pods: Mutex<HashMap<String, Arc<Pod>>>,
    /// Pods whose calls hang, fail.
    hanging: Mutex<HashSet<String>>,
    failing: Mutex<HashSet<String>>,
    calls: watch::Sender<Vec<String>>,
}

impl Store {
    pub(crate) fn insert(&self, pod: &Arc<Pod>) {
        self.0.pods.lock().insert(name(pod), pod.clone());
    }

    pub(crate) fn pod(&self, name: &str) -> Option<Arc<Pod>> {
        self.0.pods.lock().get(name).cloned()
    }

    pub(crate) fn hang(&self, name: &str) {
        self.0.hanging.lock().insert(name.to_owned());
    }

    pub(crate) fn fail(&self, name: &str, fails: bool) {
        match fails {
            true => self.0.failing.lock().insert(name.to_owned()),
            false => self.0.failing.lock().remove(name),
        };
    }

    /// All calls so far.
    pub(crate) fn calls(&self) -> Vec<String> {
        self.0.calls.borrow().clone()
    }

    /// Waits until `call` was made `times` times.
    pub(crate) async fn called(&self, call: &str, times: usize) {
        let mut calls = self.0.calls.subscribe();
        let enough = |calls: &Vec<String>| calls.iter().filter(|made| *made == call).count() >= times;
        let deadline = std::time::Duration::from_secs(3600);
        tokio::time::timeout(deadline, calls.wait_for(enough))
            .await
            .unwrap_or_else(|_| panic!("{call} not called {times} times: {:?}", self.calls()))
            .unwrap();
    }

    async fn call(&self, verb: &str, pod: &Pod) -> Result<()> {
        let name = name(pod);
        self.0
            .calls
            .send_modify(|calls| calls.push(format!("{verb} {name}")));
        if self.0.hanging.lock().contains(&name) {
            std::future::pending::<()>().await;
        }
        match self.0.failing.lock().contains(&name) {
            true => Err(refused(pod)),
            false => Ok(()),
        }
    }

    fn check_uid(&self, pod: &Pod) -> Result<()> {
        match self.pod(&name(pod)) {
            Some(there) if there.uid() == pod.uid() => Ok(()),
            _ => Err(refused(pod)),
        }
    }
}

fn refused(pod: &Pod) -> Error {
    Error::StatusSink {
        pod: pod.key(),
        uid: pod.uid(),
        source: Arc::new(std::io::Error::other("refused")),
    }
}

#[async_trait]
impl StatusSink for Store {
    async fn get(&self, pod: &Arc<Pod>) -> Result<SinkPod> {
        self.call("get", pod).await?;
        Ok(self.pod(&name(pod)).map_or(SinkPod::Absent, SinkPod::Stored))
    }

    async fn patch_status(
        &self,
        pod: &Arc<Pod>,
        _: &ApiPodStatus,
        new: &ApiPodStatus,
    ) -> Result<Option<Arc<Pod>>> {
        self.call("patch", pod).await?;
        self.check_uid(pod)?;
        let mut patched = Pod::clone(&self.pod(&name(pod)).unwrap());
        patched.status = Some(new.clone());
        let patched = Arc::new(patched);
        self.insert(&patched);
        Ok(Some(patched))
    }

    async fn delete(&self, pod: &Arc<Pod>) -> Result<()> {
        self.call("delete", pod).await?;
        self.check_uid(pod)?;
        self.0.pods.lock().remove(&name(pod));
        Ok(())
    }

    async fn forget(&self, pod: &Arc<Pod>) -> Result<()> {
        self.call("forget", pod).await
    }
}

fn name(pod: &Pod) -> String {
    pod.metadata.name.clone().unwrap()
}

/// A manager at work, at 2026-01-01 00:00 by its clock.
pub(crate) struct Running {
    pub(crate) handle: StatusManagerHandle,
    shutdown: CancellationToken,
    task: JoinHandle<()>,
}

impl Running {
    pub(crate) fn start(sink: impl StatusSink) -> Self {
        Self::with(sink, StatusManagerConfig::default())
    }

    pub(crate) fn with(sink: impl StatusSink, mut config: StatusManagerConfig) -> Self {
        config.clock = Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
        let manager = StatusManager::with_config(sink, config);
        let shutdown = CancellationToken::new();
        Self {
            handle: manager.handle(),
            task: tokio::spawn(manager.run(shutdown.clone())),
            shutdown,
        }
    }

    pub(crate) async fn stop(self) {
        self.shutdown.cancel();
        self.task.await.unwrap();
    }
}

/// A pod with one container `c`, with `fields` merged into it.
pub(crate) fn pod(name: &str, uid: &str, fields: Value) -> Arc<Pod> {
    let mut pod = json!({
        "metadata": {"namespace": "ns", "name": name, "uid": uid, "generation": 1},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "c"}]},
    });
    merge(&mut pod, fields);
    Arc::new(serde_json::from_value(pod).unwrap())
}

fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}

pub(crate) fn waiting() -> ApiPodStatus {
    status(
        "Pending",
        json!({"waiting": {"reason": "ContainerCreating"}}),
        false,
    )
}

pub(crate) fn running() -> ApiPodStatus {
    status(
        "Running",
        json!({"running": {"startedAt": "2026-01-01T00:00:00.5Z"}}),
        true,
    )
}

pub(crate) fn ended(exit_code: i32) -> ApiPodStatus {
    let phase = if exit_code == 0 { "Succeeded" } else { "Failed" };
    status(phase, json!({"terminated": {"exitCode": exit_code}}), false)
}

fn status(phase: &str, state: Value, ready: bool) -> ApiPodStatus {
    let ready_text = if ready { "True" } else { "False" };
    serde_json::from_value(json!({
        "phase": phase,
        "conditions": [{"type": "Ready", "status": ready_text}, {"type": "ContainersReady", "status": ready_text}],
        "containerStatuses": [{"name": "c", "image": "i", "imageID": "i", "containerID": "fake://c", "ready": ready,
            "started": ready, "restartCount": 0, "state": state, "lastState": {}}],
    }))
    .unwrap()
}
