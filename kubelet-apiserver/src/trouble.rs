//! [`Trouble`]: what goes wrong with one request.

use std::fmt;
use std::time::Duration;

use super::store::Ending;

/// What goes wrong with a request.
#[derive(Clone, Debug)]
#[cfg_attr(not(feature = "faults"), expect(dead_code, reason = "only faults make it"))]
pub(crate) enum Trouble {
    /// Nothing is done; this is answered.
    Refused {
        code: u16,
        reason: &'static str,
        message: String,
        retry_after: Option<u64>,
    },
    /// The work is done so much later.
    Slow(Duration),
    /// Nothing is done, and no answer comes.
    Hangs,
    /// Nothing is done; the connection breaks.
    ConnectionLost,
    /// The work is done; the connection breaks.
    ReplyLost,
    /// The work is done; the answer comes so much later.
    ReplyDelayed(Duration),
    /// The work is done, and no answer comes.
    ReplyHangs,
    /// A watch is told that its revision is too old.
    Gone,
    /// A watch ends so after a time.
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
