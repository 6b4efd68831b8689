//! Static pods with the same full name take turns: the next one starts when the last one has ended, in order of
//! arrival.

use std::collections::{HashMap, VecDeque};

use crate::{PodKey, PodUid};

/// Which pod has the turn, by namespace and name.
#[derive(Debug, Default)]
pub(super) struct Turns {
    by_key: HashMap<PodKey, Turn>,
}

#[derive(Debug, Default)]
struct Turn {
    started: Option<PodUid>,
    waiting: VecDeque<PodUid>,
}

impl Turns {
    /// Adds the pod to the queue, once.
    pub(super) fn wait(&mut self, key: &PodKey, uid: &PodUid) {
        let turn = self.by_key.entry(key.clone()).or_default();
        if turn.started.as_ref() != Some(uid) && !turn.waiting.contains(uid) {
            turn.waiting.push_back(uid.clone());
        }
    }

    /// Takes the turn if this pod is next. `may_start` returns whether a waiting pod still wants to start.
    pub(super) fn take(&mut self, key: &PodKey, uid: &PodUid, may_start: impl Fn(&PodUid) -> bool) -> bool {
        let turn = self.by_key.entry(key.clone()).or_default();
        if let Some(started) = &turn.started {
            return started == uid;
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
            turn.started = None;
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
    use super::*;

    #[test]
    fn first_come_first_served_and_who_left_is_passed_over() {
        let mut turns = Turns::default();
        let key = PodKey::new("ns", "web");
        let [a, b, c] = ["a", "b", "c"].map(PodUid::from);
        for uid in [&a, &b, &c, &b] {
            turns.wait(&key, uid);
        }
        assert!(!turns.take(&key, &b, |_| true), "a came first");
        assert!(turns.take(&key, &a, |_| true));
        assert!(turns.take(&key, &a, |_| true), "it is still a's");
        assert!(!turns.take(&key, &b, |_| true), "a runs");
        assert_eq!(turns.leave(&key, &a), Some(b.clone()));
        assert!(
            turns.take(&key, &c, |uid| *uid != b),
            "b does not want it any more"
        );
        assert_eq!(turns.started(&key), Some(&c));
        assert_eq!(turns.leave(&key, &c), None);
        assert!(turns.by_key.is_empty());
    }
}
