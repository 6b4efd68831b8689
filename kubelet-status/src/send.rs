//! One pod's turn with the sink (`syncPod` of the status manager).

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, PodStatus as ApiPodStatus};
use kubelet_core::{Clock, Error, PodExt, Result, SinkPod, StatusSink};

use crate::merge::merge;
use crate::normalize::same;
use crate::records::{Job, Outcome, Send, Task};
use crate::status_ext::{is_running, is_terminal, phase};

/// Does one job, within `timeout`. What goes wrong is logged here.
pub(crate) async fn send(sink: &dyn StatusSink, job: Job, timeout: Duration, clock: &Clock) -> Outcome {
    let done = async {
        match &job.task {
            Task::Send(send) => send_status(sink, &job.pod, send, clock).await,
            Task::Forget => sink.forget(&job.pod).await.map(|()| Outcome::Forgotten),
        }
    };
    let result = tokio::time::timeout(timeout, done).await.unwrap_or_else(|_| {
        Err(Error::Timeout {
            what: "status sink",
            pod: Some(job.uid.clone()),
            after: timeout,
        })
    });
    result.unwrap_or_else(|error| {
        tracing::warn!(pod = %job.pod.key(), uid = %job.uid, %error, "status not sent, will be tried again");
        Outcome::Failed
    })
}

async fn send_status(sink: &dyn StatusSink, pod: &Arc<Pod>, send: &Send, clock: &Clock) -> Result<Outcome> {
    let (there, stored) = match sink.get(pod).await? {
        SinkPod::Absent => return Ok(Outcome::Absent),
        SinkPod::NotStored => (pod.clone(), false),
        SinkPod::Stored(there) => (there, true),
    };
    // A static pod is shown by its mirror, which has a UID of its own.
    if there.uid_str() != pod.uid_str() && !(pod.is_static() && there.is_mirror()) {
        if pod.is_static() {
            return Ok(Outcome::Absent);
        }
        tracing::info!(
            pod = %pod.key(), uid = pod.uid_str(), now = there.uid_str(),
            "pod was deleted and made anew, status not sent"
        );
        return Ok(Outcome::Gone);
    }
    let no_status = ApiPodStatus::default();
    let old = match &send.told {
        Some(told) if !stored => told,
        _ => there.status.as_ref().unwrap_or(&no_status),
    };

    let may_run = !send.finished && any_container_runs(&send.status);
    let merged = Arc::new(merge(&there, old, &send.status, may_run, &clock.api_now()));
    let mut current = there.clone();
    if !same(old, &merged) {
        if let Some(patched) = sink.patch_status(&there, old, &merged).await? {
            current = patched;
        }
        tracing::debug!(pod = %pod.key(), uid = pod.uid_str(), version = send.version, "status sent");
    }

    let deletable = current.is_deleting() && !current.is_mirror() && !pod.is_static();
    if deletable && send.finished && is_terminal(phase(&merged)) {
        sink.delete(&current).await?;
        tracing::debug!(pod = %pod.key(), uid = pod.uid_str(), "pod has ended and was deleted");
        return Ok(Outcome::Gone);
    }
    Ok(Outcome::Sent(send.version, merged))
}

/// A status that shows a running container is one of a pod that holds what it was given.
fn any_container_runs(status: &ApiPodStatus) -> bool {
    status
        .container_statuses
        .iter()
        .chain(&status.init_container_statuses)
        .chain(&status.ephemeral_container_statuses)
        .flatten()
        .any(|status| is_running(&status.state))
}
