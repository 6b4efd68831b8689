//! How a command ended, as its client reads it from the error stream.

use kubelet_core::runtime::streaming::{CommandKind, StreamError};
use serde::{Deserialize, Serialize};

/// How a command ended, as a `metav1.Status`.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Status {
    metadata: Empty,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) status: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) message: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) reason: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<Details>,
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) code: u16,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Empty {}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Details {
    causes: Vec<Cause>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Cause {
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
    message: String,
}

fn is_zero(code: &u16) -> bool {
    *code == 0
}

impl Status {
    /// The status of a command that ended.
    pub(super) fn of(result: &Result<i32, StreamError>, failure: &str, command: &[String]) -> Self {
        match result {
            Ok(0) => Self {
                status: "Success".to_owned(),
                ..Self::default()
            },
            Ok(code) => {
                let inner = if command.is_empty() {
                    format!("command terminated with exit code {code}")
                } else {
                    format!(
                        "error executing command [{}], exit code {code}",
                        command.join(" ")
                    )
                };
                Self {
                    status: "Failure".to_owned(),
                    message: format!("command terminated with non-zero exit code: {inner}"),
                    reason: "NonZeroExitCode".to_owned(),
                    details: cause("ExitCode", code.to_string()),
                    ..Self::default()
                }
            }
            Err(error) => {
                let message = format!("{failure}{error}");
                Self {
                    status: "Failure".to_owned(),
                    message: format!("Internal error occurred: {message}"),
                    reason: "InternalError".to_owned(),
                    details: cause("", message),
                    code: 500,
                    ..Self::default()
                }
            }
        }
    }

    /// Reads what the other end wrote to the error stream.
    pub(super) fn into_result(self) -> Result<i32, StreamError> {
        if self.status == "Success" {
            return Ok(0);
        }
        if self.reason != "NonZeroExitCode" {
            return Err(StreamError::other(self.message));
        }
        let causes = self.details.map(|d| d.causes).unwrap_or_default();
        let code = causes.iter().find(|cause| cause.reason == "ExitCode");
        let code = code.and_then(|cause| cause.message.parse::<u8>().ok());
        code.map(i32::from)
            .ok_or_else(|| StreamError::other("error stream protocol error: no exit code given"))
    }

    /// The bytes for the error stream: since the fourth version of the protocol, JSON; before, the message of a failure.
    pub(super) fn bytes(&self, json: bool) -> Vec<u8> {
        if !json {
            return self.message.clone().into_bytes();
        }
        let text = serde_json::to_string(self).unwrap_or_default();
        // As Go's encoder does. In JSON, these characters stand only in strings.
        text.replace('<', "\\u003c")
            .replace('>', "\\u003e")
            .replace('&', "\\u0026")
            .into_bytes()
    }
}

fn cause(reason: &str, message: String) -> Option<Details> {
    Some(Details {
        causes: vec![Cause {
            reason: reason.to_owned(),
            message,
        }],
    })
}

/// What stands before the runtime's error in the message for the client.
pub(super) fn failure(kind: CommandKind) -> &'static str {
    match kind {
        CommandKind::Exec => "error executing command in container: ",
        CommandKind::Attach => "error attaching to container: ",
    }
}
