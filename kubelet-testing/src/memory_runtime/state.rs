//! What the runtime knows of its containers.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;
use kubelet_core::PodUid;
use kubelet_cri::verbs::{Container, ContainerKey, ContainerSpec};
use tokio::time::Instant;

use super::Tally;
use super::run::{Run, Script, Stop};

/// What a process comes to that SIGKILL ends.
const SIGKILL_CODE: i32 = 128 + 9;

#[derive(Default)]
pub(super) struct State {
    /// Later ones win.
    pub(super) scripts: Vec<Script>,
    pub(super) records: BTreeMap<ContainerKey, Record>,
    pub(super) tallies: BTreeMap<(PodUid, String), Tally>,
    pub(super) away: bool,
}

/// A container that was started and not removed.
pub(super) struct Record {
    container: Container,
    started: Instant,
    started_at: Timestamp,
    /// When it ends and with which code, as far as is known now.
    ends: Option<(Instant, i32)>,
    stop: Stop,
    stopping: bool,
}

impl State {
    /// What this try of a container does.
    pub(super) fn next_run(&mut self, spec: &ContainerSpec) -> Run {
        let tally = self
            .tallies
            .entry((spec.key.pod.clone(), spec.key.container.clone()))
            .or_default();
        let number = tally.tries;
        tally.tries += 1;
        let script = self.scripts.iter().rev().find(|script| (script.applies)(spec));
        script
            .and_then(|script| script.run(number))
            .cloned()
            .unwrap_or_else(Run::forever)
    }

    pub(super) fn start(&mut self, key: &ContainerKey, run: &Run, now: Instant, started_at: Timestamp) {
        let record = Record {
            container: Container::running(key.clone(), started_at),
            started: now,
            started_at,
            ends: run.ends.map(|(after, code)| (now + after, code)),
            stop: run.stop.clone(),
            stopping: false,
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

    /// When the next container ends, as far as is known now.
    pub(super) fn next_end(&mut self, now: Instant) -> Option<Instant> {
        let running = self.records.values_mut().filter_map(|record| record.end(now));
        running.min()
    }
}

impl Record {
    /// The container as it is now: an end that is due has come.
    pub(super) fn look(&mut self, now: Instant) -> &Container {
        if let Some((end, code)) = self.ends.filter(|(end, _)| *end <= now) {
            let finished_at = self
                .started_at
                .checked_add(end - self.started)
                .unwrap_or(Timestamp::MAX);
            self.container.exited(code, finished_at);
        }
        &self.container
    }

    /// When it ends, if it runs and that is known.
    pub(super) fn end(&mut self, now: Instant) -> Option<Instant> {
        let runs = self.look(now).is_running();
        self.ends.filter(|_| runs).map(|(end, _)| end)
    }

    /// Whether not even force ends it.
    pub(super) fn stop_hangs(&self) -> bool {
        self.stop == Stop::Hangs
    }

    /// It was asked to end, by force after `grace`.
    pub(super) fn ask_to_stop(&mut self, now: Instant, grace: std::time::Duration) {
        if grace.is_zero() {
            self.end_by(now, SIGKILL_CODE);
            return;
        }
        if let (Stop::Ends(time, code), false) = (&self.stop, self.stopping) {
            self.end_by(now + *time, *code);
        }
        self.stopping = true;
        self.end_by(now + grace, SIGKILL_CODE);
    }

    /// It ends then, unless it ends before.
    pub(super) fn end_by(&mut self, end: Instant, code: i32) {
        if self.ends.is_none_or(|(known, _)| end < known) {
            self.ends = Some((end, code));
        }
    }
}
