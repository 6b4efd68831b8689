//! One pod's turn with the sink (`syncPod` of the status manager).

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, PodStatus as ApiPodStatus};
use kubelet_core::{Clock, Error, PodExt, PodUid, Result, SinkPod, StatusSink};

use crate::equality::same;
use crate::merge::merge;
use crate::records::{Job, Outcome, Send, Task, is_mirror_of};
use crate::status_ext::{is_running, is_terminal, phase};
use crate::token_bucket::RateLimit;
use crate::transitions;

/// Does jobs.
pub(crate) struct Sender {
    pub(crate) sink: Box<dyn StatusSink>,
    pub(crate) limit: RateLimit,
    /// For each call of the sink.
    pub(crate) timeout: Duration,
    pub(crate) clock: Clock,
    /// The sink said so: of each pod it knows what it was told last.
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
            tracing::warn!(pod = %job.pod.key(), uid = %job.uid, %error, "status not sent, will be tried again");
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
                // A node that asks for what is not there is told that it may not.
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
        // A static pod is shown by its mirror, which has a UID of its own.
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
                "pod was deleted and made anew, status not sent"
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
        let may_run = !send.finished && any_container_runs(&send.status);
        let merged = Arc::new(merge(shown, old, &send.status, may_run, &self.clock.api_now()));
        let mut current = there.clone();
        // Of several sinks some may have taken what could not be sent: they know best what they lack.
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
            tracing::debug!(pod = %pod.key(), %uid, version = send.version, "status sent");
        }

        let shown = current.as_ref().unwrap_or(pod);
        // The pod that is known there may be older than the one that is to go.
        let deletable = (shown.is_deleting() || pod.is_deleting()) && !shown.is_mirror() && !pod.is_static();
        if deletable && send.finished && is_terminal(phase(&merged)) {
            let delete = self.sink.delete(shown);
            match current {
                Some(_) => self.request(uid, delete).await?,
                None => self.within_timeout(uid, delete).await?,
            }
            tracing::debug!(pod = %pod.key(), %uid, "pod has ended and was deleted");
            return Ok(Outcome::Gone);
        }
        Ok(Outcome::Sent(send.version, merged, current))
    }

    /// A call that asks something of a server: it keeps to the rate.
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
