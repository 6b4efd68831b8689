//! [`Trouble`]: the effect of a fault on one request.

use std::fmt;
use std::time::Duration;

use super::store::Ending;

/// What goes wrong with a request.
#[derive(Clone, Debug)]
pub(crate) enum Trouble {
    /// The request is not processed; this is the answer.
    Refused {
        code: u16,
        reason: &'static str,
        message: String,
        retry_after: Option<u64>,
    },
    /// The request is processed after this delay.
    Slow(Duration),
    /// The request is not processed, and no answer comes.
    Hangs,
    /// The request is not processed, and the connection breaks.
    ConnectionLost,
    /// The request is processed, and the connection breaks.
    ReplyLost,
    /// The request is processed, and the answer comes after this delay.
    ReplyDelayed(Duration),
    /// The request is processed, and no answer comes.
    ReplyHangs,
    /// The watch gets `410 Gone`: its revision is too old.
    Gone,
    /// The watch ends in this way after this time.
    Ends(Ending, Duration),
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trouble::Refused { code, .. } => write!(f, "fails, {code}"),
            Trouble::Slow(by) => write!(f, "slower by {by:?}"),
            Trouble::Hangs => f.write_str("hangs"),
            Trouble::ConnectionLost => f.write_str("connection lost"),
            Trouble::ReplyLost => f.write_str("reply lost"),
            Trouble::ReplyDelayed(by) => write!(f, "reply slower by {by:?}"),
            Trouble::ReplyHangs => f.write_str("reply hangs"),
            Trouble::Gone => f.write_str("gone"),
            Trouble::Ends(Ending::Closed, after) => write!(f, "closed after {after:?}"),
            Trouble::Ends(Ending::Broken, after) => write!(f, "broken after {after:?}"),
            Trouble::Ends(Ending::Silent, after) => write!(f, "silent after {after:?}"),
        }
    }
}
