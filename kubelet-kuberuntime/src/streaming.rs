//! Runs commands in containers, and returns the URLs of streams: exec, attach, port-forward (`RunInContainer`,
//! `GetExec`, `GetAttach`, `GetPortForward`).

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kubelet_core::runtime::RuntimePod;
pub use kubelet_core::runtime::streaming::StreamOptions;
use kubelet_core::{PodExt, PodKey, labels};

use crate::containers;
use crate::containers::back_off::go_seconds;
use crate::read::Listing;
use crate::runtime::CriRuntime;
use kubelet_cri::verbs::ExecOutput;
use kubelet_cri::{Code, Error, v1};

fn check(mut streams: StreamOptions, call: &'static str) -> Result<StreamOptions, Error> {
    if !(streams.stdin || streams.stdout || streams.stderr) {
        let message = "you must specify at least 1 of stdin, stdout, stderr";
        return Err(Error::invalid_argument(call, "", message));
    }
    streams.stderr &= !streams.tty;
    Ok(streams)
}

/// The runtime runs commands and serves streams. These methods return its results and URLs. They find a pod by its
/// name, and a container by its name among the running ones.
///
/// All of them may be dropped at any time. If the pod does not exist or the container is not running, the error is
/// [`Error::Call`] with [`Code::NotFound`] and the kubelet's [`message`](Error::message). Otherwise it is the runtime's
/// error.
impl CriRuntime {
    /// Runs a command in a container to its end, and returns its output and exit code. `timeout` is rounded up to whole
    /// seconds; zero means no timeout.
    ///
    /// # Errors
    ///
    /// [`Code::DeadlineExceeded`] after the timeout; the runtime has then killed the command. The output must fit into
    /// one answer of the runtime: 16 MiB, less the rest of the message.
    pub async fn run_in_container(
        &self,
        pod: &PodKey,
        container: &str,
        command: &[String],
        timeout: Duration,
    ) -> Result<ExecOutput, Error> {
        const CALL: &str = "ExecSync";
        let id = self.find_container(CALL, pod, container).await?;
        let id = id.ok_or_else(|| not_found(CALL, pod, format!("container not found ({container:?})")))?;
        let seconds = timeout.as_secs() + u64::from(timeout.subsec_nanos() > 0);
        let request = v1::ExecSyncRequest {
            container_id: id.clone(),
            cmd: command.to_vec(),
            timeout: i64::try_from(seconds).unwrap_or(i64::MAX),
        };
        match self.runtime.exec_sync(request).await {
            Ok(response) => Ok(ExecOutput {
                stdout: response.stdout,
                stderr: response.stderr,
                exit_code: response.exit_code,
            }),
            Err(error) if error.is_timeout() => {
                let (command, after) = (command.join(" "), go_seconds(timeout));
                let message = format!("command timed out: {command:?} timed out after {after}");
                Err(Error::call(Code::DeadlineExceeded, CALL, id, message))
            }
            Err(error) => Err(error),
        }
    }

    /// The URL at which the runtime serves the streams of a command in a container.
    ///
    /// # Errors
    ///
    /// Also [`Code::InvalidArgument`] if no stream is requested.
    pub async fn exec_url(
        &self,
        pod: &PodKey,
        container: &str,
        command: &[String],
        streams: StreamOptions,
    ) -> Result<String, Error> {
        const CALL: &str = "Exec";
        let streams = check(streams, CALL)?;
        let id = self.find_container(CALL, pod, container).await?;
        let id = id.ok_or_else(|| not_found(CALL, pod, format!("container not found ({container:?})")))?;
        let request = v1::ExecRequest {
            container_id: id.clone(),
            cmd: command.to_vec(),
            tty: streams.tty,
            stdin: streams.stdin,
            stdout: streams.stdout,
            stderr: streams.stderr,
        };
        served(CALL, id, self.runtime.exec(request).await?.url)
    }

