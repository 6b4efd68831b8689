//! A page to look at a node: its pods, their containers over time, why a pod waits, events, logs, latencies.
//!
//! Plain HTML from the server, with a small script that shows changes as they come. The pages load nothing from elsewhere, change
//! nothing, and work without the script, too. There is no counterpart in the kubelet.
//!
//! Mount it on the [`NodeApi`](crate::NodeApi). Then it is behind the server's authentication, and clients need a permission on
//! `nodes/proxy`:
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! use std::sync::Arc;
//!
//! use k8s_openapi::api::core::v1::Pod;
//! use kubelet_core::Clock;
//! use kubelet_server::authorization::AlwaysAllow;
//! use kubelet_server::console::{Console, RecentEvents};
//! use kubelet_server::{Authentication, Authorization, NodeApi, NodePods};
//! use tokio_util::sync::CancellationToken;
//!
//! let pods: Arc<dyn NodePods> = Arc::new(vec![Arc::new(Pod::default())]);
//! // The agent's recorder of events; it keeps the newest ones.
//! let events = RecentEvents::new(Clock::system());
//! let console = Console::builder("node-1", pods.clone()).events(events).build();
//!
//! let authorization = Authorization::new("node-1", Arc::new(AlwaysAllow));
//! let api = NodeApi::builder(pods, Authentication::anonymous(), authorization);
//! let api = api.route(Console::PATH, console.clone()).build();
//! let shutdown = CancellationToken::new();
//! # shutdown.cancel();
//! console.run(shutdown).await; // observes the pods while the server runs
//! # drop(api);
//! # }
//! ```

mod drawings;
mod history;
mod html;
mod live;
mod model;
mod pages;
mod serve;
mod sources;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kubelet_core::runtime::ContainerLogs;
use kubelet_core::{Clock, PodUid};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

pub use sources::{Durations, Explain, RecentEvents, ShownEvent};

use crate::pods::NodePods;
use history::History;
use model::ShownPod;

/// How often the pods are observed, and open pages get what has changed.
const PERIOD: Duration = Duration::from_secs(1);
/// How many periods the points of the plots are apart.
const PERIODS_OF_A_POINT: u64 = 2;

/// The console: an HTTP service of the paths below [`Console::PATH`]. Clones share what it remembers.
#[derive(Clone)]
pub struct Console {
    shared: Arc<Shared>,
}

struct Shared {
    node: String,
    pods: Arc<dyn NodePods>,
    explain: Option<Arc<dyn Explain>>,
    events: Option<RecentEvents>,
    logs: Option<Arc<dyn ContainerLogs>>,
    durations: Option<Arc<dyn Durations>>,
    loopback_names_only: bool,
    clock: Clock,
    history: Mutex<History>,
    /// Counts the periods.
    ticks: watch::Sender<u64>,
}

/// Builds a [`Console`]. What has no source is not shown.
#[must_use]
pub struct ConsoleBuilder {
    shared: Shared,
}

impl Console {
    /// Where it is mounted.
    pub const PATH: &'static str = "/console";

    /// A console of this node and its pods.
    pub fn builder(node: impl Into<String>, pods: Arc<dyn NodePods>) -> ConsoleBuilder {
        ConsoleBuilder {
            shared: Shared {
                node: node.into(),
                pods,
                explain: None,
                events: None,
                logs: None,
                durations: None,
                loopback_names_only: false,
                clock: Clock::system(),
                history: Mutex::default(),
                ticks: watch::Sender::new(0),
            },
        }
    }

    /// Observes the pods until `shutdown`: once a second. Open pages change only while it runs. They end with it.
    ///
    /// # Cancel safety
    ///
    /// You may drop the future and call this again.
    pub async fn run(&self, shutdown: CancellationToken) {
        let mut period = interval(PERIOD);
        period.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while shutdown.run_until_cancelled(period.tick()).await.is_some() {
            self.shared.observe();
        }
        self.shared.ticks.send_replace(END);
    }
}

/// The tick after which no page changes.
const END: u64 = u64::MAX;

impl Shared {
    fn observe(&self) {
        let pods = self.shown_pods();
        let statuses: Vec<_> = pods.into_iter().map(|shown| (shown.pod, shown.status)).collect();
        let tick = self.ticks.borrow().wrapping_add(1) % END;
        let mut history = self.history.lock();
        history.observe(&statuses, self.clock.now());
        if let Some(durations) = self
            .durations
            .as_ref()
            .filter(|_| tick.is_multiple_of(PERIODS_OF_A_POINT))
        {
            history.sample(&**durations);
        }
        drop(history);
        self.ticks.send_replace(tick);
    }

    fn shown_pods(&self) -> Vec<ShownPod> {
        let pods = self.pods.pods().into_iter();
        let shown = pods.map(|pod| {
            let status = self
                .pods
                .status(&pod)
                .as_deref()
                .or(pod.status.as_ref())
                .cloned()
                .unwrap_or_default();
            ShownPod { pod, status }
        });
        shown.collect()
    }

    fn events(&self, pod: Option<&PodUid>) -> Vec<ShownEvent> {
        self.events
            .as_ref()
            .map(|events| events.of(pod))
            .unwrap_or_default()
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }
}

impl ConsoleBuilder {
    /// Shows what pods wait for.
    pub fn explain(mut self, explain: Arc<dyn Explain>) -> Self {
        self.shared.explain = Some(explain);
        self
    }

    /// Shows events. The agent records them with the same recorder.
    pub fn events(mut self, events: RecentEvents) -> Self {
        self.shared.events = Some(events);
        self
    }

    /// Shows logs.
    pub fn logs(mut self, logs: Arc<dyn ContainerLogs>) -> Self {
        self.shared.logs = Some(logs);
        self
    }

    /// Plots how long relists and syncs take.
    pub fn durations(mut self, durations: Arc<dyn Durations>) -> Self {
        self.shared.durations = Some(durations);
        self
    }

    /// Refuses requests for a host that is not `localhost` or an address of the loopback. For a console on the loopback without
    /// authentication: a page from elsewhere, whose name its owner resolves to `127.0.0.1`, cannot read it.
    pub fn loopback_names_only(mut self) -> Self {
        self.shared.loopback_names_only = true;
        self
    }

    /// The clock by which ages are shown.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.shared.clock = clock;
        self
    }

    /// Builds the console.
    pub fn build(self) -> Console {
        Console {
            shared: Arc::new(self.shared),
        }
    }
}

impl std::fmt::Debug for Console {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Console")
            .field("node", &self.shared.node)
            .finish_non_exhaustive()
    }
}
