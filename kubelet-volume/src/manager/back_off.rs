//! How long a failed operation waits (`exponentialbackoff`, `nestedpendingoperations`).

use std::time::Duration;

use tokio::time::Instant;

/// The first wait (`initialDurationBeforeRetry`).
pub(crate) const FIRST: Duration = Duration::from_millis(500);
/// The longest wait (`maxDurationBeforeRetry`).
pub(crate) const LONGEST: Duration = Duration::from_secs(2 * 60 + 2);

/// The kinds of operations that are retried. A failure of one kind does not delay another kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    VerifyAttached,
    Attach,
    Mount,
    TearDown,
    Expand,
    UnmountDevice,
    Detach,
}

/// The wait of one volume, or of one pod's mount of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BackOff {
    failed: Option<(Kind, Duration, Instant)>,
}

impl BackOff {
    /// An operation of this kind failed: the wait doubles. A failure of another kind starts again with the first wait.
    pub(crate) fn fail(&mut self, kind: Kind, now: Instant) {
        let wait = match self.failed {
            Some((before, wait, _)) if before == kind => (wait * 2).min(LONGEST),
            _ => FIRST,
        };
        self.failed = Some((kind, wait, now + wait));
    }

    /// The operation succeeded, or what it failed for has changed.
    pub(crate) fn reset(&mut self) {
        self.failed = None;
    }

    /// Whether the last operation of this kind failed.
    pub(crate) fn has_failed(&self, kind: Kind) -> bool {
        self.failed.is_some_and(|(failed, ..)| failed == kind)
    }

    /// When an operation of this kind may start, if it has to wait.
    pub(crate) fn until(&self, kind: Kind, now: Instant) -> Option<Instant> {
        let (failed, _, until) = self.failed?;
        (failed == kind && until > now).then_some(until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn waits_double_to_two_minutes_and_two_seconds() {
        let mut back_off = BackOff::default();
        let now = Instant::now();
        let mut waits = Vec::new();
        for _ in 0..10 {
            back_off.fail(Kind::Mount, now);
            waits.push(back_off.until(Kind::Mount, now).unwrap() - now);
        }
        let millis: Vec<u128> = waits.iter().map(Duration::as_millis).collect();
        assert_eq!(
            millis,
            [
                500, 1000, 2000, 4000, 8000, 16_000, 32_000, 64_000, 122_000, 122_000
            ]
        );
        assert_eq!(back_off.until(Kind::TearDown, now), None);
        back_off.fail(Kind::TearDown, now);
        assert_eq!(back_off.until(Kind::TearDown, now), Some(now + FIRST));
        assert_eq!(back_off.until(Kind::Mount, now), None);
        assert_eq!(back_off.until(Kind::TearDown, now + FIRST), None);
    }
}