    /// The URL at which the runtime serves the streams of a container. The pod's spec decides whether it has a
    /// terminal.
    ///
    /// # Errors
    ///
    /// Also [`Code::InvalidArgument`] if no stream is requested.
    pub async fn attach_url(
        &self,
        pod: &Pod,
        container: &str,
        streams: StreamOptions,
    ) -> Result<String, Error> {
        const CALL: &str = "Attach";
        let key = pod.key();
        let missing = || {
            not_found(
                CALL,
                &key,
                format!("container {container} not found in pod {}", key.full_name()),
            )
        };
        let id = self
            .find_container(CALL, &key, container)
            .await?
            .ok_or_else(missing)?;
        let (_, spec) = containers::find(pod, container).ok_or_else(missing)?;
        let tty = spec.tty.unwrap_or(false);
        let streams = check(StreamOptions { tty, ..streams }, CALL)?;
        let request = v1::AttachRequest {
            container_id: id.clone(),
            tty: streams.tty,
            stdin: streams.stdin,
            stdout: streams.stdout,
            stderr: streams.stderr,
        };
        served(CALL, id, self.runtime.attach(request).await?.url)
    }

    /// The URL at which the runtime forwards ports of a pod. Without ports, the client requests them over the stream.
    ///
    /// # Errors
    ///
    /// Those of the other methods.
    pub async fn port_forward_url(&self, pod: &PodKey, ports: &[u16]) -> Result<String, Error> {
        const CALL: &str = "PortForward";
        let found = self.find_pod(CALL, pod).await?.filter(|found| !found.is_empty());
        let found =
            found.ok_or_else(|| not_found(CALL, pod, format!("pod not found ({:?})", pod.full_name())))?;
        let listing = Listing {
            uid: Some(&found.uid),
            ..Listing::default()
        };
        let whose = format!("{}({})", pod.full_name(), found.uid);
        let sandboxes = self.list_sandboxes(listing).await.map_err(|error| {
            let error = cri_error(CALL, error);
            let message = format!("failed to find sandboxID for pod {whose}: {}", error.message());
            Error::call(error.code(), CALL, "", message)
        })?;
        let newest = sandboxes.into_iter().next();
        let newest = newest
            .ok_or_else(|| not_found(CALL, pod, format!("failed to find sandboxID for pod {whose}")))?;
        let request = v1::PortForwardRequest {
            pod_sandbox_id: newest.id.clone(),
            port: ports.iter().map(|port| i32::from(*port)).collect(),
        };
        served(CALL, newest.id, self.runtime.port_forward(request).await?.url)
    }

    async fn find_pod(&self, call: &'static str, pod: &PodKey) -> Result<Option<Arc<RuntimePod>>, Error> {
        let listing = Listing {
            pod: Some(pod),
            running_only: true,
            ..Listing::default()
        };
        let pods = self
            .list_pods(listing)
            .await
            .map_err(|error| cri_error(call, error))?;
        Ok(pods.into_iter().find(|found| found.key == *pod))
    }

    /// The id of a running container (`findContainer`). The kubelet lists all pods for it.
    pub(crate) async fn find_container(
        &self,
        call: &'static str,
        pod: &PodKey,
        container: &str,
    ) -> Result<Option<String>, Error> {
        let listing = Listing {
            pod: Some(pod),
            container: Some(container),
            running_only: true,
            ..Listing::default()
        };
        let listed = self.list_containers(listing).await;
        let listed = listed.map_err(|error| cri_error(call, error))?;
        let is_meant = |found: &v1::Container| {
            let has = |label, value: &str| found.labels.get(label).is_some_and(|it| it == value);
            has(labels::POD_NAME, &pod.name)
                && has(labels::POD_NAMESPACE, &pod.namespace)
                && has(labels::CONTAINER_NAME, container)
                && found.state() == v1::ContainerState::ContainerRunning
        };
        let newest = listed
            .into_iter()
            .filter(is_meant)
            .max_by_key(|found| found.created_at);
        Ok(newest.map(|found| found.id))
    }
}

fn not_found(call: &'static str, pod: &PodKey, message: String) -> Error {
    Error::call(Code::NotFound, call, pod.to_string(), message)
}

fn served(call: &'static str, id: String, url: String) -> Result<String, Error> {
    if url.is_empty() {
        let message = "URL is not set".to_owned();
        return Err(Error::InvalidResponse { call, id, message });
    }
    Ok(url)
}

/// Converts the error of a list of this manager.
pub(crate) fn cri_error(call: &'static str, error: kubelet_core::Error) -> Error {
    match &error {
        kubelet_core::Error::Runtime { source, .. } => source.downcast_ref::<Error>().cloned(),
        _ => None,
    }
    .unwrap_or_else(|| Error::internal(call, "", error.to_string()))
}
