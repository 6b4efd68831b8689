//! The loop of a PLEG: lists all pods by the clock, single pods on a request or hint, and reads statuses as needed.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, Fuse, FusedFuture, FutureExt};
use futures::stream::StreamExt;
use kubelet_core::{PlegHandle, PodCache, RuntimeReader};
use tokio::time::{Instant, Sleep, sleep};
use tokio_util::sync::CancellationToken;

use crate::evented::Hints;
use crate::evented::connection::{Connection, News};
use crate::evented::pace::Pace;
use crate::inspector::{HangingCall, Inspection, Mode};
use crate::metrics;
use crate::relist::{Listed, Relist};
use crate::settings::Settings;
use crate::shared::{Owner, Shared};

/// How many items of the stream of hints are processed in one go.
const MAX_NEWS_AT_ONCE: usize = 256;

/// While lists of all pods are rarer than this, some single pods are listed this often.
const TEND_PERIOD: Duration = Duration::from_secs(1);

/// A PLEG, to be run.
pub(crate) struct Engine {
    pub(crate) runtime: Arc<dyn RuntimeReader>,
    pub(crate) cache: PodCache,
    pub(crate) settings: Settings,
    pub(crate) owner: Owner,
    /// `None`: the PLEG does not ask the runtime for hints.
    pub(crate) hints: Option<Hints>,
}

impl Engine {
    pub(crate) async fn run(self, shutdown: CancellationToken) {
        metrics::describe();
        let shared = self.owner.0.clone();
        let cache = self.cache.clone();
        let period = self.settings.relist_period;
        let mut connection = None;
        let (mut longest, mut shortest) = (period, period);
        if let Some(hints) = self.hints {
            metrics::describe_evented();
            longest = hints.longest_period;
            shortest = period.min(TEND_PERIOD);
            connection = Some(Connection::new(self.runtime.clone(), hints.jitter));
        }
        let mut relist = Relist::new(self.runtime, self.cache, self.settings, self.owner);
        if connection.is_some() {
            relist.keep_found();
        }
        let mut pace = Pace::new(period, longest);
        let mut list: Fuse<BoxFuture<'static, Listed>> = Fuse::terminated();
        let mut list_started = Instant::now();
        let mut cancelled = pin!(shutdown.cancelled());
        let mut schedule = Schedule::new(shortest);
        let mut tend = Tend::new(shortest);
        loop {
            tend.arm(schedule.is_rare && (pace.looks_again() || relist.has_to_tend()));
            tokio::select! {
                biased;
                () = &mut cancelled => return,
                listed = &mut list => {
                    let rest = if relist.listed(listed) {
                        let (missed, rest) = pace.listed(relist.found());
                        metrics::missed_changes(missed);
                        if connection.is_none() { period } else { rest }
                    } else {
                        pace.list_failed();
                        period
                    };
                    schedule.listed(rest, &shared);
                    relist.start_pod_lists();
                    if pace.is_deaf() && let Some(connection) = &mut connection {
                        connection.give_up();
                        pace.broken();
                    }
                }
                () = &mut schedule.next, if list.is_terminated() => {
                    pace.list_started();
                    list_started = Instant::now();
                    list = relist.start_list().fuse();
                }
                () = shared.relist_asked(), if list.is_terminated() => {
                    if shared.take_list_asked() {
                        schedule.hasten(&shared);
                    }
                    relist.start_pod_lists();
                }
                Some(listed) = relist.pod_lists.running.next() => {
                    let uid = listed.uid.clone();
                    let changed = relist.pod_listed(listed);
                    pace.pod_listed(&uid, changed);
                    relist.start_pod_lists();
                }
                Some(inspected) = relist.statuses.inspections.running.next() => {
                    if let Ok(inspected) = inspected {
                        relist.inspected(inspected);
                    }
                }
                () = &mut tend.next, if tend.is_armed && schedule.is_rare && list.is_terminated() => {
                    tend.is_armed = false;
                    for uid in pace.look_again() {
                        shared.request_relist(&uid);
                    }
                    tend.arm(relist.tend());
                }
                () = cache.somebody_waits(), if schedule.is_rare && !tend.is_armed => tend.arm(true),
                asked = shared.inspection_asked() => {
                    let started = (!list.is_terminated()).then_some(list_started);
                    let inspection = inspect(&relist, &pace, &shared, period, started);
                    for answer in asked {
                        // The receiver may have stopped waiting.
                        let _ = answer.send(inspection.clone());
                    }
                }
                mut latest = news(&mut connection) => {
                    // All that has arrived is processed together: many hints about one pod make one list.
                    for taken in 1.. {
                        match latest {
                            News::Connected => pace.connected(),
                            News::Hint(uid) => {
                                pace.hint(&uid);
                                shared.request_relist(&uid);
                            }
                            News::Broken | News::Unsupported => {
                                pace.broken();
                                schedule.hasten(&shared);
                            }
                        }
                        if taken >= MAX_NEWS_AT_ONCE {
                            break;
                        }
                        match news(&mut connection).now_or_never() {
                            Some(next) => latest = next,
                            None => break,
                        }
                    }
                    // A stream that never pauses must not block the thread.
                    tokio::task::coop::consume_budget().await;
                }
                () = relist.replaced.free_some() => {}
            }
        }
    }
}

