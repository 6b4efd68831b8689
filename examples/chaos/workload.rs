//! The workload: controllers and pods that are created, scaled, changed and deleted without a pause.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use fastrand::Rng;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::api::{Administrator, NAMESPACE};
use crate::folder::folder;
use crate::journal::Journal;
use crate::pods::{self, CRASHES};
use crate::witness::Witness;

const APPS: &str = "apps/v1";
const JOBS: &str = "batch/v1/jobs";
/// Mean time between two changes.
const PAUSE: Duration = Duration::from_millis(1500);
/// The greatest number of jobs at a time.
const MOST_JOBS: usize = 5;
const STATIC_PODS: [&str; 3] = ["static-a", "static-b", "static-c"];

/// Makes and changes the pods.
pub(crate) struct Workload {
    administrator: Administrator,
    witness: Witness,
    journal: Journal,
    rng: Rng,
    has_csi: bool,
    pods: usize,
    /// Numbers names and versions.
    next: u32,
    changes: u32,
    failed: u32,
    /// The versions of the static pods that have a manifest.
    manifests: BTreeMap<&'static str, u32>,
}

impl Workload {
    pub(crate) fn new(
        administrator: Administrator,
        witness: Witness,
        journal: Journal,
        rng: Rng,
        has_csi: bool,
        pods: usize,
    ) -> Self {
        Self {
            administrator,
            witness,
            journal,
            rng,
            has_csi,
            pods,
            next: 0,
            changes: 0,
            failed: 0,
            manifests: BTreeMap::new(),
        }
    }

    /// Creates the controllers, and some pods beside them.
    pub(crate) async fn begin(&mut self) {
        let settings = json!({"metadata": {"name": "settings"}, "data": {"version": "0"}});
        let key = json!({"metadata": {"name": "key"}, "stringData": {"word": "hush"}});
        let share = |of_hundred: usize| (self.pods * of_hundred / 100).max(1);
        let (web, stateful, crash) = (share(20), share(10), share(4));
        let objects = [
            ("configmaps".to_owned(), settings),
            ("secrets".to_owned(), key),
            (format!("{APPS}/deployments"), deployment("web", web, pods::web())),
            (format!("{APPS}/deployments"), deployment("crash", crash, crash_pod())),
            (format!("{APPS}/statefulsets"), stateful_set(stateful, pods::stateful(self.has_csi))),
            (format!("{APPS}/daemonsets"), daemon_set()),
        ];
        for (collection, object) in objects {
            self.administrator.create(&collection, &object).await.unwrap();
        }
        for name in STATIC_PODS {
            self.write_manifest(name);
        }
        for _ in 0..self.pods / 3 {
            self.create_bare().await;
        }
    }

    /// Changes something again and again. It ends when it is dropped.
    pub(crate) async fn churn(&mut self) {
        loop {
            sleep(PAUSE.mul_f64(self.rng.f64() * 2.0)).await;
            self.changes += 1;
            if let Err(error) = self.change().await {
                self.failed += 1;
                if self.failed.is_power_of_two() {
                    self.journal.note(format!("{} changes failed, now: {error:.200}", self.failed));
                }
            }
        }
    }

    pub(crate) fn changes(&self) -> u32 {
        self.changes
    }

    async fn change(&mut self) -> Result<(), String> {
        let administrator = self.administrator.clone();
        match self.rng.u32(0..20) {
            0 => self.scale("deployments", "web", 20).await,
            1 => self.scale("statefulsets", "state", 10).await,
            2 => self.roll_out().await,
            3 | 4 => self.job().await,
            5 => self.delete_job().await,
            6 => {
                let version = json!({"data": {"version": self.number().to_string()}});
                administrator.patch("configmaps", "settings", &version).await.map(drop)
            }
            7 => {
                self.change_static();
                Ok(())
            }
            8 => self.delete_any("app in (web,crash,each)").await,
            9 => self.delete_any("app=state").await,
            _ => self.bare().await,
        }
    }

    fn number(&mut self) -> u32 {
        self.next += 1;
        self.next
    }

    async fn scale(&mut self, resource: &str, name: &str, of_hundred: usize) -> Result<(), String> {
        let usual = (self.pods * of_hundred / 100).max(1);
        let replicas = self.rng.usize(usual / 2..=usual * 3 / 2);
        let patch = json!({"spec": {"replicas": replicas}});
        self.administrator.patch(&format!("{APPS}/{resource}"), name, &patch).await.map(drop)
    }

    async fn roll_out(&mut self) -> Result<(), String> {
        let annotation = json!({"chaos/version": self.number().to_string()});
        let patch = json!({"spec": {"template": {"metadata": {"annotations": annotation}}}});
        let collection = format!("{APPS}/deployments");
        self.administrator.patch(&collection, "web", &patch).await.map(drop)
    }

    async fn job(&mut self) -> Result<(), String> {
        if self.administrator.list(JOBS).await?.len() >= MOST_JOBS {
            return self.delete_job().await;
        }
        let name = format!("job-{}", self.number());
        let job = json!({"metadata": {"name": name}, "spec": {
            "completions": 3, "parallelism": 2, "backoffLimit": 4,
            "template": {"metadata": {"labels": {"app": "job"}}, "spec": pods::of_job(&mut self.rng, self.has_csi)},
        }});
        self.administrator.create(JOBS, &job).await.map(drop)
    }

