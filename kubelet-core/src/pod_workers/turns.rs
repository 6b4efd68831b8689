//! Static pods with the same full name take turns: the next one starts when the last one has ended, in order of
//! arrival.

use std::collections::{HashMap, VecDeque};

use tokio::time::Instant;

use crate::{PodKey, PodUid};

/// Which pod has the turn, by namespace and name.
#[derive(Debug, Default)]
pub(super) struct Turns {
    by_key: HashMap<PodKey, Turn>,
}

#[derive(Debug, Default)]
struct Turn {
    started: Option<PodUid>,
    /// Only the runtime knows the pod that has the turn. Until then it keeps it.
    lent_until: Option<Instant>,
    waiting: VecDeque<PodUid>,
}

impl Turns {
    /// Lends a free turn to a pod that only the runtime knows.
    pub(super) fn lend(&mut self, key: &PodKey, uid: PodUid, until: Instant) {
        let turn = self.by_key.entry(key.clone()).or_default();
        if turn.started.is_none() {
            (turn.started, turn.lent_until) = (Some(uid), Some(until));
        }
    }

    /// The pod that only the runtime knew is being ended: it keeps the turn until it has ended.
    pub(super) fn keep(&mut self, key: &PodKey, uid: &PodUid) {
        let turn = self.by_key.get_mut(key);
        if let Some(turn) = turn.filter(|turn| turn.started.as_ref() == Some(uid)) {
            turn.lent_until = None;
        }
    }

    /// When the turn is free even if the pod that has it does not end.
    pub(super) fn lent_until(&self, key: &PodKey) -> Option<Instant> {
        self.by_key.get(key)?.lent_until
    }

    /// Adds the pod to the queue, once.
    pub(super) fn wait(&mut self, key: &PodKey, uid: &PodUid) {
        let turn = self.by_key.entry(key.clone()).or_default();
        if turn.started.as_ref() != Some(uid) && !turn.waiting.contains(uid) {
            turn.waiting.push_back(uid.clone());
        }
    }

    /// Takes the turn if this pod is next. `may_start` returns whether a waiting pod still wants to start.
    pub(super) fn take(
        &mut self,
        key: &PodKey,
        uid: &PodUid,
        now: Instant,
        may_start: impl Fn(&PodUid) -> bool,
    ) -> bool {
        let turn = self.by_key.entry(key.clone()).or_default();
        if turn.lent_until.is_some_and(|until| until <= now) {
            (turn.started, turn.lent_until) = (None, None);
        }
        if let Some(started) = &turn.started {
            let is_own = started == uid;
            if is_own {
                turn.lent_until = None;
            }
            return is_own;
        }
        while turn
            .waiting
            .front()
            .is_some_and(|first| first != uid && !may_start(first))
        {
            turn.waiting.pop_front();
        }
        if turn.waiting.front().is_some_and(|first| first != uid) {
            return false;
        }
        turn.waiting.pop_front();
        turn.started = Some(uid.clone());
        true
    }

    /// The pod has ended or will never start. Returns the next pod in the queue, if the turn is free now.
    pub(super) fn leave(&mut self, key: &PodKey, uid: &PodUid) -> Option<PodUid> {
        let turn = self.by_key.get_mut(key)?;
        turn.waiting.retain(|waiting| waiting != uid);
        if turn.started.as_ref() == Some(uid) {
            (turn.started, turn.lent_until) = (None, None);
        }
        if turn.started.is_some() {
            return None;
        }
        let next = turn.waiting.front().cloned();
        if next.is_none() {
            self.by_key.remove(key);
        }
        next
    }

    /// The pod that runs under this name.
    pub(super) fn started(&self, key: &PodKey) -> Option<&PodUid> {
        self.by_key.get(key)?.started.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn first_come_first_served_and_who_left_is_passed_over() {
        let (mut turns, now) = (Turns::default(), Instant::now());
        let key = PodKey::new("ns", "web");
        let [a, b, c] = ["a", "b", "c"].map(PodUid::from);
        for uid in [&a, &b, &c, &b] {
            turns.wait(&key, uid);
        }
        assert!(!turns.take(&key, &b, now, |_| true), "a came first");
        assert!(turns.take(&key, &a, now, |_| true));
        assert!(turns.take(&key, &a, now, |_| true), "it is still a's");
        assert!(!turns.take(&key, &b, now, |_| true), "a runs");
        assert_eq!(turns.leave(&key, &a), Some(b.clone()));
        assert!(
            turns.take(&key, &c, now, |uid| *uid != b),
            "b does not want it any more"
        );
        assert_eq!(turns.started(&key), Some(&c));
        assert_eq!(turns.leave(&key, &c), None);
        assert!(turns.by_key.is_empty());
    }

    #[test]
    fn a_lent_turn_ends_with_its_time_unless_the_pod_is_being_ended_or_is_the_next() {
        let (now, key) = (Instant::now(), PodKey::new("ns", "web"));
        let until = now + Duration::from_secs(1);
        let [old, new] = ["old", "new"].map(PodUid::from);
        let lent = || {
            let mut turns = Turns::default();
            turns.lend(&key, old.clone(), until);
            turns.wait(&key, &new);
            turns
        };

        let mut turns = lent();
        assert!(!turns.take(&key, &new, now, |_| true), "the old one runs");
        assert_eq!(turns.lent_until(&key), Some(until));
        assert!(turns.take(&key, &new, until, |_| true), "it does not end");

        let mut turns = lent();
        turns.keep(&key, &new);
        turns.keep(&key, &old);
        assert!(!turns.take(&key, &new, until, |_| true), "it is being ended");
        assert_eq!(turns.leave(&key, &old), Some(new.clone()));
        assert!(turns.take(&key, &new, now, |_| true));
        turns.lend(&key, old.clone(), until);
        assert_eq!(turns.started(&key), Some(&new), "the turn was not free");

        let mut turns = lent();
        assert!(turns.take(&key, &old, now, |_| true), "a source lists it, too");
        assert!(!turns.take(&key, &new, until, |_| true));
    }
}
