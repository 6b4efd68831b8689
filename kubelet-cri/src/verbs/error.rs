//! The error of a verb, and its conversion to a CRI error.

use std::fmt;

use crate::error::{Code, Error};

/// The result of a verb.
pub type Result<T, E = RuntimeError> = std::result::Result<T, E>;

/// The error of a verb: its class, its object, and the cause.
///
/// ```
/// use kubelet_cri::verbs::{ContainerKey, ErrorClass, RuntimeError};
///
/// let key = ContainerKey::new("8a3f", "main", 0);
/// let error = RuntimeError::permanent(&key, "has no command");
/// assert_eq!(error.class, ErrorClass::Permanent);
/// assert_eq!(error.to_string(), r#"container "main" (attempt 0) of pod 8a3f: has no command"#);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeError {
    /// Whether another try can succeed.
    pub class: ErrorClass,
    /// The object: a container, an image, a file; empty for the runtime as a whole.
    pub about: String,
    /// The cause.
    pub message: String,
}

/// Whether another try can succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorClass {
    /// The same call may succeed later. CRI: `Unavailable`.
    Transient,
    /// A quota, a rate limit or the available space is exceeded. CRI: `ResourceExhausted`.
    Throttled,
    /// The request is invalid. CRI: `InvalidArgument`.
    Permanent,
    /// The object does not exist. CRI: `NotFound`; for stop and remove: success.
    Gone,
    /// The runtime does not support it. CRI: `Unimplemented`.
    Unsupported,
}

impl RuntimeError {
    /// An error of this class.
    pub fn new(class: ErrorClass, about: impl fmt::Display, message: impl Into<String>) -> Self {
        Self {
            class,
            about: about.to_string(),
            message: message.into(),
        }
    }

    /// An error of the class [`ErrorClass::Transient`].
    pub fn transient(about: impl fmt::Display, message: impl Into<String>) -> Self {
        Self::new(ErrorClass::Transient, about, message)
    }

    /// An error of the class [`ErrorClass::Throttled`].
    pub fn throttled(about: impl fmt::Display, message: impl Into<String>) -> Self {
        Self::new(ErrorClass::Throttled, about, message)
    }

    /// An error of the class [`ErrorClass::Permanent`].
    pub fn permanent(about: impl fmt::Display, message: impl Into<String>) -> Self {
        Self::new(ErrorClass::Permanent, about, message)
    }

    /// An error of the class [`ErrorClass::Gone`].
    pub fn gone(about: impl fmt::Display, message: impl Into<String>) -> Self {
        Self::new(ErrorClass::Gone, about, message)
    }

    /// An error of the class [`ErrorClass::Unsupported`].
    pub fn unsupported(about: impl fmt::Display, message: impl Into<String>) -> Self {
        Self::new(ErrorClass::Unsupported, about, message)
    }

    /// Converts it to the error of a CRI call about `id`.
    pub(crate) fn into_call(self, call: &'static str, id: &str) -> Error {
        let code = match self.class {
            ErrorClass::Transient => Code::Unavailable,
            ErrorClass::Throttled => Code::ResourceExhausted,
            ErrorClass::Permanent => Code::InvalidArgument,
            ErrorClass::Gone => Code::NotFound,
            ErrorClass::Unsupported => Code::Unimplemented,
        };
        Error::call(code, call, id, self.to_string())
    }
}

impl fmt::Display for RuntimeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.about.is_empty() {
            f.write_str(&self.message)
        } else {
            write!(f, "{}: {}", self.about, self.message)
        }
    }
}

impl std::error::Error for RuntimeError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_class_has_its_code() {
        for (class, code, transient) in [
            (ErrorClass::Transient, Code::Unavailable, true),
            (ErrorClass::Throttled, Code::ResourceExhausted, true),
            (ErrorClass::Permanent, Code::InvalidArgument, false),
            (ErrorClass::Gone, Code::NotFound, false),
            (ErrorClass::Unsupported, Code::Unimplemented, false),
        ] {
            let error = RuntimeError::new(class, "image x", "no").into_call("PullImage", "x");
            assert_eq!(
                error,
                Error::call(code, "PullImage", "x", "image x: no"),
                "{class:?}"
            );
            assert_eq!(error.is_transient(), transient, "{class:?}");
        }
        assert_eq!(RuntimeError::transient("", "busy").to_string(), "busy");
    }
}
