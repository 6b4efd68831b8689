//! A recorder of calls.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

/// Keeps what a fake was asked for, in order, for assertions that read well and that show the whole list when they fail.
///
/// A pattern names a call by the beginning of its text, up to the end of a word: of `StartContainer web/main#0` it may
/// be `StartContainer`, `StartContainer web`, `StartContainer web/main` or the whole, but not `StartContainer we`.
///
/// Cheap to clone; clones share their list. Any fake can have one:
///
/// ```
/// use kubelet_core::Calls;
///
/// let calls = Calls::new();
/// for call in ["RunPodSandbox web#0", "PullImage busybox", "StartContainer web/main#0"] {
///     calls.record(call.to_owned());
/// }
/// calls.assert_order(["RunPodSandbox web", "StartContainer web/main#0"]);
/// calls.assert_count("PullImage", 1);
/// calls.assert_none("StartContainer web/side");
/// ```
pub struct Calls<T> {
    list: Arc<Mutex<List<T>>>,
}

struct List<T> {
    /// The number of the first that is kept.
    first: u64,
    calls: Vec<T>,
}

impl<T> Calls<T> {
    /// An empty list.
    pub fn new() -> Self {
        let list = List {
            first: 0,
            calls: Vec::new(),
        };
        Self {
            list: Arc::new(Mutex::new(list)),
        }
    }

    /// Adds a call, and returns its number for [`amend`](Self::amend).
    pub fn record(&self, call: T) -> u64 {
        let mut list = self.list.lock();
        list.calls.push(call);
        list.first + u64::try_from(list.calls.len()).unwrap_or(u64::MAX) - 1
    }

    /// Changes a call that was recorded, such as by its answer; does nothing if it was forgotten meanwhile.
    pub fn amend(&self, number: u64, change: impl FnOnce(&mut T)) {
        let mut list = self.list.lock();
        let index = number
            .checked_sub(list.first)
            .and_then(|index| usize::try_from(index).ok());
        if let Some(call) = index.and_then(|index| list.calls.get_mut(index)) {
            change(call);
        }
    }

    /// Forgets all calls so far.
    pub fn clear(&self) {
        let mut list = self.list.lock();
        list.first += u64::try_from(list.calls.len()).unwrap_or(u64::MAX);
        list.calls.clear();
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.list.lock().calls.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T: Clone + fmt::Display> Calls<T> {
    /// All calls, the oldest first.
    pub fn all(&self) -> Vec<T> {
        self.list.lock().calls.clone()
    }

    /// The calls that a pattern names.
    pub fn matching(&self, pattern: &str) -> Vec<T> {
        let list = self.list.lock();
        let named = list.calls.iter().filter(|call| names(pattern, &call.to_string()));
        named.cloned().collect()
    }

    /// How many calls a pattern names.
    pub fn count(&self, pattern: &str) -> usize {
        self.matching(pattern).len()
    }

    /// These calls came, in this order; others may have come before, between and after.
    ///
    /// # Panics
    ///
    /// When one of them did not come after the one before it.
    #[track_caller]
    pub fn assert_order<'a>(&self, patterns: impl IntoIterator<Item = &'a str>) {
        let texts = self.texts();
        let mut rest = texts.iter();
        let mut before = "the beginning";
        for pattern in patterns {
            let came = rest.any(|text| names(pattern, text));
            assert!(came, "no {pattern:?} after {before:?}; {self}");
            before = pattern;
        }
    }

    /// These calls came and no others, in this order.
    ///
    /// # Panics
    ///
    /// When it was otherwise.
    #[track_caller]
    pub fn assert_exactly<'a>(&self, patterns: impl IntoIterator<Item = &'a str>) {
        let (texts, patterns) = (self.texts(), patterns.into_iter().collect::<Vec<_>>());
        let same = texts.len() == patterns.len()
            && patterns
                .iter()
                .zip(&texts)
                .all(|(pattern, text)| names(pattern, text));
        assert!(same, "not exactly {patterns:#?}; {self}");
    }

    /// A pattern names so many calls.
    ///
    /// # Panics
    ///
    /// When it does not.
    #[track_caller]
    pub fn assert_count(&self, pattern: &str, count: usize) {
        let found = self.count(pattern);
        assert!(found == count, "{found} × {pattern:?}, not {count}; {self}");
    }

    /// No such call came.
    ///
    /// # Panics
    ///
    /// When one did.
    #[track_caller]
    pub fn assert_none(&self, pattern: &str) {
        self.assert_count(pattern, 0);
    }

    fn texts(&self) -> Vec<String> {
        self.list.lock().calls.iter().map(T::to_string).collect()
    }
}

/// Whether a pattern is the text or a beginning of it that ends with a word.
fn names(pattern: &str, text: &str) -> bool {
    let word = |c: char| c.is_alphanumeric() || c == '-' || c == '.' || c == '_';
    text.strip_prefix(pattern)
        .is_some_and(|rest| !rest.starts_with(word) || pattern.ends_with(|c| !word(c)))
}

/// The whole list, one call a line, in full ([`alternate`](fmt::Formatter::alternate)).
impl<T: fmt::Display> fmt::Display for Calls<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = self.list.lock();
        write!(f, "the {} calls:", list.calls.len())?;
        for call in &list.calls {
            write!(f, "\n  {call:#}")?;
        }
        Ok(())
    }
}

impl<T: fmt::Display> fmt::Debug for Calls<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl<T> Clone for Calls<T> {
    fn clone(&self) -> Self {
        Self {
            list: self.list.clone(),
        }
    }
}

impl<T> Default for Calls<T> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calls() -> Calls<String> {
        let calls = Calls::new();
        for call in [
            "Run web#0",
            "Start web/main#0",
            "Start web/main#10",
            "Stop web-2#0",
        ] {
            calls.record(call.to_owned());
        }
        calls
    }

    #[test]
    fn a_pattern_ends_with_a_word() {
        for (pattern, count) in [
            ("Start", 2),
            ("Sta", 0),
            ("Start web", 2),
            ("Start web/main#1", 0),
            ("Start web/main#10", 1),
            ("Stop web", 0),
            ("Stop web-2", 1),
            ("Start ", 2),
        ] {
            assert_eq!(calls().count(pattern), count, "{pattern}");
        }
        calls().assert_order(["Run", "Start web/main#10", "Stop"]);
        calls().assert_exactly(["Run", "Start", "Start", "Stop"]);
    }

    #[test]
    #[should_panic(expected = "no \"Run\" after \"Start\"; the 4 calls:\n  Run web#0\n  Start web/main#0")]
    fn a_failure_shows_the_whole_list() {
        calls().assert_order(["Start", "Run"]);
    }

    #[test]
    fn a_forgotten_call_is_not_amended() {
        let calls = calls();
        let number = calls.record("Run db#0".to_owned());
        calls.amend(number, |call| call.push('!'));
        assert_eq!(calls.all()[4], "Run db#0!");
        calls.clear();
        calls.record("Run db#1".to_owned());
        calls.amend(number, |call| call.push('!'));
        assert_eq!(calls.all(), ["Run db#1"]);
    }
}
