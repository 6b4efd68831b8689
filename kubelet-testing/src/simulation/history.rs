//! The history of a simulation.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// All events of a simulation, in order, each with the simulated time since the start.
///
/// Two runs of one seed have equal histories, to the byte.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    steps: Vec<Step>,
}

/// An event of a simulation.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Step {
    /// The time since the start.
    pub at: Duration,
    /// The text: `node-1 StartContainer default/web main#0`, `pod default/web: Running`…
    pub what: String,
}

impl History {
    /// The steps, the oldest first.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// The number of steps that contain this text.
    pub fn count(&self, text: &str) -> usize {
        self.steps.iter().filter(|step| step.what.contains(text)).count()
    }

    /// The last `count` steps.
    pub fn last(&self, count: usize) -> &[Step] {
        &self.steps[self.steps.len().saturating_sub(count)..]
    }

    /// Merges the steps of several journals, each in order. At equal times, those of earlier journals come first.
    pub(super) fn merged(witnesses: impl IntoIterator<Item = Vec<Step>>) -> Self {
        let mut steps: Vec<Step> = witnesses.into_iter().flatten().collect();
        // A stable sort.
        steps.sort_by_key(|step| step.at);
        Self { steps }
    }
}

impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.steps.iter().try_for_each(|step| writeln!(f, "{step}"))
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:>6}.{:03}s {}",
            self.at.as_secs(),
            self.at.subsec_millis(),
            self.what
        )
    }
}

/// A journal that collects steps. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct Journal {
    start: Instant,
    steps: Arc<Mutex<Vec<Step>>>,
}

impl Journal {
    /// A journal whose times count from `start`.
    pub(super) fn new(start: Instant) -> Self {
        Self {
            start,
            steps: Arc::default(),
        }
    }

    /// Adds a step at the current time.
    pub(super) fn note(&self, what: impl Into<String>) {
        let step = Step {
            at: self.start.elapsed(),
            what: what.into(),
        };
        self.steps.lock().push(step);
    }

    pub(super) fn steps(&self) -> Vec<Step> {
        self.steps.lock().clone()
    }
}

/// A failed simulation.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Failure {
    /// The problems, one a line.
    pub problems: Vec<String>,
    /// The code that reproduces it.
    pub replay: String,
    /// The history up to the failure.
    pub history: History,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 40;
        for problem in &self.problems {
            writeln!(f, "{problem}")?;
        }
        let last = self.history.last(SHOWN);
        writeln!(
            f,
            "the last {} of {} steps before:",
            last.len(),
            self.history.steps().len()
        )?;
        for step in last {
            writeln!(f, "{step}")?;
        }
        write!(f, "to play it again: {}", self.replay)
    }
}

impl std::error::Error for Failure {}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(of: &[(u64, &str)]) -> Vec<Step> {
        of.iter()
            .map(|(at, what)| Step {
                at: Duration::from_millis(*at),
                what: (*what).to_owned(),
            })
            .collect()
    }

    #[test]
    fn witnesses_are_merged_by_time_and_a_failure_shows_the_end() {
        let history = History::merged([
            steps(&[(5, "b"), (5, "c"), (1500, "e")]),
            steps(&[(0, "a"), (5, "d")]),
        ]);
        let text = "     0.000s a\n     0.005s b\n     0.005s c\n     0.005s d\n     1.500s e\n";
        assert_eq!(history.to_string(), text);
        assert_eq!((history.count("d"), history.last(1)[0].what.as_str()), (1, "e"));
        let failure = Failure {
            problems: vec!["two at once".to_owned()],
            replay: "seed 7".to_owned(),
            history,
        };
        let text = failure.to_string();
        assert!(
            text.starts_with("two at once\nthe last 5 of 5 steps before:\n"),
            "{text}"
        );
        assert!(text.ends_with("e\nto play it again: seed 7"), "{text}");
    }
}
