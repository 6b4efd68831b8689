//! Exec probes: commands in containers (`pkg/probe/exec`).

use std::borrow::Cow;

use k8s_openapi::api::core::v1::{Container, ExecAction};
use kubelet_core::{ProbeOutcome, ProbeTarget};

use crate::config::expansion::{expand, reference};
use crate::containers::back_off::go_seconds;
use kubelet_cri::{Code, RuntimeService, v1};

/// How much of a command's output is reported (`maxReadLength`).
const MAX_READ_LENGTH: usize = 10 << 10;

pub(super) async fn probe(
    runtime: &dyn RuntimeService,
    action: &ExecAction,
    target: &ProbeTarget,
) -> ProbeOutcome {
    let command = command(action, target.container());
    let timeout = target.timeout();
    let request = v1::ExecSyncRequest {
        container_id: target.container_id.id().to_owned(),
        cmd: command.clone(),
        timeout: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
    };
    match runtime.exec_sync(request).await {
        Ok(response) if response.exit_code == 0 => ProbeOutcome::Success,
        Ok(response) => {
            let mut output = response.stdout;
            output.extend(response.stderr);
            output.truncate(MAX_READ_LENGTH);
            ProbeOutcome::failure(String::from_utf8_lossy(&output))
        }
        Err(error) if error.code() == Code::DeadlineExceeded => {
            let (command, after) = (command.join(" "), go_seconds(timeout));
            ProbeOutcome::failure(format!("command timed out: {command:?} timed out after {after}"))
        }
        Err(error) => ProbeOutcome::unknown(error.rpc_text()),
    }
}

/// Replaces `$(VAR)` by the values in the container's spec (`ExpandContainerCommandOnlyStatic`).
fn command(action: &ExecAction, container: Option<&Container>) -> Vec<String> {
    let variables = container
        .and_then(|container| container.env.as_deref())
        .unwrap_or_default();
    let words = action.command.iter().flatten();
    words
        .map(|word| {
            expand(word, |name| {
                match variables.iter().rfind(|variable| variable.name == name) {
                    Some(variable) => Cow::Borrowed(variable.value.as_deref().unwrap_or_default()),
                    None => reference(name),
                }
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn commands_see_the_values_of_the_spec_only() {
        let action =
            serde_json::from_value(json!({"command": ["echo", "$(A)-$(B)", "$(REF)", "$(C)", "$$(A)"]}))
                .unwrap();
        let container = json!({"name": "c", "env": [{"name": "A", "value": "0"}, {"name": "A", "value": "1"},
            {"name": "B", "value": "x"}, {"name": "REF", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]});
        let container: Container = serde_json::from_value(container).unwrap();
        assert_eq!(
            command(&action, Some(&container)),
            ["echo", "1-x", "", "$(C)", "$(A)"]
        );
    }
}
