//! Busy and quiet time.

use std::fmt;
use std::time::Duration;

use super::faults::Time;

/// Alternating busy and quiet time, starting with busy time. By default all time is busy.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Turns(Option<Turn>);

#[derive(Clone, Copy, Debug, PartialEq)]
struct Turn {
    busy: Duration,
    quiet: Duration,
}

impl Turns {
    pub(super) fn new(busy: Duration, quiet: Duration) -> Self {
        Self((!busy.is_zero() && !quiet.is_zero()).then_some(Turn { busy, quiet }))
    }

    /// Whether this time since the start is quiet.
    pub(super) fn is_quiet(&self, at: Duration) -> bool {
        self.0.is_some_and(|turn| turn.within(at).1 >= turn.busy)
    }

    /// The time at which this much busy time has passed since another time. Both count from the start.
    pub(super) fn after(&self, from: Duration, busy_time: Duration) -> Duration {
        let Some(turn) = self.0 else {
            return from + busy_time;
        };
        let (begun, into) = turn.within(from);
        // As if all busy time since the beginning of this turn were in one piece.
        let busy_time = busy_time + into.min(turn.busy);
        let whole = busy_time.as_nanos() / turn.busy.as_nanos();
        let whole = u32::try_from(whole).unwrap_or(u32::MAX);
        begun + turn.length() * whole + (busy_time - turn.busy * whole)
    }
}

impl Turn {
    fn length(&self) -> Duration {
        self.busy + self.quiet
    }

    /// When the turn of this time began, and how much of it has passed.
    fn within(&self, at: Duration) -> (Duration, Duration) {
        let turns = u32::try_from(at.as_nanos() / self.length().as_nanos()).unwrap_or(u32::MAX);
        let begun = self.length() * turns;
        (begun, at.saturating_sub(begun))
    }
}

/// Prints the code for it in a test.
impl fmt::Display for Turns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(Turn { busy, quiet }) => write!(f, ".by_turns({}, {})", Time(busy), Time(quiet)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_passes_while_it_is_busy() {
        let minutes = |minutes: u64| Duration::from_secs(minutes * 60);
        let turns = Turns::new(minutes(10), minutes(50));
        // from, busy time → moment
        for (from, time, at) in [
            (0, 4, 4),
            (4, 5, 9),
            (4, 6, 60),
            (9, 2, 61),
            (9, 22, 181),
            (10, 3, 63),
            (59, 3, 63),
            (60, 3, 63),
            (65, 30, 245),
        ] {
            assert_eq!(
                turns.after(minutes(from), minutes(time)),
                minutes(at),
                "{time} from {from} on"
            );
        }
        let quiet: Vec<u64> = (0..130)
            .step_by(5)
            .filter(|at| turns.is_quiet(minutes(*at)))
            .collect();
        assert!(!quiet.contains(&5) && quiet.contains(&10) && quiet.contains(&55));
        assert!(!quiet.contains(&65) && quiet.contains(&70) && !quiet.contains(&120));

        let always = Turns::new(minutes(10), minutes(0));
        assert_eq!(always.after(minutes(59), minutes(30)), minutes(89));
        assert!(!always.is_quiet(minutes(59)));
    }
}
