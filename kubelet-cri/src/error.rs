//! The error of the crate, and the gRPC codes.

use std::fmt;
use std::time::Duration;

use kubelet_core::runtime::streaming::StreamErrorKind;

/// Why a CRI call failed, or why it could not be made.
///
/// Your own runtime returns [`Error::call`] or one of the short forms ([`Error::not_found`], …). The client returns
/// what the runtime answered, with the name of the call and the id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The runtime answered with an error.
    #[error("{call}{}: {code}: {message}", About(id))]
    Call {
        /// The gRPC code.
        code: Code,
        /// The call by its name in the protocol, such as `RunPodSandbox`.
        call: &'static str,
        /// The sandbox, container or image of the call; empty for a call about the whole runtime.
        id: String,
        /// The message of the runtime.
        message: String,
    },

    /// The runtime did not answer within the client's deadline.
    #[error("{call}{}: no answer within {after:?}", About(id))]
    Timeout {
        /// The call by its name in the protocol.
        call: &'static str,
        /// The sandbox, container or image of the call.
        id: String,
        /// The deadline.
        after: Duration,
    },

    /// The answer of the runtime is invalid, such as a sandbox without an id.
    #[error("{call}{}: invalid answer of the runtime: {message}", About(id))]
    InvalidResponse {
        /// The call by its name in the protocol.
        call: &'static str,
        /// The sandbox, container or image of the call.
        id: String,
        /// What is wrong with it.
        message: String,
    },

    /// The endpoint is neither `unix:///path`, nor an absolute path, nor `tcp://host:port`.
    #[error("invalid runtime endpoint {endpoint:?}: {message}")]
    InvalidEndpoint {
        /// The endpoint as given.
        endpoint: String,
        /// What is wrong with it.
        message: String,
    },

    /// The runtime could not be reached.
    #[error("connect to the runtime at {endpoint}: {message}")]
    Connect {
        /// The endpoint.
        endpoint: String,
        /// Why.
        message: String,
    },

    /// The runtime does not speak CRI v1.
    #[error("the runtime at {endpoint} does not speak CRI v1: {message}")]
    UnsupportedVersion {
        /// The endpoint.
        endpoint: String,
        /// The version that it speaks, or the error that it answered.
        message: String,
    },

    /// The server cannot listen on its socket.
    #[error("serve CRI on {socket}: {message}")]
    Serve {
        /// Path of the socket.
        socket: String,
        /// Why.
        message: String,
    },
}

impl Error {
    /// An error that a runtime answers to `call` about `id`.
    pub fn call(code: Code, call: &'static str, id: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Call {
            code,
            call,
            id: id.into(),
            message: message.into(),
        }
    }

    /// There is no sandbox, container or image `id`.
    pub fn not_found(call: &'static str, id: impl Into<String>) -> Self {
        let id = id.into();
        let message = format!("{id:?} not found");
        Self::call(Code::NotFound, call, id, message)
    }

    /// The runtime does not implement `call`.
    pub fn unimplemented(call: &'static str) -> Self {
        Self::call(
            Code::Unimplemented,
            call,
            "",
            format!("the runtime does not implement {call}"),
        )
    }

    /// The request is invalid in any state of the runtime.
    pub fn invalid_argument(call: &'static str, id: impl Into<String>, message: impl Into<String>) -> Self {
        Self::call(Code::InvalidArgument, call, id, message)
    }

    /// The request is valid, but not in the present state of `id`.
    pub fn failed_precondition(
        call: &'static str,
        id: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self::call(Code::FailedPrecondition, call, id, message)
    }

    /// The runtime failed.
    pub fn internal(call: &'static str, id: impl Into<String>, message: impl Into<String>) -> Self {
        Self::call(Code::Internal, call, id, message)
    }

    /// The gRPC code. An error of the client itself has the code that gRPC would give it.
    pub fn code(&self) -> Code {
        match self {
            Self::Call { code, .. } => *code,
            Self::Timeout { .. } => Code::DeadlineExceeded,
            Self::InvalidResponse { .. } => Code::Internal,
            Self::InvalidEndpoint { .. } => Code::InvalidArgument,
            Self::Connect { .. } | Self::Serve { .. } => Code::Unavailable,
            Self::UnsupportedVersion { .. } => Code::Unimplemented,
        }
    }

    /// The message, without the call, the id and the code.
    pub fn message(&self) -> String {
        match self {
            Self::Call { message, .. } => message.clone(),
            other => other.to_string(),
        }
    }

    /// The wording of grpc-go, which the kubelet puts into events and conditions:
    /// `rpc error: code = NotFound desc = …`.
    pub fn rpc_text(&self) -> String {
        format!("rpc error: code = {} desc = {}", self.code(), self.message())
    }

    /// The call that failed, if the error is about a call.
    pub fn call_name(&self) -> Option<&'static str> {
        match self {
            Self::Call { call, .. } | Self::Timeout { call, .. } | Self::InvalidResponse { call, .. } => {
                Some(call)
            }
            _ => None,
        }
    }

    /// The sandbox, container or image of the call, if known.
    pub fn id(&self) -> Option<&str> {
        match self {
            Self::Call { id, .. } | Self::Timeout { id, .. } | Self::InvalidResponse { id, .. } => {
                Some(id.as_str()).filter(|id| !id.is_empty())
            }
            _ => None,
        }
    }

    /// The sandbox, container or image does not exist. For stop and remove this counts as success.
    pub fn is_not_found(&self) -> bool {
        self.code() == Code::NotFound
    }

    /// The runtime does not implement this call.
    pub fn is_unimplemented(&self) -> bool {
        self.code() == Code::Unimplemented
    }

    /// The deadline passed, in the client or in the runtime. The runtime may have done the work or not.
    pub fn is_timeout(&self) -> bool {
        self.code() == Code::DeadlineExceeded
    }

    /// The same call may succeed later, because the runtime is away, busy or slow.
    pub fn is_transient(&self) -> bool {
        matches!(
            self.code(),
            Code::Unavailable
                | Code::DeadlineExceeded
                | Code::Aborted
                | Code::ResourceExhausted
                | Code::Canceled
        )
    }

    /// The same error for another call and id. Use it in a runtime that calls another runtime.
    #[must_use]
    pub fn about(self, new_call: &'static str, new_id: impl Into<String>) -> Self {
        match self {
            Self::Call { code, message, .. } => Self::call(code, new_call, new_id, message),
            Self::Timeout { after, .. } => Self::Timeout {
                call: new_call,
                id: new_id.into(),
                after,
            },
            Self::InvalidResponse { message, .. } => Self::InvalidResponse {
                call: new_call,
                id: new_id.into(),
                message,
            },
            other => other,
        }
    }
}

