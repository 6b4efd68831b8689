//! What comes of a clause.

use std::fmt;

/// Whether a clause holds. A test may return it.
pub type Verdict = std::result::Result<(), Broken>;

/// A clause that does not hold, and what was seen instead. Shown in words, by `{:?}` too, since that is what a test
/// shows.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Broken {
    /// The clause as its test is named: `life_cycle::what_is_removed_is_gone`.
    pub clause: String,
    /// The clause in words.
    pub sentence: String,
    /// What was seen.
    pub seen: String,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            clause,
            sentence,
            seen,
        } = self;
        write!(
            f,
            "{clause} is broken.\n  the clause: {sentence}\n  what was seen: {seen}"
        )
    }
}

impl fmt::Debug for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Broken {}

/// What a clause saw that must not be.
#[derive(Debug)]
pub(crate) struct Seen(String);

/// How a step of a clause went.
pub(crate) type Outcome<T = ()> = std::result::Result<T, Seen>;

impl Seen {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self(what.into())
    }

    pub(crate) fn into_text(self) -> String {
        self.0
    }
}

impl<E: std::error::Error> From<E> for Seen {
    fn from(error: E) -> Self {
        Self(error.to_string())
    }
}

/// Says at which step something was seen.
pub(crate) trait During<T> {
    fn during(self, step: &str) -> Outcome<T>;
}

impl<T, E: Into<Seen>> During<T> for std::result::Result<T, E> {
    fn during(self, step: &str) -> Outcome<T> {
        self.map_err(|error| {
            let Seen(text) = error.into();
            Seen(format!("{step}: {text}"))
        })
    }
}

/// Ends a clause as broken unless this holds.
macro_rules! ensure {
    ($holds:expr, $($seen:tt)+) => {
        if !$holds {
            return Err($crate::conformance::verdict::Seen::new(format!($($seen)+)));
        }
    };
}
pub(crate) use ensure;
