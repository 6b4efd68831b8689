//! Pods of the runtime: begins them with their sandboxes, ends them, and finds those that ended by themselves.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use super::containers::gone_is_fine;
use super::records::SandboxEntry;
use super::{CriAdapter, Result, request};
use crate::error::Error;
use crate::v1::ContainerEventType as EventType;
use crate::verbs::{PodKey, Pods};

impl CriAdapter {
    /// Begins the pod of a new sandbox, and makes the sandbox ready. If that fails, the pod is ended and the sandbox is gone;
    /// if the end fails, too, or the call is dropped, a sandbox that is not ready stays, so that the kubelet ends the pod.
    pub(super) async fn begin_pod(
        &self,
        call: &'static str,
        pods: &dyn Pods,
        sandbox: &SandboxEntry,
    ) -> Result<()> {
        let _turn = sandbox.turn.lock().await;
        let attempt = BeginAttempt(sandbox);
        let records = self.records(call).await?;
        let spec = request::pod_spec(&sandbox.config);
        let begun = self.within(call, &sandbox.id, Duration::ZERO, pods.begin(&spec));
        let ready = match begun.await {
            Ok(_) => records
                .make_ready(sandbox)
                .map_err(|error| Error::internal(call, &sandbox.id, error.to_string())),
            Err(error) => Err(error),
        };
        if ready.is_err() && self.end(call, pods, sandbox).await.is_ok() {
            let removed = records.remove_sandbox(sandbox);
            removed.map_err(|error| Error::internal(call, &sandbox.id, error.to_string()))?;
        }
        drop(attempt);
        ready
    }

    /// Ends the pod of a stopped sandbox.
    pub(super) async fn end_pod(&self, call: &'static str, sandbox: &SandboxEntry) -> Result<()> {
        let Some(pods) = self.inner.runtime.pods() else {
            return Ok(());
        };
        let _turn = sandbox.turn.lock().await;
        self.end(call, pods, sandbox).await
    }

    /// The caller holds the sandbox's turn.
    async fn end(&self, call: &'static str, pods: &dyn Pods, sandbox: &SandboxEntry) -> Result<()> {
        let key = request::pod_key(&sandbox.config);
        gone_is_fine(
            self.within(call, &sandbox.id, Duration::ZERO, pods.end(&key))
                .await,
        )
    }

    /// All sandboxes. One whose pod ended by itself is not ready any more.
    pub(super) async fn sandboxes(&self, call: &'static str) -> Result<Vec<Arc<SandboxEntry>>> {
        let sandboxes = self.records(call).await?.sandboxes();
        let Some(pods) = self.inner.runtime.pods() else {
            return Ok(sandboxes);
        };
        // Read before the list: a pod that begins meanwhile may be missing in the list.
        let ready: Vec<_> = sandboxes.iter().filter(|sandbox| !sandbox.is_stopped()).collect();
        if ready.is_empty() {
            return Ok(sandboxes);
        }
        let list = self.within(call, "", Duration::ZERO, pods.list()).await?;
        let live: HashSet<PodKey> = list.into_iter().map(|pod| pod.key).collect();
        for sandbox in ready {
            let key = request::pod_key(&sandbox.config);
            if !live.contains(&key) {
                self.lost(call, sandbox, &key).await?;
            }
        }
        Ok(sandboxes)
    }

    /// The addresses of a sandbox that is not on the host's network. If its pod ended by itself, it is not ready any more.
    pub(super) async fn addresses(&self, call: &'static str, sandbox: &SandboxEntry) -> Result<Vec<String>> {
        let mut addresses = Vec::new();
        if let Some(pods) = self.inner.runtime.pods().filter(|_| !sandbox.is_stopped()) {
            let key = request::pod_key(&sandbox.config);
            let inspected = self.within(call, &sandbox.id, Duration::ZERO, pods.inspect(&key));
            match inspected.await {
                Ok(pod) => addresses = pod.addresses,
                Err(error) if error.is_not_found() => self.lost(call, sandbox, &key).await?,
                Err(error) => return Err(error),
            }
        }
        if addresses.is_empty() {
            return Ok(vec![self.inner.pod_ip.clone()]);
        }
        Ok(addresses.iter().map(ToString::to_string).collect())
    }

    /// The pod ended by itself, unless its sandbox was stopped meanwhile.
    async fn lost(&self, call: &'static str, sandbox: &SandboxEntry, key: &PodKey) -> Result<()> {
        let first = self.records(call).await?.stop_sandbox(sandbox);
        if first.map_err(|error| Error::internal(call, &sandbox.id, error.to_string()))? {
            tracing::warn!(uid = %key.uid, attempt = key.attempt, id = %sandbox.id,
                "the pod ended by itself: the runtime does not list it any more");
            self.changed(&sandbox.id, &sandbox.id, EventType::ContainerStoppedEvent);
        }
        Ok(())
    }
}

/// One try to begin a pod. When it is over, even if the call is dropped, the sandbox can be seen.
struct BeginAttempt<'a>(&'a SandboxEntry);

impl Drop for BeginAttempt<'_> {
    fn drop(&mut self) {
        self.0.begin_is_over();
    }
}
