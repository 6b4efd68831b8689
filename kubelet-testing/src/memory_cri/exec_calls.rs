//! Commands in containers, and streaming URLs.

use std::future::pending;
use std::time::Duration;

use kubelet_core::runtime::streaming::{StreamError, StreamingServer};
use kubelet_cri::{Code, Error, v1};
use tokio::time::{Instant, sleep};

use super::exec::{ExecReply, ExecScript};
use super::random::hex64;
use super::streams::Streaming;
use super::{Call, MemoryCri};

type Result<T> = std::result::Result<T, Error>;

impl MemoryCri {
    pub(super) async fn exec_in(&self, request: &v1::ExecSyncRequest) -> Result<v1::ExecSyncResponse> {
        let call = Call::ExecSync;
        let (id, command) = (&request.container_id, &request.cmd);
        let failed = |code, message: String| Error::call(code, call.name(), id, message);
        let (number, reply, exec_id) = {
            let mut state = self.settled(Instant::now());
            let number = self.find(&state, call.name(), id, |id| {
                format!("failed to exec in container: failed to find container {id:?} in store: ")
            })?;
            let Some(container) = state.containers.get(number) else {
                return Err(Error::not_found(call.name(), id));
            };
            if !container.is_running() {
                let message = format!(
                    "failed to exec in container: container is in {} state",
                    container.state().as_str_name()
                );
                return Err(failed(Code::Unknown, message));
            }
            let planned = container.planned.clone();
            let exec_id = state.next_id();
            (
                number,
                ExecScript::reply(&mut state.execs, &planned, command),
                exec_id,
            )
        };
        self.latency(call).await;
        let impossible = match command.first() {
            None => Some("args must not be empty".to_owned()),
            Some(program) if reply.not_found => Some(format!(
                "unable to start container process: exec: {program:?}: executable file not found in $PATH"
            )),
            Some(_) => None,
        };
        if let Some(why) = impossible {
            let exec_id = exec_id.text();
            let message = format!(
                "failed to exec in container: failed to start exec {exec_id:?}: OCI runtime exec failed: \
                 exec failed: {why}: unknown"
            );
            return Err(failed(Code::Unknown, message));
        }
        let limit = u64::try_from(request.timeout).ok().filter(|seconds| *seconds > 0);
        let limit = limit.map(Duration::from_secs);
        let out_of_time = async {
            match limit {
                Some(limit) => sleep(limit).await,
                None => pending().await,
            }
        };
        let ended = async {
            match reply.takes {
                Some(takes) if takes.is_zero() => {}
                Some(takes) => sleep(takes).await,
                None => pending().await,
            }
        };
        tokio::select! {
            biased;
            () = ended => Ok(answer(reply)),
            // It was killed with its container.
            () = self.wait_for_end(number) => Ok(answer(ExecReply { code: 137, ..reply })),
            () = out_of_time => {
                let message = format!(
                    "failed to exec in container: timeout {}s exceeded: context deadline exceeded",
                    request.timeout
                );
                Err(failed(Code::DeadlineExceeded, message))
            }
        }
    }

    /// Waits until a container has ended.
    pub(super) async fn container_end(&self, id: &str) -> Result<()> {
        let call = Call::Attach;
        let number = self.find(&self.settled(Instant::now()), call.name(), id, |id| {
            format!("failed to find container {id:?} in store: ")
        })?;
        self.wait_for_end(number).await;
        Ok(())
    }

    /// The streaming URL for a running container or a sandbox.
    pub(super) fn stream_url(
        &self,
        call: Call,
        path: &str,
        id: &str,
        offer: impl FnOnce(&dyn StreamingServer) -> std::result::Result<String, StreamError>,
    ) -> Result<String> {
        let state = self.settled(Instant::now());
        if call == Call::PortForward {
            state.sandboxes.find(id).map_err(|missing| {
                let message = format!("failed to find sandbox {id:?}: {missing}");
                Error::call(missing.code(), call.name(), id, message)
            })?;
        } else {
            let number = self.find(&state, call.name(), id, |id| {
                format!("failed to find container {id:?} in store: ")
            })?;
            let container = state.containers.get(number);
            if let Some(container) = container.filter(|container| !container.is_running()) {
                let message = format!("container is in {} state", container.state().as_str_name());
                return Err(Error::call(Code::Unknown, call.name(), id, message));
            }
        }
        drop(state);
        let base = match &self.inner.streaming {
            Some(Streaming::At(base)) => base,
            Some(Streaming::By(server)) => {
                let url = offer(&**server);
                return url.map_err(|error| Error::call(Code::Unknown, call.name(), id, error.message));
            }
            None => {
                let message = format!("the runtime in memory has no streams: {call} leads nowhere");
                return Err(Error::call(Code::Unimplemented, call.name(), id, message));
            }
        };
        let mut state = self.inner.state.lock();
        state.ids += 1;
        let token = hex64(state.seed, format_args!("stream {}", state.ids));
        Ok(format!("{base}/{path}/{}", &token[..8]))
    }
}

fn answer(reply: ExecReply) -> v1::ExecSyncResponse {
    v1::ExecSyncResponse {
        stdout: reply.stdout,
        stderr: reply.stderr,
        exit_code: reply.code,
    }
}
