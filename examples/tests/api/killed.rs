//! The agent is killed at random moments while objects are written.
//!
//! `KUBELET_TESTING_API_KILLS` sets how often, 10 by default; `KUBELET_TESTING_SEED` repeats a run.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube_client::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube_client::{Api, Client, Error, ResourceExt as _};
use rustix::process::Signal;
use serde_json::json;
use tempfile::TempDir;
use tokio::time::sleep;

use super::{ApiAgent, Leftovers, client, processes};
use crate::standalone::until;
use crate::variables::number;

/// How many pods there are at once.
const PODS: usize = 8;

/// What the server acknowledged, and what it may have done besides.
#[derive(Default)]
struct Acknowledged {
    /// The value of each config map.
    maps: BTreeMap<String, u64>,
    /// The UID of each pod.
    pods: BTreeMap<String, String>,
    /// The write without an answer.
    open: Option<Write>,
    /// The newest resource version.
    version: u64,
}

#[derive(Clone, Debug)]
enum Write {
    Create(String, u64),
    Change(String, u64),
    Delete(String),
    CreatePod(String),
    DeletePod(String),
}

impl Acknowledged {
    /// Writes until a write gets no answer.
    async fn write(&mut self, client: &Client, rng: &mut fastrand::Rng, dir: &Path) {
        let (maps, pods) = (
            Api::<ConfigMap>::default_namespaced(client.clone()),
            Api::<Pod>::default_namespaced(client.clone()),
        );
        loop {
            let write = self.next_write(rng);
            self.open = Some(write.clone());
            let done = match &write {
                Write::Create(name, value) => maps
                    .create(&PostParams::default(), &map(name, *value))
                    .await
                    .map(|map| map.resource_version()),
                Write::Change(name, value) => {
                    let patch = Patch::Merge(json!({"data": {"value": value.to_string()}}));
                    maps.patch(name, &PatchParams::default(), &patch).await.map(|map| map.resource_version())
                }
                Write::Delete(name) => maps.delete(name, &DeleteParams::default()).await.map(|_| None),
                Write::CreatePod(name) => match pods.create(&PostParams::default(), &pod(name, dir)).await {
                    Ok(pod) => {
                        self.pods.insert(name.clone(), pod.uid().unwrap());
                        Ok(pod.resource_version())
                    }
                    Err(error) => Err(error),
                },
                Write::DeletePod(name) => pods.delete(name, &DeleteParams::default()).await.map(|_| None),
            };
            match done {
                Ok(version) => {
                    self.version = self.version.max(version.map_or(0, |version| version.parse().unwrap()));
                    self.take(&write);
                    self.open = None;
                }
                Err(Error::Api(refused)) => panic!("{write:?}: {refused:?}"),
                Err(_) => return,
            }
        }
    }

    fn next_write(&self, rng: &mut fastrand::Rng) -> Write {
        let names: Vec<_> = self.maps.keys().collect();
        let pods: Vec<_> = self.pods.keys().collect();
        match rng.u8(..10) {
            0 if pods.len() < PODS => Write::CreatePod(format!("pod-{}", rng.u32(..))),
            1 if pods.len() == PODS => Write::DeletePod(pods[rng.usize(..pods.len())].clone()),
            2..=4 if names.len() > 20 => Write::Delete(names[rng.usize(..names.len())].clone()),
            5..=7 if !names.is_empty() => Write::Change(names[rng.usize(..names.len())].clone(), rng.u64(..)),
            _ => Write::Create(format!("map-{}", rng.u64(..)), rng.u64(..)),
        }
    }

    fn take(&mut self, write: &Write) {
        match write {
            Write::Create(name, value) | Write::Change(name, value) => {
                self.maps.insert(name.clone(), *value);
            }
            Write::Delete(name) => {
                self.maps.remove(name);
            }
            Write::CreatePod(_) => {}
            Write::DeletePod(name) => {
                self.pods.remove(name);
            }
        }
    }

