//! How a verb fails, and what CRI makes of it.

use std::fmt;

use crate::error::{Code, Error};

/// What a verb gives.
pub type Result<T, E = RuntimeError> = std::result::Result<T, E>;

/// A verb failed: which way, about what, and why.
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
    /// What is to be expected of another try.
    pub class: ErrorClass,
    /// What it was about: a container, an image, a file; empty for the runtime as a whole.
    pub about: String,
    /// Why.
    pub message: String,
}

/// What is to be expected of another try.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorClass {
    /// It may work later without anything being changed. CRI: `Unavailable`.
    Transient,
    /// It will work when less is asked for: a quota, a rate limit, no room. CRI: `ResourceExhausted`.
    Throttled,
    /// It will not work until the request is changed. CRI: `InvalidArgument`.
    Permanent,
    /// What it was about is not there. CRI: `NotFound`; for stop and remove: success.
    Gone,
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

    /// It may work later.
    pub fn transient(about: impl fmt::Display, message: impl Into<String>) -> Self {
        Self::new(ErrorClass::Transient, about, message)
    }

    /// Too much was asked for.
    pub fn throttled(about: impl fmt::Display, message: impl Into<String>) -> Self {
        Self::new(ErrorClass::Throttled, about, message)
    }

    /// It will not work as it stands.
    pub fn permanent(about: impl fmt::Display, message: impl Into<String>) -> Self {
        Self::new(ErrorClass::Permanent, about, message)
    }

    /// It is not there.
    pub fn gone(about: impl fmt::Display, message: impl Into<String>) -> Self {
        Self::new(ErrorClass::Gone, about, message)
    }

    /// As the answer to a CRI call about `id`.
    pub(crate) fn into_call(self, call: &'static str, id: &str) -> Error {
        let code = match self.class {
            ErrorClass::Transient => Code::Unavailable,
            ErrorClass::Throttled => Code::ResourceExhausted,
            ErrorClass::Permanent => Code::InvalidArgument,
            ErrorClass::Gone => Code::NotFound,
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