async fn news(connection: &mut Option<Connection>) -> News {
    match connection {
        Some(connection) => connection.next().await,
        None => std::future::pending().await,
    }
}

/// When single pods are listed next, if there are any to list: an idle PLEG sleeps.
struct Tend {
    period: Duration,
    next: Pin<Box<Sleep>>,
    is_armed: bool,
}

impl Tend {
    fn new(period: Duration) -> Self {
        Self {
            period,
            next: Box::pin(sleep(Duration::ZERO)),
            is_armed: false,
        }
    }

    fn arm(&mut self, is_needed: bool) {
        if is_needed && !self.is_armed {
            self.next.as_mut().reset(Instant::now() + self.period);
            self.is_armed = true;
        }
    }
}

/// When the next list is due.
struct Schedule {
    /// How soon after one list another may come.
    shortest: Duration,
    listed_at: Option<Instant>,
    next: Pin<Box<Sleep>>,
    /// The next list comes later than it might.
    is_rare: bool,
}

impl Schedule {
    fn new(shortest: Duration) -> Self {
        Self {
            shortest,
            listed_at: None,
            next: Box::pin(sleep(Duration::ZERO)),
            is_rare: false,
        }
    }

    /// A list has ended; the next is due after `rest`.
    fn listed(&mut self, rest: Duration, shared: &Shared) {
        let now = Instant::now();
        self.listed_at = Some(now);
        self.next.as_mut().reset(now + rest);
        self.is_rare = rest > self.shortest;
        if self.is_rare {
            shared.rests_until(now + rest - self.shortest);
        }
    }

    /// The next list is due as soon as may be.
    fn hasten(&mut self, shared: &Shared) {
        let Some(listed_at) = self.listed_at.filter(|_| self.is_rare) else {
            return;
        };
        let now = Instant::now();
        let due = (listed_at + self.shortest).max(now);
        if due < self.next.deadline() {
            self.next.as_mut().reset(due);
            shared.rests_until(now);
        }
        self.is_rare = false;
    }
}

fn inspect(
    relist: &Relist,
    pace: &Pace,
    shared: &Shared,
    period: Duration,
    list_started: Option<Instant>,
) -> Inspection {
    let (waiting_relists, waiting_since) = shared.relists_waiting();
    let mut hanging: Vec<HangingCall> = relist.pod_calls().collect();
    hanging.extend(list_started.map(|started| HangingCall {
        call: "GetPods",
        pod: None,
        elapsed: started.elapsed(),
    }));
    hanging.retain(|call| call.elapsed > period);
    hanging.sort_by_key(|call| std::cmp::Reverse(call.elapsed));
    Inspection {
        pods: relist.pods(),
        unsettled_pods: relist.unsettled_pods(),
        last_relist: relist.listed_at().map(|listed_at| listed_at.elapsed()),
        relist_period: pace.period(),
        mode: match (pace.is_connected(), pace.is_proven()) {
            (false, _) => Mode::Generic,
            (true, false) => Mode::Unproven,
            (true, true) => Mode::Evented,
        },
        lag: waiting_since.map_or(Duration::ZERO, |since| since.elapsed()),
        waiting_relists,
        missed_changes: pace.missed,
        hanging,
    }
}
