//! The output of an agent.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus, PodStatus};
use serde_json::Value;

use super::node::NODE_NAME;

/// All output of an agent so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told {
    /// Its JSON lines, on stdout.
    pub(crate) lines: Vec<Line>,
    /// Its log, on stderr.
    pub(crate) log: Vec<String>,
}

/// A line of JSON: the new status of a pod.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) namespace: String,
    /// As in the manifest, without the node's name as suffix.
    pub(crate) name: String,
    pub(crate) uid: String,
    /// `None`: it was deleted.
    pub(crate) status: Option<PodStatus>,
}

impl Line {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut value: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let of = |key: &str| value[key].as_str().map(str::to_owned).ok_or(format!("no {key}"));
        let (namespace, name, uid) = (of("namespace")?, of("name")?, of("uid")?);
        of("time")?.parse::<k8s_openapi::jiff::Timestamp>().map_err(|error| error.to_string())?;
        let name = name.strip_suffix(&format!("-{NODE_NAME}")).ok_or("a static pod bears its node's name")?;
        let status = value.get_mut("status").ok_or("no status")?.take();
        let status = serde_json::from_value(status).map_err(|error| error.to_string())?;
        Ok(Self { namespace, name: name.to_owned(), uid, status })
    }

    /// The status of a pod that exists.
    pub(crate) fn status(&self) -> &PodStatus {
        self.status.as_ref().unwrap_or_else(|| panic!("{} is gone", self.name))
    }
}

impl Told {
    /// All lines about the pods of a name.
    pub(crate) fn of(&self, pod: &str) -> Vec<&Line> {
        self.lines.iter().filter(|line| line.name == pod).collect()
    }

    /// The UIDs of a name, in order.
    pub(crate) fn uids(&self, pod: &str) -> Vec<&str> {
        let mut uids = Vec::new();
        for line in self.of(pod) {
            if !uids.contains(&line.uid.as_str()) {
                uids.push(&line.uid);
            }
        }
        uids
    }

    /// The latest line about the newest pod with this name.
    pub(crate) fn newest(&self, pod: &str) -> Option<&Line> {
        self.latest(self.uids(pod).last()?)
    }

    /// The latest line about a pod.
    pub(crate) fn latest(&self, uid: &str) -> Option<&Line> {
        self.lines.iter().rfind(|line| line.uid == uid)
    }
}

/// Shortcuts to read a status.
pub(crate) trait StatusExt {
    fn is_ready(&self) -> bool;
    fn container(&self, name: &str) -> &ContainerStatus;
    /// The state of a container; empty if it has no status.
    fn state(&self, name: &str) -> ContainerState;
    fn restarts(&self, name: &str) -> i32;
    /// The reason why a container waits.
    fn waiting(&self, name: &str) -> Option<String>;
    /// The exit code of a container.
    fn exit_code(&self, name: &str) -> Option<i32>;
    /// The containers' ids by their names.
    fn ids(&self) -> BTreeMap<String, String>;
    fn find(&self, name: &str) -> Option<&ContainerStatus>;
}

impl StatusExt for PodStatus {
    fn is_ready(&self) -> bool {
        let conditions = self.conditions.iter().flatten();
        self.phase.as_deref() == Some("Running")
            && conditions.into_iter().any(|it| it.type_ == "Ready" && it.status == "True")
    }

    fn container(&self, name: &str) -> &ContainerStatus {
        self.find(name).unwrap_or_else(|| panic!("no container {name} in {self:#?}"))
    }

    fn state(&self, name: &str) -> ContainerState {
        self.find(name).and_then(|container| container.state.clone()).unwrap_or_default()
    }

    fn restarts(&self, name: &str) -> i32 {
        self.find(name).map_or(0, |container| container.restart_count)
    }

    fn waiting(&self, name: &str) -> Option<String> {
        self.state(name).waiting?.reason
    }

    fn exit_code(&self, name: &str) -> Option<i32> {
        Some(self.state(name).terminated?.exit_code)
    }

    fn ids(&self) -> BTreeMap<String, String> {
        let id = |it: &ContainerStatus| (it.name.clone(), it.container_id.clone().unwrap_or_default());
        self.container_statuses.iter().flatten().map(id).collect()
    }

    fn find(&self, name: &str) -> Option<&ContainerStatus> {
        let all = self.init_container_statuses.iter().chain(&self.container_statuses).flatten();
        all.into_iter().find(|container| container.name == name)
    }
}
