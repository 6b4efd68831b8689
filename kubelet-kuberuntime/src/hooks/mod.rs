//! Life cycle hooks: run after a container has started and before it is stopped (`lifecycle.handlerRunner`).

#[cfg(feature = "probes")]
mod http;

use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, LifecycleHandler, Pod};

use crate::containers::describe;
use crate::runtime::CriRuntime;
use kubelet_cri::v1;

impl CriRuntime {
    /// Runs a hook to its end; the error is the message for the container's state.
    ///
    /// # Cancel safety
    ///
    /// May be dropped; a command then continues in its container.
    pub(crate) async fn run_hook(
        &self,
        pod: &Pod,
        container: &Container,
        id: &str,
        hook: &LifecycleHandler,
    ) -> Result<(), String> {
        let whose = || format!("for Container {:?} in Pod {:?}", container.name, describe(pod));
        if let Some(exec) = &hook.exec {
            let command = exec.command.clone().unwrap_or_default();
            self.exec_hook(id, &command).await.map_err(|(error, output)| {
                let command = command.join(" ");
                let whose = whose();
                format!(
                    "Exec lifecycle hook ([{command}]) {whose} failed - error: {error}, message: {output:?}"
                )
            })
        } else if let Some(sleep) = &hook.sleep {
            let seconds = u64::try_from(sleep.seconds).unwrap_or_default();
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            Ok(())
        } else if let Some(http) = &hook.http_get {
            #[cfg(feature = "probes")]
            let called = self.http_hook(pod, container, http).await;
            #[cfg(not(feature = "probes"))]
            let called: Result<(), String> = Err(
                "HTTP hooks are not supported: this program is built without the feature probes".to_owned(),
            );
            called.map_err(|error| {
                let path = http.path.as_deref().unwrap_or_default();
                let whose = whose();
                format!("HTTP lifecycle hook ({path}) {whose} failed - error: {error}")
            })
        } else {
            Err(format!("Cannot run handler: invalid handler: {hook:?}"))
        }
    }

    /// The error and the output of the command.
    async fn exec_hook(&self, id: &str, command: &[String]) -> Result<(), (String, String)> {
        let request = v1::ExecSyncRequest {
            container_id: id.to_owned(),
            cmd: command.to_vec(),
            timeout: 0,
        };
        let response = self
            .runtime
            .exec_sync(request)
            .await
            .map_err(|error| (error.rpc_text(), String::new()))?;
        if response.exit_code == 0 {
            return Ok(());
        }
        let stderr = String::from_utf8_lossy(&response.stderr);
        let error = format!(
            "command '{}' exited with {}: {stderr}",
            command.join(" "),
            response.exit_code
        );
        let output = format!("{}{stderr}", String::from_utf8_lossy(&response.stdout));
        Err((error, output))
    }
}
