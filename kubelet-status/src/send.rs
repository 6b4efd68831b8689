//! Sends one pod's status to the sink (`syncPod` of the status manager).

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, PodStatus as ApiPodStatus};
use kubelet_core::{Clock, Error, PodExt, PodUid, RateLimit, Result, SinkPod, StatusSink};

use crate::equality::same;
use crate::merge::merge;
use crate::records::{Job, Outcome, Send, Task, is_mirror_of};
use crate::status_ext::{is_terminal, phase};
use crate::transitions;

/// Executes jobs.
pub(crate) struct Sender {
    pub(crate) sink: Box<dyn StatusSink>,
    pub(crate) limit: RateLimit,
    /// The time limit of each call to the sink.
    pub(crate) timeout: Duration,
    pub(crate) clock: Clock,
    /// The sink stores no pods: the status sent last is its status.
    pub(crate) stores_nothing: AtomicBool,
}

impl Sender {
    /// Does one job. What goes wrong is logged here.
    pub(crate) async fn send(&self, job: Job) -> Outcome {
        let result = match &job.task {
            Task::Send(send) => self.send_status(&job.pod, send).await,
            Task::Forget => {
                let forgotten = self.within_timeout(&job.uid, self.sink.forget(&job.pod)).await;
                forgotten.map(|()| Outcome::Forgotten)
            }
        };
        result.unwrap_or_else(|error| {
            let (pod, uid) = (job.pod.key(), &job.uid);
            match &error {
                // A pod can be deleted at any time, for example with its namespace.
                Error::StatusSinkPodGone { .. } => {
                    tracing::debug!(%pod, %uid, %error, "Status not sent, the pod no longer exists");
                }
                _ => tracing::warn!(%pod, %uid, %error, "Failed to send status, will retry"),
            }
            Outcome::Failed(match error {
                Error::StatusSinkBusy { retry_after, .. } => Some(retry_after),
                _ => None,
            })
        })
    }

    async fn send_status(&self, pod: &Arc<Pod>, send: &Send) -> Result<Outcome> {
        let uid = &pod.uid();
        let mut there = None;
        if !self.stores_nothing.load(Ordering::Relaxed) {
            there = match &send.known.there {
                Some(there) => Some(there.clone()),
                // A node that reads a pod which does not exist gets a 403.
                None if send.lacks_mirror && self.sink.shows_static_pods_by_mirrors() => {
                    return Ok(Outcome::Absent);
                }
                None => match self.request(uid, self.sink.get(pod)).await? {
                    SinkPod::Absent => return Ok(Outcome::Absent),
                    SinkPod::Stored(there) => Some(there),
                    SinkPod::NotStored => {
                        self.stores_nothing.store(true, Ordering::Relaxed);
                        self.limit.give_back();
                        None
                    }
                },
            };
        }
        // The API server shows a static pod through its mirror, which has another UID.
        if let Some(there) = &there
            && there.uid_str() != pod.uid_str()
            && !(pod.is_static()
                && there.is_mirror()
                && is_mirror_of(there, pod)
                && transitions::are_possible(pod, there.status.as_ref(), &send.status))
        {
            if pod.is_static() {
                return Ok(Outcome::Absent);
            }
            tracing::info!(
                pod = %pod.key(), uid = pod.uid_str(), now = there.uid_str(),
                "Pod was deleted and then recreated, skipping status update"
            );
            return Ok(Outcome::Gone);
        }

        let no_status = ApiPodStatus::default();
        let shown = there.as_ref().unwrap_or(pod);
        let told = send.known.told.as_ref().filter(|_| there.is_none());
        let old = match told {
            Some(told) => told,
            None => shown.status.as_ref().unwrap_or(&no_status),
        };
        let merged = Arc::new(merge(
            shown,
            old,
            &send.status,
            send.may_run,
            &self.clock.api_now(),
        ));
        let mut current = there.clone();
        // After a failure, some sinks of several may have the status already; they compare for themselves.
        if send.known.unsure || !same(old, &merged) {
            let patch = self.sink.patch_status(shown, old, &merged);
            let patched = match there {
                Some(_) => self.request(uid, patch).await?,
                None => self.within_timeout(uid, patch).await?,
            };
            if patched.is_none() {
                self.stores_nothing.store(true, Ordering::Relaxed);
            }
            current = patched;
            tracing::debug!(pod = %pod.key(), %uid, version = send.version, "Status sent");
        }

        let shown = current.as_ref().unwrap_or(pod);
        // The sink's version of the pod may be older than the deletion.
        let deletable = (shown.is_deleting() || pod.is_deleting()) && !shown.is_mirror() && !pod.is_static();
        if deletable && send.finished && is_terminal(phase(&merged)) {
            let delete = self.sink.delete(shown);
            match current {
                Some(_) => self.request(uid, delete).await?,
                None => self.within_timeout(uid, delete).await?,
            }
            tracing::debug!(pod = %pod.key(), %uid, "Pod has ended and was deleted");
            return Ok(Outcome::Gone);
        }
        Ok(Outcome::Sent(send.version, merged, current))
    }

    /// A request to a server: it is subject to the rate limit.
    async fn request<T>(&self, uid: &PodUid, call: impl Future<Output = Result<T>>) -> Result<T> {
        self.limit.take().await;
        self.within_timeout(uid, call).await
    }

    async fn within_timeout<T>(&self, uid: &PodUid, call: impl Future<Output = Result<T>>) -> Result<T> {
        let timed_out = |_| Error::Timeout {
            what: "status sink",
            pod: Some(uid.clone()),
            after: self.timeout,
        };
        tokio::time::timeout(self.timeout, call)
            .await
            .map_err(timed_out)?
    }
}
