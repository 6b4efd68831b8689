//! Finds the container of a pod for a log request.

use k8s_openapi::api::core::v1::{ContainerStateTerminated, ContainerStatus, PodStatus};
use kubelet_core::ContainerId;

use kubelet_cri::{Code, Error};

/// The id of the container for a name in the pod: the instance that runs or ran last; with `previous`, the instance
/// before it. `status` is the pod's API status (`validateContainerLogStatus`).
///
/// # Errors
///
/// [`Error::Call`] if there is no log, with the kubelet's [`message`](Error::message).
pub fn container_of_logs(
    pod: &str,
    status: &PodStatus,
    container: &str,
    previous: bool,
) -> Result<ContainerId, Error> {
    let refused = |message: String| Error::call(Code::FailedPrecondition, "GetContainerLogs", pod, message);
    let whose = format!("container {container:?} in pod {pod:?}");
    let all = [
        &status.container_statuses,
        &status.init_container_statuses,
        &status.ephemeral_container_statuses,
    ];
    let mut all = all.into_iter().flatten().flatten();
    let found: &ContainerStatus = all
        .find(|status| status.name == container)
        .ok_or_else(|| refused(format!("{whose} is not available")))?;
    let id_of = |terminated: Option<&ContainerStateTerminated>| {
        terminated
            .and_then(|it| it.container_id.clone())
            .filter(|id| !id.is_empty())
    };
    let last = found
        .last_state
        .as_ref()
        .and_then(|state| state.terminated.as_ref());
    let state = found.state.as_ref();
    let terminated = state.and_then(|state| state.terminated.as_ref());
    let is_terminated = || refused(format!("{whose} is terminated"));
    let id = if previous {
        id_of(last).ok_or_else(|| refused(format!("previous terminated {whose} not found")))?
    } else if state.is_some_and(|state| state.running.is_some()) {
        found.container_id.clone().unwrap_or_default()
    } else if terminated.is_some() {
        // If the next instance could not be started, this end has no container.
        id_of(terminated)
            .or_else(|| id_of(last))
            .ok_or_else(is_terminated)?
    } else if last.is_some() {
        id_of(last).ok_or_else(is_terminated)?
    } else {
        let waiting = state.and_then(|state| state.waiting.as_ref());
        return Err(refused(
            match waiting.map(|waiting| waiting.reason.as_deref().unwrap_or_default()) {
                Some("ErrImagePull") => format!("{whose} is waiting to start: image can't be pulled"),
                Some("ImagePullBackOff") => {
                    format!("{whose} is waiting to start: trying and failing to pull image")
                }
                Some(reason) => format!("{whose} is waiting to start: {reason}"),
                None => format!("{whose} is waiting to start - no logs yet"),
            },
        ));
    };
    id.parse()
        .map_err(|_| refused(format!("{whose} has the invalid id {id:?}")))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn the_container_that_is_meant() {
        let which = |status: Value, previous| {
            let mut status = status;
            status["name"] = "main".into();
            status["image"] = "".into();
            status["imageID"] = "".into();
            status["ready"] = false.into();
            status["restartCount"] = 0.into();
            let status = serde_json::from_value(json!({ "initContainerStatuses": [status] })).unwrap();
            match container_of_logs("web", &status, "main", previous) {
                Ok(id) => id.to_string(),
                Err(error) => error.message(),
            }
        };
        let ended = |id: &str| json!({ "terminated": { "exitCode": 0, "containerID": id } });
        let waits = |reason: &str| json!({ "waiting": { "reason": reason } });
        let main = "container \"main\" in pod \"web\"";
        for (status, previous, expected) in [
            (
                json!({ "containerID": "c://2", "state": { "running": {} }, "lastState": ended("c://1") }),
                false,
                "c://2".into(),
            ),
            (
                json!({ "containerID": "c://2", "state": { "running": {} }, "lastState": ended("c://1") }),
                true,
                "c://1".into(),
            ),
            (
                json!({ "state": { "running": {} } }),
                true,
                format!("previous terminated {main} not found"),
            ),
            (
                json!({ "state": ended("c://2"), "lastState": ended("c://1") }),
                false,
                "c://2".into(),
            ),
            (
                json!({ "state": ended(""), "lastState": ended("c://1") }),
                false,
                "c://1".into(),
            ),
            (
                json!({ "state": ended("") }),
                false,
                format!("{main} is terminated"),
            ),
            (
                json!({ "state": waits("CrashLoopBackOff"), "lastState": ended("c://1") }),
                false,
                "c://1".into(),
            ),
            (
                json!({ "state": waits("CrashLoopBackOff"), "lastState": ended("") }),
                false,
                format!("{main} is terminated"),
            ),
            (
                json!({ "state": waits("ErrImagePull") }),
                false,
                format!("{main} is waiting to start: image can't be pulled"),
            ),
            (
                json!({ "state": waits("ImagePullBackOff") }),
                false,
                format!("{main} is waiting to start: trying and failing to pull image"),
            ),
            (
                json!({ "state": waits("ContainerCreating") }),
                false,
                format!("{main} is waiting to start: ContainerCreating"),
            ),
            (
                json!({ "state": {} }),
                false,
                format!("{main} is waiting to start - no logs yet"),
            ),
        ] {
            assert_eq!(which(status.clone(), previous), expected, "{status}");
        }
        let error = container_of_logs("web", &PodStatus::default(), "main", false).unwrap_err();
        assert_eq!(error.message(), format!("{main} is not available"));
    }
}
