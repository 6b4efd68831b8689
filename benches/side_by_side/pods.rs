//! The pods of the node, through the API.

use std::collections::HashSet;
use std::pin::pin;
use std::time::{Duration, Instant};

use futures::TryStreamExt;
use futures::future::join_all;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube_client::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube_client::{Api, Client};
use kubelet_testing::Containerd;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use crate::member::NODE;

/// Longer than anything here takes.
const GUARD: Duration = Duration::from_secs(300);

/// Creates pods of the node and deletes them.
pub(crate) struct Pods {
    client: Client,
    api: Api<Pod>,
}

impl Pods {
    pub(crate) fn new(client: Client) -> Self {
        Self {
            api: Api::namespaced(client.clone(), "default"),
            client,
        }
    }

    pub(crate) async fn node_is_ready(&self) {
        let (nodes, begun) = (Api::<Node>::all(self.client.clone()), Instant::now());
        let is_ready = |node: Node| {
            let conditions = node
                .status
                .and_then(|status| status.conditions)
                .into_iter()
                .flatten();
            conditions
                .into_iter()
                .any(|it| it.type_ == "Ready" && it.status == "True")
        };
        while !nodes.get_opt(NODE).await.unwrap().is_some_and(is_ready) {
            assert!(begun.elapsed() < GUARD, "the node is not ready");
            sleep(Duration::from_millis(100)).await;
        }
    }

    /// Creates or changes the config map of all pods.
    pub(crate) async fn configure(&self, version: &str) {
        let maps = Api::<ConfigMap>::namespaced(self.client.clone(), "default");
        let map = json!({"metadata": {"name": "config"}, "data": {"version": version}});
        if maps.get_opt("config").await.unwrap().is_some() {
            maps.patch("config", &PatchParams::default(), &Patch::Merge(&map))
                .await
                .unwrap();
        } else {
            maps.create(&PostParams::default(), &of(map)).await.unwrap();
        }
    }

    /// All pods there are.
    pub(crate) async fn all(&self) -> Vec<Pod> {
        self.api.list(&ListParams::default()).await.unwrap().items
    }

    /// Creates pods at once, and returns the seconds until all are running in the API.
    pub(crate) async fn run(&self, names: &[String]) -> f64 {
        let create = async || drop(join_all(names.iter().map(|name| self.create(name))).await);
        self.until(names, |pod| pod.is_some_and(runs), create).await
    }

    /// Deletes pods at once, and returns the seconds until none is left in the API.
    pub(crate) async fn delete(&self, names: &[String]) -> f64 {
        let delete = async || drop(join_all(names.iter().map(|name| self.begin_to_delete(name))).await);
        self.until(names, |pod| pod.is_none(), delete).await
    }

    pub(crate) async fn create(&self, name: &str) {
        let command = "trap 'exit 0' TERM; sleep 100000 & wait";
        let pod = json!({
            "metadata": {"name": name, "namespace": "default"},
            "spec": {
                "nodeName": NODE,
                "hostNetwork": true,
                "automountServiceAccountToken": false,
                "terminationGracePeriodSeconds": 10,
                "volumes": [{"name": "config", "configMap": {"name": "config"}}],
                "containers": [{
                    "name": "main",
                    "image": Containerd::BUSYBOX,
                    "imagePullPolicy": "IfNotPresent",
                    "command": ["sh", "-c", command],
                    "volumeMounts": [{"name": "config", "mountPath": "/config"}],
                }],
            },
        });
        self.api.create(&PostParams::default(), &of(pod)).await.unwrap();
    }

    pub(crate) async fn begin_to_delete(&self, name: &str) {
        drop(self.api.delete(name, &DeleteParams::default()).await.unwrap());
    }

    /// Waits until there are exactly this many pods, and all run.
    pub(crate) async fn settle(&self, pods: usize) {
        let begun = Instant::now();
        loop {
            let all = self.all().await;
            if all.len() == pods && all.iter().all(runs) {
                return;
            }
            assert!(begun.elapsed() < GUARD, "not all pods run");
            sleep(Duration::from_millis(500)).await;
        }
    }

    /// The seconds until all these pods are as they should be, in the API. `None`: the pod is not there.
    async fn until(
        &self,
        names: &[String],
        is_done: impl Fn(Option<&Pod>) -> bool,
        begin: impl AsyncFnOnce(),
    ) -> f64 {
        let list = self.api.list(&ListParams::default().limit(1)).await.unwrap();
        let mut version = list.metadata.resource_version.unwrap();
        let (mut begin, begun) = (Some(begin), Instant::now());
        // What was done before the work began: from then on the time counts.
        let mut before = Duration::ZERO;
        let mut open: HashSet<&str> = names.iter().map(String::as_str).collect();
        while !open.is_empty() {
            let mut events = pin!(self.api.watch(&WatchParams::default(), &version).await.unwrap());
            if let Some(begin) = begin.take() {
                before = begun.elapsed();
                begin().await;
            }
            while let Some(event) = timeout(GUARD, events.try_next())
                .await
                .expect("the agent hangs")
                .unwrap()
            {
                let (name, state) = match &event {
                    WatchEvent::Added(pod) | WatchEvent::Modified(pod) => (&pod.metadata.name, Some(pod)),
                    WatchEvent::Deleted(pod) => (&pod.metadata.name, None),
                    WatchEvent::Bookmark(_) => continue,
                    WatchEvent::Error(_) => break,
                };
                if is_done(state) {
                    open.remove(name.as_deref().unwrap_or_default());
                }
                if open.is_empty() {
                    break;
                }
            }
            if !open.is_empty() {
                // An API server may end a watch at any time.
                let list = self.api.list(&ListParams::default()).await.unwrap();
                version = list.metadata.resource_version.unwrap();
                let find = |name: &str| {
                    list.items
                        .iter()
                        .find(|pod| pod.metadata.name.as_deref() == Some(name))
                };
                open.retain(|name| !is_done(find(name)));
            }
        }
        (begun.elapsed() - before).as_secs_f64()
    }
}

fn runs(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    phase == Some("Running")
}

fn of<K: DeserializeOwned>(object: Value) -> K {
    serde_json::from_value(object).unwrap()
}

/// The median.
pub(crate) fn middle(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
