//! Programs of the host that work on file systems.

use std::io;
use std::process::{ExitStatus, Stdio};

use tokio::process::Command;

use super::path_error::reason;

/// How a program ended.
pub(crate) struct Ended {
    status: ExitStatus,
    /// Both its outputs.
    pub(crate) output: String,
}

impl Ended {
    /// It ended without an error.
    pub(crate) fn is_success(&self) -> bool {
        self.status.success()
    }

    /// Its exit code; `None` if a signal ended it.
    pub(crate) fn code(&self) -> Option<i32> {
        self.status.code()
    }

    /// `exit status 32`
    pub(crate) fn text(&self) -> String {
        match self.status.code() {
            Some(code) => format!("exit status {code}"),
            None => "signal: killed".to_owned(),
        }
    }
}

/// Runs a program to its end. The error says why it cannot be started.
///
/// # Cancel safety
///
/// When the future is dropped, the program runs on.
pub(crate) async fn run(program: &str, arguments: &[&str]) -> Result<Ended, String> {
    let mut command = Command::new(program);
    let running = command.args(arguments).stdin(Stdio::null()).output().await;
    match running {
        Ok(ended) => {
            let output = [ended.stdout, ended.stderr].concat();
            Ok(Ended {
                status: ended.status,
                output: String::from_utf8_lossy(&output).into_owned(),
            })
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(format!("exec: {program:?}: executable file not found in $PATH"))
        }
        Err(error) => Err(reason(&error)),
    }
}
