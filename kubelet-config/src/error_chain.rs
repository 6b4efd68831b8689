//! An error and its causes, in one line.

use std::error::Error;
use std::fmt::Write;

/// The message of `error` and of its causes. The last cause says why a connection failed.
pub(crate) fn error_chain(error: &dyn Error) -> String {
    let mut message = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let text = cause.to_string();
        if !message.contains(&text) {
            let _ = write!(message, ": {text}");
        }
        source = cause.source();
    }
    message
}
