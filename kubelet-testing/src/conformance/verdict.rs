//! The result of a clause.

use std::fmt;

/// Whether a clause holds. A test can return it.
pub type Verdict = std::result::Result<(), Broken>;

/// A broken clause. `{:?}` prints text, too, because tests print errors with `{:?}`.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Broken {
    /// The clause, with the name of its test: `life_cycle::what_is_removed_is_gone`.
    pub clause: String,
    /// The clause as a sentence.
    pub sentence: String,
    /// What the clause saw instead.
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

/// What a clause saw that must not happen.
#[derive(Debug)]
pub(crate) struct Seen(String);

/// The result of a step of a clause.
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

/// Adds the step to the error.
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

/// Breaks a clause unless this holds.
macro_rules! ensure {
    ($holds:expr, $($seen:tt)+) => {
        if !$holds {
            return Err($crate::conformance::verdict::Seen::new(format!($($seen)+)));
        }
    };
}
pub(crate) use ensure;
