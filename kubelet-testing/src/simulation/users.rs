//! The users of a simulated cluster: they create, change and delete pods.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube_client::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kubelet_core::PodExt;
use serde_json::json;
use tokio::time::Instant;

use super::driver::{Act, Driver};
use super::pressure;
use super::resources;
use super::static_pods::static_pod;
use super::storage;
use super::workload::random_pod;
use crate::memory_cri::hash;

/// One in about this many created pods is static.
const STATIC: u8 = 6;

impl Driver {
    /// Creates a pod of a random kind, with a new name or the given one. Users delete some of them during their
    /// start.
    pub(super) async fn make_pod(&mut self, name: Option<String>) {
        let Some(number) = self.any_number() else {
            return;
        };
        if name.is_none() && self.rng.u8(..STATIC) == 0 {
            return self.make_static_pod(number);
        }
        let name = name.unwrap_or_else(|| self.new_name("pod"));
        let node = self.nodes[number].name.clone();
        let mut drawn = random_pod(&name, &node, &mut self.rng);
        storage::add_volumes(&mut drawn, self.seed);
        if self.nodes[number].machine.is_some() {
            resources::add_requests(&mut drawn, self.seed, false);
        }
        if self.faults.has_pressure() {
            pressure::add_priority(&mut drawn, self.seed);
        }
        for after in storage::changes_at_start(&drawn, self.seed) {
            self.plan_at(Act::ChangeFiles, Instant::now() + after);
        }
        match serde_json::from_value(drawn) {
            Ok(pod) => self.create(pod).await,
            Err(error) => self.problems.push(format!("pod {name}: {error}")),
        }
        if self.rng.u8(..3) == 0 {
            let soon = self.moment();
            self.plan_at(Act::Delete(name), Instant::now() + soon);
        }
    }

    fn new_name(&mut self, kind: &str) -> String {
        self.pods_made += 1;
        format!("{kind}-{}", self.pods_made)
    }

    /// From a millisecond to a minute; short times are as likely as long ones.
    fn moment(&mut self) -> Duration {
        Duration::from_secs_f64(0.001 * 60_000_f64.powf(self.rng.f64()))
    }

    pub(super) async fn create(&mut self, mut pod: Pod) {
        let namespace = pod
            .metadata
            .namespace
            .get_or_insert_with(|| "default".to_owned())
            .clone();
        let name = pod.metadata.name.clone().unwrap_or_default();
        self.journal.note(format!("user creates {namespace}/{name}"));
        let made = self.pods(&namespace).create(&PostParams::default(), &pod).await;
        match made {
            Ok(pod) => self.order.add(&pod),
            Err(error) => self
                .journal
                .note(format!("user cannot create {namespace}/{name}: {error}")),
        }
    }

    fn pods(&self, namespace: &str) -> Api<Pod> {
        Api::namespaced(self.admin.clone(), namespace)
    }

    /// A user's action: creates, deletes, replaces or changes a pod.
    pub(super) async fn change_a_pod(&mut self) {
        if self.rng.u8(..STATIC) == 0 && self.change_a_static_pod() {
            return;
        }
        let churn = self.churn.map_or(0, |churn| churn.pods);
        let pods: Vec<Arc<Pod>> = self
            .witness
            .pods()
            .into_iter()
            .filter(|pod| !pod.is_deleting() && !pod.is_mirror())
            .collect();
        let pick = self.rng.usize(..pods.len().max(1));
        let what = self.rng.u8(..8);
        let Some(pod) = pods.get(pick).filter(|_| pods.len() >= churn.div_ceil(2)) else {
            return self.make_pod(None).await;
        };
        let key = pod.key();
        match what {
            0..=1 if pods.len() < churn * 2 => self.make_pod(None).await,
            0..=3 => {
                let grace = [None, None, Some(0), Some(1), Some(60)][self.rng.usize(..5)];
                self.delete(pod, grace).await;
            }
            4..=5 => {
                self.delete(pod, Some(0)).await;
                self.make_pod(Some(key.name.to_string())).await;
            }
            _ => {
                let label = self.rng.u16(..).to_string();
                storage::change_config_map(&self.api, hash(self.seed, &label), self.witness.version());
                self.journal.note(format!("user labels {key}"));
                let patch = Patch::Merge(json!({"metadata": {"labels": {"drawn": label}}}));
                // It may have been deleted meanwhile.
                let _ = self
                    .pods(&key.namespace)
                    .patch(&key.name, &PatchParams::default(), &patch)
                    .await;
            }
        }
    }

