//! A status in sixty-four bits: whether another one says the same is told without a look at it.
//!
//! A status lies in some eighty places of memory, and those of all pods are more than a processor keeps at hand. What is
//! reported mostly says what is known already: then the number is all that is read of what is known.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher};

use k8s_openapi::api::core::v1::{
    ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting, ContainerStatus,
    ContainerUser, LinuxContainerUser, Pod, PodCondition, PodStatus as ApiPodStatus, ResourceRequirements,
    VolumeMountStatus,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kubelet_core::PodExt;

/// What a status says, hashed: all that [`same_news`](crate::equality::same_news) compares. None of a status that says what
/// hardly any does.
pub(crate) struct Imprint(Option<u64>);

impl Imprint {
    pub(crate) fn of(status: &ApiPodStatus) -> Self {
        let mut row = Row(DefaultHasher::new());
        Self(print(&mut row, status).then(|| row.0.finish()))
    }

    /// What a pod's status says, and whose it is.
    pub(crate) fn of_pod(pod: &Pod) -> Option<u64> {
        let mut row = Row(DefaultHasher::new());
        text(&mut row, pod.uid_str());
        let status = pod.status.as_ref();
        status
            .is_none_or(|status| print(&mut row, status))
            .then(|| row.0.finish())
    }

    /// Whether this status says the same. If it does, that is as good as certain; if not, whoever asks compares the two.
    pub(crate) fn is_of(&self, status: &ApiPodStatus) -> bool {
        self.0.is_some() && self.0 == Self::of(status).0
    }
}

/// What a status says, one after the other. Everything can be taken in: whoever prints says `false` of what is not.
struct Row(DefaultHasher);

impl Row {
    fn bytes(&mut self, bytes: &[u8]) -> bool {
        self.0.write(bytes);
        true
    }

    fn number(&mut self, number: u64) -> bool {
        self.0.write_u64(number);
        true
    }

    fn flag(&mut self, flag: bool) -> bool {
        self.0.write_u8(u8::from(flag));
        true
    }
}

fn print(row: &mut Row, status: &ApiPodStatus) -> bool {
    let containers = [
        &status.container_statuses,
        &status.init_container_statuses,
        &status.ephemeral_container_statuses,
    ];
    let texts = [
        &status.phase,
        &status.reason,
        &status.message,
        &status.pod_ip,
        &status.host_ip,
        &status.qos_class,
        &status.nominated_node_name,
        &status.resize,
    ];
    // Absent and empty are the same.
    texts
        .into_iter()
        .all(|words| text(row, words.as_deref().unwrap_or_default()))
        && list(row, slice(&status.conditions), condition)
        && containers
            .into_iter()
            .all(|of_kind| list(row, slice(of_kind), container))
        && list(row, slice(&status.pod_ips), |row, ip| text(row, &ip.ip))
        && list(row, slice(&status.host_ips), |row, ip| text(row, &ip.ip))
        && optional(row, &status.resources, resources)
        && optional(
            row,
            &status
                .allocated_resources
                .as_ref()
                .filter(|list| !list.is_empty()),
            |row, list| amounts(row, list),
        )
}

/// The times of a condition do not count, nor the generation that it was observed at.
fn condition(row: &mut Row, condition: &PodCondition) -> bool {
    text(row, &condition.type_)
        && text(row, &condition.status)
        && text(row, condition.reason.as_deref().unwrap_or_default())
        && text(row, condition.message.as_deref().unwrap_or_default())
}

/// All of it: a field that is added to the API is one that does not compile here.
fn container(row: &mut Row, container: &ContainerStatus) -> bool {
    let ContainerStatus {
        allocated_resources,
        allocated_resources_status: None,
        container_id,
        image,
        image_id,
        last_state,
        name,
        ready,
        resources: requirements,
        restart_count,
        started,
        state: now,
        stop_signal,
        user: run_by,
        volume_mounts,
    } = container
    else {
        return false;
    };
    text(row, name)
        && signed(row, (*restart_count).into())
        && row.flag(*ready)
        && optional(row, started, |row, started| row.flag(*started))
        && optional(row, now, state)
        && optional(row, last_state, state)
        && optional(row, container_id, |row, id| text(row, id))
        && text(row, image)
        && text(row, image_id)
        && optional(row, requirements, resources)
        && optional(row, allocated_resources, amounts)
        && optional(row, volume_mounts, |row, mounts| list(row, mounts, mount))
        && optional(row, run_by, user)
        && optional(row, stop_signal, |row, signal| text(row, signal))
}

fn state(row: &mut Row, state: &ContainerState) -> bool {
    let ContainerState {
        running,
        terminated,
        waiting,
    } = state;
    optional(row, running, |row, ContainerStateRunning { started_at }| {
        optional(row, started_at, time)
    }) && optional(row, waiting, |row, ContainerStateWaiting { message, reason }| {
        optional(row, reason, |row, reason| text(row, reason))
            && optional(row, message, |row, message| text(row, message))
    }) && optional(row, terminated, end)
}

fn end(row: &mut Row, end: &ContainerStateTerminated) -> bool {
    let ContainerStateTerminated {
        container_id,
        exit_code,
        finished_at,
        message,
        reason,
        signal,
        started_at,
    } = end;
    signed(row, (*exit_code).into())
        && optional(row, signal, |row, signal| signed(row, (*signal).into()))
        && optional(row, started_at, time)
        && optional(row, finished_at, time)
        && [container_id, reason, message]
            .into_iter()
            .all(|words| optional(row, words, |row, words| text(row, words)))
}

fn resources(row: &mut Row, resources: &ResourceRequirements) -> bool {
    let ResourceRequirements {
        claims: None,
        limits,
        requests,
    } = resources
    else {
        return false;
    };
    optional(row, limits, amounts) && optional(row, requests, amounts)
}

fn amounts(row: &mut Row, list: &BTreeMap<String, Quantity>) -> bool {
    length(row, list.len())
        && list
            .iter()
            .all(|(name, amount)| text(row, name) && text(row, &amount.0))
}

fn mount(row: &mut Row, mount: &VolumeMountStatus) -> bool {
    let VolumeMountStatus {
        mount_path,
        name,
        read_only,
        recursive_read_only,
        volume_status: None,
    } = mount
    else {
        return false;
    };
    text(row, name)
        && text(row, mount_path)
        && optional(row, read_only, |row, read_only| row.flag(*read_only))
        && optional(row, recursive_read_only, |row, recursive| text(row, recursive))
}

fn user(row: &mut Row, user: &ContainerUser) -> bool {
    let ContainerUser { linux } = user;
    optional(row, linux, |row, user| {
        let LinuxContainerUser {
            gid,
            supplemental_groups,
            uid,
        } = user;
        signed(row, *uid)
            && signed(row, *gid)
            && optional(row, supplemental_groups, |row, groups| {
                list(row, groups, |row, group| signed(row, *group))
            })
    })
}

fn time(row: &mut Row, time: &Time) -> bool {
    row.bytes(&time.0.as_nanosecond().to_le_bytes())
}

fn signed(row: &mut Row, number: i64) -> bool {
    row.number(number.cast_unsigned())
}

fn length(row: &mut Row, length: usize) -> bool {
    row.number(length as u64)
}

fn text(row: &mut Row, text: &str) -> bool {
    length(row, text.len()) && row.bytes(text.as_bytes())
}

fn optional<T>(row: &mut Row, value: &Option<T>, print: impl FnOnce(&mut Row, &T) -> bool) -> bool {
    match value {
        None => row.flag(false),
        Some(value) => row.flag(true) && print(row, value),
    }
}

fn list<T>(row: &mut Row, list: &[T], mut print: impl FnMut(&mut Row, &T) -> bool) -> bool {
    length(row, list.len()) && list.iter().all(|element| print(row, element))
}

fn slice<T>(list: &Option<Vec<T>>) -> &[T] {
    list.as_deref().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::read::GzDecoder;
    use serde_json::{Value, json};

    use super::*;
    use crate::equality::same_news;

    fn status(value: &Value) -> ApiPodStatus {
        serde_json::from_value(value.clone()).unwrap()
    }

    /// What API servers were seen to show of the pods of a node.
    fn recorded() -> Vec<ApiPodStatus> {
        let mut text = String::new();
        GzDecoder::new(&include_bytes!("../tests/data/pods.jsonl.gz")[..])
            .read_to_string(&mut text)
            .unwrap();
        let lives = text
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap());
        let shown = lives.flat_map(|life| life["history"].as_array().unwrap().clone());
        shown.map(|entry| status(&entry["status"])).collect()
    }

    /// Where something stands in a value, all that is within included (JSON pointers).
    fn places(value: &Value, at: &str, all: &mut Vec<String>) {
        let mut within = |name: &str, part: &Value| {
            let at = format!("{at}/{name}");
            places(part, &at, all);
            all.push(at);
        };
        match value {
            Value::Object(fields) => fields.iter().for_each(|(name, part)| within(name, part)),
            Value::Array(list) => list
                .iter()
                .enumerate()
                .for_each(|(index, part)| within(&index.to_string(), part)),
            _ => {}
        }
    }

    /// What might stand there instead.
    fn others(value: &Value) -> Vec<Value> {
        let mut others = match value {
            Value::Array(list) => vec![
                list.iter().skip(1).cloned().collect(),
                list.iter().rev().cloned().collect(),
            ],
            Value::String(text) if text.ends_with("00Z") => vec![json!(text.replace("00Z", "01Z"))],
            Value::String(text) => vec![json!(format!("{text}x")), json!("")],
            Value::Bool(value) => vec![json!(!value)],
            Value::Number(number) => vec![json!(number.as_i64().unwrap() + 1)],
            Value::Object(_) | Value::Null => Vec::new(),
        };
        others.retain(|other| other != value);
        others.push(Value::Null);
        others
    }

    #[test]
    fn what_bears_the_imprint_says_the_same() {
        let all = recorded();
        assert!(all.len() > 500, "{}", all.len());
        for (index, known) in all.iter().enumerate() {
            let imprint = Imprint::of(known);
            assert!(imprint.is_of(&known.clone()));
            for other in &all[index..all.len().min(index + 40)] {
                assert!(
                    !imprint.is_of(other) || same_news(known, other),
                    "{known:?} {other:?}"
                );
            }
        }
    }

    #[test]
    fn whatever_changes_leaves_another_imprint() {
        let at = "2026-01-01T00:00:00Z";
        let end = json!({"exitCode": 1, "signal": 9, "reason": "Error", "message": "m", "containerID": "c://1", "startedAt": at, "finishedAt": at});
        let amounts = json!({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1"}});
        let container = |name: &str, state: Value| {
            json!({"name": name, "image": "i", "imageID": "sha256:1", "containerID": "c://2", "ready": true, "started": true,
                "restartCount": 3, "state": state, "lastState": {"terminated": end}, "resources": amounts, "stopSignal": "SIGTERM",
                "allocatedResources": {"cpu": "1"}, "user": {"linux": {"uid": 1, "gid": 2, "supplementalGroups": [3, 4]}},
                "volumeMounts": [{"name": "v", "mountPath": "/v", "readOnly": true, "recursiveReadOnly": "Disabled"}]})
        };
        let whole = json!({"phase": "Running", "reason": "R", "message": "M", "podIP": "10.0.0.1", "hostIP": "10.0.0.2", "qosClass": "Burstable",
            "nominatedNodeName": "n", "resize": "r", "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}], "hostIPs": [{"ip": "10.0.0.2"}],
            "resources": amounts, "allocatedResources": {"cpu": "1"}, "startTime": at, "observedGeneration": 2,
            "conditions": [{"type": "Ready", "status": "True", "reason": "r", "message": "m", "lastTransitionTime": at},
                {"type": "PodScheduled", "status": "True"}],
            "containerStatuses": [container("a", json!({"running": {"startedAt": at}})), container("b", json!({"terminated": end}))],
            "initContainerStatuses": [container("i", json!({"waiting": {"reason": "W", "message": "M"}}))],
            "ephemeralContainerStatuses": [container("e", json!({"running": {"startedAt": at}}))]});
        let known = status(&whole);
        let imprint = Imprint::of(&known);
        assert!(imprint.is_of(&known));
        let (mut told_apart, mut same) = (0, 0);
        let mut all = Vec::new();
        places(&whole, "", &mut all);
        let changed = all.iter().flat_map(|at| {
            others(whole.pointer(at).unwrap()).into_iter().map(|other| {
                let mut changed = whole.clone();
                *changed.pointer_mut(at).unwrap() = other;
                changed
            })
        });
        for changed in changed {
            // What the API requires cannot be left away.
            let Ok(changed) = serde_json::from_value::<ApiPodStatus>(changed) else {
                continue;
            };
            assert!(
                !imprint.is_of(&changed) || same_news(&known, &changed),
                "{changed:?}"
            );
            match imprint.is_of(&changed) {
                true => same += 1,
                false => told_apart += 1,
            }
        }
        // What does not count: a condition's time, start time and generation, each changed or left away.
        assert!(told_apart > 200 && same == 6, "{told_apart} {same}");
    }

    #[test]
    fn what_hardly_any_status_says_has_no_imprint() {
        for rare in [
            json!({"allocatedResourcesStatus": [{"name": "example.com/gpu"}]}),
            json!({"resources": {"claims": [{"name": "c"}]}}),
            json!({"volumeMounts": [{"name": "v", "mountPath": "/v", "volumeStatus": {"image": {"imageRef": "i"}}}]}),
        ] {
            let mut container =
                json!({"name": "a", "image": "i", "imageID": "i", "ready": true, "restartCount": 0});
            container
                .as_object_mut()
                .unwrap()
                .extend(rare.as_object().unwrap().clone());
            let rare = status(&json!({"containerStatuses": [container]}));
            assert!(!Imprint::of(&rare).is_of(&rare) && same_news(&rare, &rare));
        }
    }
}
