//! What an answer with an error says of the volume.

use std::fmt;

use kubelet_plugins::grpc_go::code_name;
use tonic::{Code, Status};

/// A call to a driver that failed, printed as grpc-go prints it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CallError {
    pub(crate) code: Code,
    pub(crate) message: String,
}

impl CallError {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }

    /// No answer in time.
    pub(crate) fn deadline_exceeded() -> Self {
        Self::new(Code::DeadlineExceeded, "context deadline exceeded")
    }

    /// Whether the driver has ended the operation: it either did not begin or failed, and is not in progress
    /// (`isFinalError`).
    pub(crate) fn is_final(&self) -> bool {
        !matches!(
            self.code,
            Code::Cancelled
                | Code::DeadlineExceeded
                | Code::Unavailable
                | Code::ResourceExhausted
                | Code::Aborted
        )
    }

    /// Whether a volume can never be as requested (`isInfeasibleError`).
    pub(crate) fn is_infeasible(&self) -> bool {
        matches!(
            self.code,
            Code::InvalidArgument | Code::OutOfRange | Code::NotFound
        )
    }
}

impl From<Status> for CallError {
    /// An error that did not come from the driver, but from the connection to it, is `Unavailable`, as with grpc-go.
    fn from(status: Status) -> Self {
        use std::error::Error as _;

        match status.source() {
            Some(source) => Self::new(
                Code::Unavailable,
                format!("error reading from server: {}", innermost(source)),
            ),
            None => Self::new(status.code(), status.message()),
        }
    }
}

fn innermost(mut error: &(dyn std::error::Error + 'static)) -> String {
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "rpc error: code = {} desc = {}",
            code_name(self.code),
            self.message
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_codes_leave_open_what_happened() {
        let open: Vec<&str> = (0..17)
            .map(Code::from_i32)
            .filter(|code| !CallError::new(*code, "").is_final())
            .map(code_name)
            .collect();
        assert_eq!(
            open,
            [
                "Canceled",
                "DeadlineExceeded",
                "ResourceExhausted",
                "Aborted",
                "Unavailable"
            ]
        );
    }

    #[test]
    fn errors_are_printed_as_by_grpc_go() {
        let error = CallError::from(Status::cancelled("stopped"));
        assert_eq!(error.to_string(), "rpc error: code = Canceled desc = stopped");
    }
}