    async fn delete_job(&mut self) -> Result<(), String> {
        let jobs = self.administrator.list(JOBS).await?;
        match self.rng.choice(&jobs) {
            Some(job) => self.administrator.delete(JOBS, name(job), None).await.map(drop),
            None => Ok(()),
        }
    }

    /// Writes, changes or removes the manifest of a static pod.
    fn change_static(&mut self) {
        let name = STATIC_PODS[self.rng.usize(..STATIC_PODS.len())];
        if self.manifests.contains_key(name) && self.rng.bool() {
            self.manifests.remove(name);
            let _ = fs::remove_file(manifest(name));
        } else {
            self.write_manifest(name);
        }
    }

    fn write_manifest(&mut self, name: &'static str) {
        // Sometimes the same manifest comes back.
        let version = self.rng.u32(0..3);
        self.manifests.insert(name, version);
        // An agent must not read half a file.
        let temporary = folder().join(format!("tmp/{name}"));
        fs::write(&temporary, pods::static_pod(name, version).to_string()).unwrap();
        fs::rename(temporary, manifest(name)).unwrap();
    }

    async fn delete_any(&mut self, selector: &str) -> Result<(), String> {
        let path =
            format!("/api/v1/namespaces/{NAMESPACE}/pods?labelSelector={}", selector.replace(' ', "%20"));
        let pods = self.administrator.get(&path).await?;
        match self.rng.choice(pods["items"].as_array().map_or(&[][..], Vec::as_slice)) {
            Some(pod) => self.administrator.delete("pods", name(pod), None).await.map(drop),
            None => Ok(()),
        }
    }

    /// Deletes pods that nobody owns, and creates others, so that there are as many as there should be.
    async fn bare(&mut self) -> Result<(), String> {
        let pods = self.administrator.list("pods").await?;
        let is_bare = |pod: &&Value| pod["metadata"]["labels"]["app"] == "bare";
        let bare: Vec<&Value> = pods.iter().filter(is_bare).collect();
        if pods.len() < self.pods && self.rng.u32(0..4) > 0 {
            self.create_bare().await;
            return Ok(());
        }
        let Some(pod) = self.rng.choice(&bare) else {
            return Ok(());
        };
        // One in five is forced, and does not wait for its containers.
        let grace = match self.rng.u32(0..5) {
            0 => Some(0),
            1 => Some(1),
            _ => None,
        };
        if grace == Some(0)
            && let Some(uid) = pod["metadata"]["uid"].as_str()
        {
            self.witness.will_be_forced(uid);
        }
        self.administrator.delete("pods", name(pod), grace).await.map(drop)
    }

    async fn create_bare(&mut self) {
        let name = format!("bare-{}", self.number());
        let pod = pods::bare(&name, &mut self.rng, self.has_csi);
        if let Err(error) = self.administrator.create("pods", &pod).await {
            self.journal.note(format!("{name}: {error:.200}"));
        }
    }

    /// The static pods that should run.
    pub(crate) fn static_pods(&self) -> Vec<&'static str> {
        self.manifests.keys().copied().collect()
    }

    /// Deletes everything.
    pub(crate) async fn end(&mut self) {
        for name in STATIC_PODS {
            let _ = fs::remove_file(manifest(name));
        }
        self.manifests.clear();
        let apps = ["deployments", "statefulsets", "daemonsets"].map(|resource| format!("{APPS}/{resource}"));
        for collection in apps.iter().map(String::as_str).chain([JOBS, "pods"]) {
            for object in self.administrator.list(collection).await.unwrap_or_default() {
                let _ = self.administrator.delete(collection, name(&object), None).await;
            }
        }
    }
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

fn manifest(name: &str) -> PathBuf {
    folder().join(format!("manifests/{name}.json"))
}

fn deployment(name: &str, replicas: usize, spec: Value) -> Value {
    let mut labels = json!({"app": name});
    if name == "crash" {
        labels[CRASHES] = "main".into();
    }
    json!({"metadata": {"name": name}, "spec": {
        "replicas": replicas,
        "selector": {"matchLabels": {"app": name}},
        "strategy": {"rollingUpdate": {"maxUnavailable": "50%", "maxSurge": "50%"}},
        "template": {"metadata": {"labels": labels}, "spec": spec},
    }})
}

fn crash_pod() -> Value {
    let main = pods::container("main", &["finish", "4", "1"], pods::Policy::Always);
    pods::spec(vec![main, pods::container("other", &["serve", "0"], pods::Policy::Always)], 5)
}

fn stateful_set(replicas: usize, spec: Value) -> Value {
    json!({"metadata": {"name": "state"}, "spec": {
        "serviceName": "state",
        "replicas": replicas,
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": {"app": "state"}},
        "template": {"metadata": {"labels": {"app": "state"}}, "spec": spec},
    }})
}

fn daemon_set() -> Value {
    let main = pods::container("main", &["serve", "0"], pods::Policy::Always);
    json!({"metadata": {"name": "each"}, "spec": {
        "selector": {"matchLabels": {"app": "each"}},
        "template": {"metadata": {"labels": {"app": "each"}}, "spec": pods::spec(vec![main], 5)},
    }})
}
