//! Runs the programs of the host.

use std::process::Stdio;

use tokio::process::Command;

use crate::{Error, Result};

/// Runs a program to its end and returns its output.
pub(super) async fn output(command: &mut Command) -> Result<String> {
    let result = command.stdin(Stdio::null()).kill_on_drop(true).output().await;
    let name = || {
        let command = command.as_std();
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        words
            .map(|word| word.to_string_lossy())
            .collect::<Vec<_>>()
            .join(" ")
    };
    match result {
        Ok(output) if output.status.success() => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        Ok(output) => Err(Error::Command {
            command: name(),
            message: format!(
                "{}: {}",
                output.status,
                String::from_utf8_lossy(&output.stderr).trim()
            ),
        }),
        Err(error) => Err(Error::Command {
            command: name(),
            message: error.to_string(),
        }),
    }
}
