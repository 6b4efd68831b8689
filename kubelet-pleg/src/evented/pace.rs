//! How often to list all pods although there are hints: the less the lists find that hints missed, the less often.

use std::time::Duration;

use kubelet_core::PodUid;
use rustc_hash::FxHashSet;

/// A stream without any hint while so many lists found a missed change does not work, and is opened again.
const DEAF_AFTER: u32 = 3;

/// How far the hints are trusted. No time, no I/O.
#[derive(Debug)]
pub(crate) struct Pace {
    /// Without trust.
    shortest: Duration,
    longest: Duration,
    /// The current wait from the end of a list to the next.
    period: Duration,
    connected: bool,
    /// The list under way began after the stream was open.
    list_is_covered: bool,
    /// So did a list that was processed: the stream should have reported what the next lists find.
    is_covered: bool,
    /// A hint reported a change before a list of all pods showed it.
    is_proven: bool,
    /// Pods with a hint that were not listed since: hinted before the list under way began, and after.
    hinted_before: FxHashSet<PodUid>,
    hinted: FxHashSet<PodUid>,
    /// Pods that changed in the last list without a hint; the hint may still arrive.
    suspects: FxHashSet<PodUid>,
    /// Pods to list once more, since a hint may come before the change: those of this round, and of the next.
    look_again: FxHashSet<PodUid>,
    look_again_later: FxHashSet<PodUid>,
    /// How many lists found a missed change since the last hint.
    misses: u32,
    /// How many changes no hint reported, in all.
    pub(crate) missed: u64,
}

impl Pace {
    pub(crate) fn new(shortest: Duration, longest: Duration) -> Self {
        Self {
            shortest,
            longest: longest.max(shortest),
            period: shortest,
            connected: false,
            list_is_covered: false,
            is_covered: false,
            is_proven: false,
            hinted_before: FxHashSet::default(),
            hinted: FxHashSet::default(),
            suspects: FxHashSet::default(),
            look_again: FxHashSet::default(),
            look_again_later: FxHashSet::default(),
            misses: 0,
            missed: 0,
        }
    }

    pub(crate) fn period(&self) -> Duration {
        self.period
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.connected
    }

    pub(crate) fn is_proven(&self) -> bool {
        self.is_proven
    }

    /// Whether the stream should be given up for a new one.
    pub(crate) fn is_deaf(&self) -> bool {
        self.misses >= DEAF_AFTER
    }

    pub(crate) fn connected(&mut self) {
        *self = Self {
            connected: true,
            missed: self.missed,
            ..Self::new(self.shortest, self.longest)
        };
    }

    pub(crate) fn broken(&mut self) {
        *self = Self {
            missed: self.missed,
            ..Self::new(self.shortest, self.longest)
        };
    }

    pub(crate) fn hint(&mut self, uid: &PodUid) {
        self.misses = 0;
        self.suspects.remove(uid);
        self.hinted.insert(uid.clone());
    }

    /// A pod was listed alone.
    pub(crate) fn pod_listed(&mut self, uid: &PodUid, changed: bool) {
        if self.hinted.remove(uid) {
            self.is_proven |= changed;
            self.look_again_later.insert(uid.clone());
        }
    }

    /// Whether there are pods to be listed again.
    pub(crate) fn looks_again(&self) -> bool {
        !self.look_again.is_empty() || !self.look_again_later.is_empty()
    }

    /// The pods to be listed again, each time that single pods are looked after.
    pub(crate) fn look_again(&mut self) -> FxHashSet<PodUid> {
        let next = std::mem::take(&mut self.look_again_later);
        std::mem::replace(&mut self.look_again, next)
    }

    /// A list of all begins.
    pub(crate) fn list_started(&mut self) {
        self.list_is_covered = self.connected;
        self.hinted_before.extend(self.hinted.drain());
    }

    /// It failed.
    pub(crate) fn list_failed(&mut self) {
        self.hinted.extend(self.hinted_before.drain());
    }

    /// It found these pods changed. Returns how many changes of the list before no hint has reported until now, and how long
    /// to wait for the next list.
    pub(crate) fn listed(&mut self, found: &[PodUid]) -> (usize, Duration) {
        let missed = self.suspects.len();
        self.suspects.clear();
        if missed > 0 {
            self.missed += missed as u64;
            self.misses += 1;
            self.is_proven = false;
            self.period = self.shortest;
        }
        for uid in found {
            if self.hinted_before.contains(uid) || self.hinted.contains(uid) {
                self.is_proven = true;
            } else if self.is_covered && self.list_is_covered {
                self.suspects.insert(uid.clone());
            }
        }
        self.look_again_later.extend(self.hinted_before.drain());
        self.is_covered |= self.list_is_covered;
        if !self.suspects.is_empty() {
            return (missed, self.shortest);
        }
        if self.is_proven && self.is_covered && missed == 0 {
            self.period = self.period.saturating_mul(2).min(self.longest);
        }
        (missed, self.period)
    }
}