/// ` "<id>"`, or nothing.
struct About<'a>(&'a str);

impl fmt::Display for About<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            Ok(())
        } else {
            write!(f, " {:?}", self.0)
        }
    }
}

/// A gRPC status code. It prints as in grpc-go and in the kubelet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(i32)]
#[non_exhaustive]
pub enum Code {
    /// Success. A correct runtime never returns it in an error.
    Ok = 0,
    /// The caller cancelled the call.
    Canceled = 1,
    /// Unknown. Runtimes use it for many errors.
    Unknown = 2,
    /// The request is invalid in any state.
    InvalidArgument = 3,
    /// The deadline passed.
    DeadlineExceeded = 4,
    /// It does not exist.
    NotFound = 5,
    /// It exists already.
    AlreadyExists = 6,
    /// Permission denied.
    PermissionDenied = 7,
    /// A quota, the memory or the message size is exceeded.
    ResourceExhausted = 8,
    /// The state does not allow it.
    FailedPrecondition = 9,
    /// A conflict; try again.
    Aborted = 10,
    /// Out of range.
    OutOfRange = 11,
    /// Not implemented.
    Unimplemented = 12,
    /// The runtime is broken.
    Internal = 13,
    /// The runtime is away.
    Unavailable = 14,
    /// Data is lost.
    DataLoss = 15,
    /// The caller is not authenticated.
    Unauthenticated = 16,
}

impl Code {
    /// All codes, by number.
    pub const ALL: [Self; 17] = [
        Self::Ok,
        Self::Canceled,
        Self::Unknown,
        Self::InvalidArgument,
        Self::DeadlineExceeded,
        Self::NotFound,
        Self::AlreadyExists,
        Self::PermissionDenied,
        Self::ResourceExhausted,
        Self::FailedPrecondition,
        Self::Aborted,
        Self::OutOfRange,
        Self::Unimplemented,
        Self::Internal,
        Self::Unavailable,
        Self::DataLoss,
        Self::Unauthenticated,
    ];
}

/// A number that gRPC does not define is [`Code::Unknown`].
impl From<i32> for Code {
    fn from(number: i32) -> Self {
        usize::try_from(number)
            .ok()
            .and_then(|n| Self::ALL.get(n).copied())
            .unwrap_or(Self::Unknown)
    }
}

impl From<Code> for i32 {
    fn from(code: Code) -> Self {
        code as i32
    }
}

/// The kind of an error of a runtime that was asked for streams. Other codes are [`StreamErrorKind::Other`].
impl From<Code> for StreamErrorKind {
    fn from(code: Code) -> Self {
        match code {
            Code::NotFound => Self::NotFound,
            Code::InvalidArgument => Self::InvalidArgument,
            Code::ResourceExhausted => Self::ResourceExhausted,
            Code::Unimplemented => Self::Unimplemented,
            Code::DeadlineExceeded => Self::DeadlineExceeded,
            _ => Self::Other,
        }
    }
}

/// The code of the kind; [`Code::Unknown`] for other failures.
impl From<StreamErrorKind> for Code {
    fn from(kind: StreamErrorKind) -> Self {
        match kind {
            StreamErrorKind::NotFound => Self::NotFound,
            StreamErrorKind::InvalidArgument => Self::InvalidArgument,
            StreamErrorKind::ResourceExhausted => Self::ResourceExhausted,
            StreamErrorKind::Unimplemented => Self::Unimplemented,
            StreamErrorKind::DeadlineExceeded => Self::DeadlineExceeded,
            _ => Self::Unknown,
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ok => f.write_str("OK"),
            code => fmt::Debug::fmt(code, f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_keep_their_numbers() {
        for (number, code) in Code::ALL.into_iter().enumerate() {
            assert_eq!(i32::from(code), number as i32);
            assert_eq!(Code::from(number as i32), code);
        }
        assert_eq!(Code::from(17), Code::Unknown);
        assert_eq!(Code::from(-1), Code::Unknown);
    }

    #[test]
    fn texts_name_what_it_was_about() {
        let error = Error::call(Code::NotFound, "StopContainer", "abc", "no such container");
        assert_eq!(
            error.to_string(),
            r#"StopContainer "abc": NotFound: no such container"#
        );
        assert_eq!(
            error.rpc_text(),
            "rpc error: code = NotFound desc = no such container"
        );
        let error = Error::Timeout {
            call: "Status",
            id: String::new(),
            after: Duration::from_secs(120),
        };
        assert_eq!(error.to_string(), "Status: no answer within 120s");
        assert!(error.is_timeout() && error.is_transient() && error.id().is_none());
    }
}
