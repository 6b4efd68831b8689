//! The state of the runtime.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;
use kubelet_core::PodUid;
use kubelet_cri::verbs::{Container, ContainerKey, ContainerSpec};
use tokio::time::Instant;

use super::Tally;
use crate::run::{Life, Run, Script};

#[derive(Default)]
pub(super) struct State {
    /// Later scripts win.
    pub(super) scripts: Vec<Script<ContainerSpec>>,
    pub(super) records: BTreeMap<ContainerKey, Record>,
    pub(super) tallies: BTreeMap<(PodUid, String), Tally>,
    pub(super) away: bool,
}

/// A container that was started and not removed.
pub(super) struct Record {
    container: Container,
    started: Instant,
    started_at: Timestamp,
    pub(super) life: Life,
}

impl State {
    /// The run of this attempt.
    pub(super) fn next_run(&mut self, spec: &ContainerSpec) -> Run {
        let tally = self
            .tallies
            .entry((spec.key.pod.clone(), spec.key.container.clone()))
            .or_default();
        let number = tally.tries;
        tally.tries += 1;
        Script::run(&self.scripts, spec, number)
    }

    pub(super) fn start(&mut self, key: &ContainerKey, run: &Run, now: Instant, started_at: Timestamp) {
        let record = Record {
            container: Container::running(key.clone(), started_at),
            started: now,
            started_at,
            life: Life::new(run, now),
        };
        self.records.insert(key.clone(), record);
        let every_attempt = ContainerKey {
            attempt: 0,
            ..key.clone()
        }..=ContainerKey {
            attempt: u32::MAX,
            ..key.clone()
        };
        let attempts = self.records.range_mut(every_attempt);
        let at_once = attempts
            .filter_map(|(_, record)| record.look(now).is_running().then_some(()))
            .count();
        let tally = self
            .tallies
            .entry((key.pod.clone(), key.container.clone()))
            .or_default();
        tally.starts += 1;
        tally.most_at_once = tally.most_at_once.max(u32::try_from(at_once).unwrap_or(u32::MAX));
    }

    pub(super) fn look(&mut self, key: &ContainerKey, now: Instant) -> Option<&Container> {
        self.records.get_mut(key).map(|record| record.look(now))
    }

    pub(super) fn look_at_all(&mut self, now: Instant) -> impl Iterator<Item = &Container> {
        self.records.values_mut().map(move |record| record.look(now))
    }

    /// When the next container ends, as far as known.
    pub(super) fn next_end(&mut self, now: Instant) -> Option<Instant> {
        let running = self.records.values_mut().filter_map(|record| record.end(now));
        running.min()
    }
}

impl Record {
    /// The current state of the container. If its end is due, it has ended.
    pub(super) fn look(&mut self, now: Instant) -> &Container {
        if let Some((end, ending)) = self.life.end().filter(|(end, _)| *end <= now) {
            let finished_at = self
                .started_at
                .checked_add(end - self.started)
                .unwrap_or(Timestamp::MAX);
            self.container.exited(ending.code, finished_at);
        }
        &self.container
    }

    /// When it ends, if it runs and this is known.
    pub(super) fn end(&mut self, now: Instant) -> Option<Instant> {
        let runs = self.look(now).is_running();
        self.life.end().filter(|_| runs).map(|(end, _)| end)
    }
}