    /// Compares with what is there now. The write without an answer was done or not.
    async fn check(&mut self, client: &Client) {
        let maps =
            Api::<ConfigMap>::default_namespaced(client.clone()).list(&ListParams::default()).await.unwrap();
        let version: u64 = maps.metadata.resource_version.unwrap().parse().unwrap();
        assert!(version >= self.version, "the versions went back from {} to {version}", self.version);
        self.version = version;
        let found: BTreeMap<String, u64> = maps
            .items
            .iter()
            .filter_map(|map| {
                let value = map.data.as_ref()?.get("value")?;
                Some((map.name_any(), value.parse().unwrap()))
            })
            .collect();
        let open = self.open.take();
        if found != self.maps
            && let Some(open) = &open
        {
            self.take(open);
        }
        assert_eq!(found, self.maps, "without an answer: {open:?}");
        let pods = Api::<Pod>::default_namespaced(client.clone()).list(&ListParams::default()).await.unwrap();
        let found: BTreeMap<String, String> =
            pods.items.iter().map(|pod| (pod.name_any(), pod.uid().unwrap())).collect();
        let deleting = pods.items.iter().filter(|pod| pod.metadata.deletion_timestamp.is_some());
        let deleting: Vec<String> = deleting.map(|pod| pod.name_any()).collect();
        for (name, uid) in &self.pods {
            let is_deleted = matches!(&open, Some(Write::DeletePod(open)) if open == name);
            assert!(found.get(name) == Some(uid) || is_deleted, "{name} is lost, found {found:?}");
        }
        for name in found.keys() {
            let is_known = self.pods.contains_key(name) || deleting.contains(name);
            let is_open = matches!(&open, Some(Write::CreatePod(open)) if open == name);
            assert!(is_known || is_open, "{name} is back");
        }
        self.pods = found.into_iter().filter(|(name, _)| !deleting.contains(name)).collect();
    }
}

fn map(name: &str, value: u64) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}, "data": {"value": value.to_string()}})).unwrap()
}

/// A pod that writes a line whenever it is started. It is started once.
fn pod(name: &str, dir: &Path) -> Pod {
    let script = format!("echo $$ >> {}/{name}.started; exec sleep 100000", dir.display());
    serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "main", "image": "any", "command": ["sh", "-c", script]}],
        },
    }))
    .unwrap()
}

/// The processes of a pod that live, and how often the pod was started.
fn starts(dir: &Path, name: &str) -> (usize, usize) {
    let started = std::fs::read_to_string(dir.join(format!("{name}.started"))).unwrap_or_default();
    let is_alive =
        |pid: &&str| std::fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd.starts_with(dir));
    (started.lines().filter(is_alive).count(), started.lines().count())
}

#[tokio::test]
async fn every_acknowledged_object_survives_kills_and_no_pod_runs_twice() {
    let kills = number("KUBELET_TESTING_API_KILLS").unwrap_or(10);
    let seed = number("KUBELET_TESTING_SEED").unwrap_or_else(|| fastrand::u64(..));
    println!("KUBELET_TESTING_SEED={seed}");
    let (mut rng, dir) = (fastrand::Rng::with_seed(seed), TempDir::new().unwrap());
    let root = dir.path().join("root");
    let _leftovers = Leftovers(root.join("processes"));
    let mut acknowledged = Acknowledged::default();
    let mut pods_seen = std::collections::BTreeSet::new();
    for _ in 0..kills {
        // Now and then the next agent is killed while it starts.
        if rng.u8(..4) == 0 {
            let agent = ApiAgent::spawn(&root);
            sleep(Duration::from_millis(rng.u64(..300))).await;
            agent.end(Signal::KILL).await;
        }
        let agent = ApiAgent::start(&root).await;
        let client = client(&root).await;
        acknowledged.check(&client).await;
        let life = Duration::from_millis(rng.u64(..1500));
        let kill = async {
            sleep(life).await;
            agent.end(Signal::KILL).await
        };
        tokio::join!(acknowledged.write(&client, &mut rng, dir.path()), kill);
        pods_seen.extend(acknowledged.pods.keys().cloned());
        for name in &pods_seen {
            let (alive, started) = starts(dir.path(), name);
            assert!(alive <= 1 && started <= 1, "{name} was started {started} times, {alive} live");
        }
    }

    // In the end, each pod that is wanted runs, and no other.
    let agent = ApiAgent::start(&root).await;
    let client = client(&root).await;
    acknowledged.check(&client).await;
    let pods = Api::<Pod>::default_namespaced(client.clone());
    for name in acknowledged.pods.keys() {
        until("the pod runs or has ended", async || {
            let phase = pods.get(name).await.unwrap().status?.phase?;
            (phase != "Pending").then_some(())
        })
        .await;
        assert_eq!(starts(dir.path(), name).1, 1, "{name}");
    }
    until("pods that were deleted have ended", async || {
        pods_seen
            .iter()
            .all(|name| acknowledged.pods.contains_key(name) || starts(dir.path(), name).0 == 0)
            .then_some(())
    })
    .await;
    for name in acknowledged.pods.keys() {
        pods.delete(name, &DeleteParams::default()).await.unwrap();
    }
    until("no process is left", async || processes(&root.join("processes")).is_empty().then_some(())).await;
    assert!(agent.end(Signal::TERM).await.success());
}