    /// Changes all config maps.
    pub(super) fn change_files(&mut self) {
        self.files_changed += 1;
        self.journal.note("user changes the config maps".to_owned());
        for number in 0..storage::OBJECTS {
            storage::change_config_map(&self.api, number, self.files_changed);
        }
    }

    pub(super) async fn delete(&mut self, pod: &Pod, grace: Option<u32>) {
        let key = pod.key();
        let shown = grace.map_or_else(String::new, |grace| format!(" with {grace} s of grace"));
        self.journal.note(format!("user deletes {key}{shown}"));
        let own = pod
            .spec
            .as_ref()
            .and_then(|spec| spec.termination_grace_period_seconds);
        if grace.map(i64::from).or(own) == Some(0) {
            // It is deleted at once, whatever still runs.
            self.witness.is_forced(pod);
        }
        let params = DeleteParams {
            grace_period_seconds: grace,
            ..DeleteParams::default()
        };
        // It may have been deleted meanwhile.
        let _ = self.pods(&key.namespace).delete(&key.name, &params).await;
    }

    pub(super) async fn delete_by_name(&mut self, name: &str) {
        let found = self.witness.pods().into_iter();
        let mut found = found.filter(|pod| pod.metadata.name.as_deref() == Some(name));
        if let Some(pod) = found.next() {
            let grace = [None, Some(0), Some(1)][self.rng.usize(..3)];
            self.delete(&pod, grace).await;
        }
    }

    fn make_static_pod(&mut self, number: usize) {
        let name = self.new_name("static");
        self.write_manifest(number, &name);
    }

    /// Writes a random manifest with this name.
    fn write_manifest(&mut self, number: usize, name: &str) {
        let node = &self.nodes[number].name;
        self.pods_made += 1;
        let mut manifest = random_pod(&format!("{name}-{node}"), node, &mut self.rng);
        if self.nodes[number].machine.is_some() {
            resources::add_requests(&mut manifest, self.seed, true);
        }
        match static_pod(manifest, self.pods_made) {
            Ok(pod) => self.put_static_pod(number, Arc::new(pod)),
            Err(error) => self.problems.push(format!("static pod {name}: {error}")),
        }
    }

    pub(super) fn put_static_pod(&mut self, number: usize, pod: Arc<Pod>) {
        let node = &self.nodes[number];
        self.journal
            .note(format!("{} static pod {} is written", node.name, pod.key()));
        self.order.add(&pod);
        self.witness.is_written(&pod);
        node.static_pods.put(pod);
    }

    /// Edits or removes a manifest, or removes it for a moment and restores it, or removes it and writes it again at once, with the
    /// same or another content. Returns whether there is any.
    fn change_a_static_pod(&mut self) -> bool {
        let Some(number) = self.any_number() else {
            return false;
        };
        let pods = self.nodes[number].static_pods.all();
        if pods.is_empty() {
            return false;
        }
        let pod = pods[self.rng.usize(..pods.len())].clone();
        let name = &self.nodes[number].name;
        let full = pod.metadata.name.clone().unwrap_or_default();
        let of_manifest = full.strip_suffix(&format!("-{name}")).unwrap_or(&full).to_owned();
        match self.rng.u8(..6) {
            0..=1 => self.write_manifest(number, &of_manifest),
            2 => self.remove_static_pod(number, &pod),
            3 => {
                self.remove_static_pod(number, &pod);
                let soon = self.moment();
                self.plan_at(Act::PutBack(number, pod), Instant::now() + soon);
            }
            4 => {
                self.remove_static_pod(number, &pod);
                self.write_manifest(number, &of_manifest);
            }
            _ => {
                for _ in 0..self.rng.usize(1..4) {
                    self.expect_restart(number, &pod);
                    self.remove_static_pod(number, &pod);
                    self.put_static_pod(number, pod.clone());
                }
                self.journal.note(format!(
                    "{} static pod {} is back at once",
                    self.nodes[number].name,
                    pod.key()
                ));
            }
        }
        true
    }

    fn remove_static_pod(&mut self, number: usize, pod: &Pod) {
        let node = &self.nodes[number];
        self.journal
            .note(format!("{} static pod {} is removed", node.name, pod.key()));
        node.static_pods.remove(pod.uid_str());
    }
}
