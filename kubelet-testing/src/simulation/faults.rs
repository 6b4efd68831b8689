//! The faults of a simulation, and their frequency.

use std::fmt;
use std::time::Duration;

use kubelet_cri::Code;

use crate::ApiServer;
use crate::memory_cri::MemoryCri;
use kubelet_apiserver::Verb;

/// The faults of a simulation, drawn from its seed. By default there are none.
///
/// ```
/// use std::time::Duration;
/// use kubelet_testing::FaultPlan;
///
/// let faults = FaultPlan::none().runtime_calls(0.05).agent_restarts(Duration::from_secs(600));
/// # let _ = faults;
/// ```
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub struct FaultPlan {
    pub(super) runtime_calls: f64,
    pub(super) api_requests: f64,
    pub(super) container_events: f64,
    pub(super) mounts: f64,
    pub(super) plugin_calls: f64,
    pub(super) state_crashes: f64,
    pub(super) device_changes: Option<Duration>,
    pub(super) container_crashes: Option<Duration>,
    pub(super) agent_restarts: Option<Duration>,
    pub(super) agent_stops: Option<Duration>,
    pub(super) sandbox_crashes: Option<Duration>,
    pub(super) reboots: Option<Duration>,
    pub(super) not_ready: Option<(Duration, Duration)>,
    pub(super) runtime_outages: Option<(Duration, Duration)>,
    pub(super) api_outages: Option<(Duration, Duration)>,
    pub(super) shortages: Option<(Duration, Duration)>,
    pub(super) shutdowns: Option<Duration>,
}

impl FaultPlan {
    /// No faults.
    pub fn none() -> Self {
        Self {
            runtime_calls: 0.0,
            api_requests: 0.0,
            container_events: 0.0,
            mounts: 0.0,
            plugin_calls: 0.0,
            state_crashes: 0.0,
            device_changes: None,
            container_crashes: None,
            agent_restarts: None,
            agent_stops: None,
            sandbox_crashes: None,
            reboots: None,
            not_ready: None,
            runtime_outages: None,
            api_outages: None,
            shortages: None,
            shutdowns: None,
        }
    }

    /// A storm: some of every kind of fault.
    pub fn storm() -> Self {
        Self::none()
            .runtime_calls(0.05)
            .api_requests(0.05)
            .container_events(0.1)
            .mounts(0.05)
            .plugin_calls(0.1)
            .state_crashes(0.05)
            .device_changes(Duration::from_secs(300))
            .container_crashes(Duration::from_secs(120))
            .agent_restarts(Duration::from_secs(900))
            .agent_stops(Duration::from_secs(1800))
            .sandbox_crashes(Duration::from_secs(900))
            .reboots(Duration::from_secs(3000))
            .not_ready(Duration::from_secs(1800), Duration::from_secs(40))
            .runtime_outages(Duration::from_secs(1200), Duration::from_secs(60))
            .api_outages(Duration::from_secs(1500), Duration::from_secs(90))
    }

    /// The faults of a day, drawn from a seed: none, a few or many of each kind.
    pub fn drawn(seed: u64) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut rate = |much: f64| [0.0, 0.0, much / 10.0, much][rng.usize(..4)];
        let mut plan = Self::none()
            .runtime_calls(rate(0.2))
            .api_requests(rate(0.2))
            .container_events(rate(1.0));
        let mut every = |often: u64| {
            let of_hours = [0, 0, often, often * 4][rng.usize(..4)];
            (of_hours > 0).then(|| Duration::from_secs(of_hours * 3600))
        };
        plan.container_crashes = every(1);
        plan.sandbox_crashes = every(2);
        plan.agent_restarts = every(1);
        plan.agent_stops = every(2);
        plan.reboots = every(4);
        let [trouble, runtime, api] = [every(2), every(2), every(2)];
        let mut lasts = || Duration::from_secs([5, 30, 120, 1200][rng.usize(..4)]);
        plan.not_ready = trouble.map(|every| (every, lasts()));
        plan.runtime_outages = runtime.map(|every| (every, lasts()));
        plan.api_outages = api.map(|every| (every, lasts()));
        plan.mounts = [0.0, 0.0, 0.02, 0.2][rng.usize(..4)];
        plan.plugin_calls = [0.0, 0.0, 0.05, 0.3][rng.usize(..4)];
        plan.state_crashes = [0.0, 0.0, 0.02, 0.2][rng.usize(..4)];
        let changes = [0, 0, 120, 900][rng.usize(..4)];
        plan.device_changes = (changes > 0).then(|| Duration::from_secs(changes));
        plan
    }

    /// The fraction of calls to the runtimes that fail: an error before or after the work, a lost reply, a delay
    /// before or after the work, no answer at all. 0 is none, 1 is all.
    pub fn runtime_calls(mut self, rate: f64) -> Self {
        self.runtime_calls = rate;
        self
    }

    /// The fraction of the agents' requests to the API server that fail: 429, 500, a lost reply, a dropped
    /// connection, a delay before or after the work, no answer at all.
    pub fn api_requests(mut self, rate: f64) -> Self {
        self.api_requests = rate;
        self
    }

    /// The fraction of the runtimes' container events that are lost, doubled, late or out of order.
    pub fn container_events(mut self, rate: f64) -> Self {
        self.container_events = rate;
        self
    }

    /// The fraction of mounts and unmounts that fail: an error before or after the work, a delay before or after the work, no
    /// answer until the faults end. 0 is none, 1 is all.
    pub fn mounts(mut self, rate: f64) -> Self {
        self.mounts = rate;
        self
    }

    /// The fraction of calls to device plugins and to drivers of claims that fail, hang, are slow, or end the plugin. Only for agents
    /// that [manage resources](crate::Simulation::managed_resources), as the next two.
    pub fn plugin_calls(mut self, rate: f64) -> Self {
        self.plugin_calls = rate;
        self
    }

    /// The fraction of writes of the state files of resources at which an agent crashes, before or after the write. It starts again a
    /// few seconds later.
    pub fn state_crashes(mut self, rate: f64) -> Self {
        self.state_crashes = rate;
        self
    }

    /// The mean time between changes of devices: one fails or works again, or a plugin restarts.
    pub fn device_changes(mut self, every: Duration) -> Self {
        self.device_changes = Some(every);
        self
    }

    /// The mean time between kills of a running container from outside (137).
    pub fn container_crashes(mut self, every: Duration) -> Self {
        self.container_crashes = Some(every);
        self
    }

    /// The mean time between kills of an agent, as by `kill -9`. It starts again a few seconds later.
    pub fn agent_restarts(mut self, every: Duration) -> Self {
        self.agent_restarts = Some(every);
        self
    }

    /// The mean time between shutdowns of an agent. It starts again a few seconds after its end.
    pub fn agent_stops(mut self, every: Duration) -> Self {
        self.agent_stops = Some(every);
        self
    }

    /// The mean time between kills of the processes of a pod's sandbox.
    pub fn sandbox_crashes(mut self, every: Duration) -> Self {
        self.sandbox_crashes = Some(every);
        self
    }

    /// The mean time between power losses of a node: agent, runtime and all containers end. Its disk stays.
    pub fn reboots(mut self, every: Duration) -> Self {
        self.reboots = Some(every);
        self
    }

    /// The mean time between periods in which a runtime reports that it, or its network, is not ready.
    pub fn not_ready(mut self, every: Duration, length: Duration) -> Self {
        self.not_ready = Some((every, length));
        self
    }

    /// The mean time between outages of a runtime. Its containers continue to run.
    pub fn runtime_outages(mut self, every: Duration, length: Duration) -> Self {
        self.runtime_outages = Some((every, length));
        self
    }

    /// The mean time between outages of the API server.
    pub fn api_outages(mut self, every: Duration, length: Duration) -> Self {
        self.api_outages = Some((every, length));
        self
    }

    /// The mean time between periods in which the containers of a node use more and more of its memory, disk, inodes or process
    /// ids. The agent then evicts pods. Pods have priorities.
    pub fn shortages(mut self, every: Duration, length: Duration) -> Self {
        self.shortages = Some((every, length));
        self
    }

    /// The mean time between orderly shutdowns of a host: its agent ends the pods, then the host is switched off, and starts
    /// again. Pods have priorities.
    pub fn shutdowns(mut self, every: Duration) -> Self {
        self.shutdowns = Some(every);
        self
    }

    /// Whether agents need the managers of eviction and of shutdowns.
    pub(super) fn has_pressure(&self) -> bool {
        self.shortages.is_some() || self.shutdowns.is_some()
    }

    /// The faults of a runtime's calls and events.
    pub(super) fn befall_runtime(&self, runtime: &MemoryCri) {
        let faults = runtime.faults();
        if self.runtime_calls > 0.0 {
            let calls = || faults.on_any_call().rate(self.runtime_calls / 7.0);
            calls().fails(Code::Internal, "drawn");
            calls().reply_fails(Code::Unknown, "drawn");
            calls().reply_lost();
            calls().slow(Duration::from_secs(3));
            calls().reply_delayed(Duration::from_secs(3));
            calls().hangs();
            calls().reply_hangs();
        }
        if self.container_events > 0.0 {
            let rate = self.container_events / 4.0;
            faults.on_any_event().rate(rate).lost();
            faults.on_any_event().rate(rate).doubled();
            faults.on_any_event().rate(rate).late(Duration::from_secs(20));
            faults.on_any_event().rate(rate).reordered();
        }
    }

    /// The faults of a user's requests.
    pub(super) fn befall_user(&self, api: &ApiServer, user: &str) {
        if self.api_requests <= 0.0 {
            return;
        }
        let rate = self.api_requests / 8.0;
        let requests = || api.faults().on_any_call().user(user).rate(rate);
        requests().fails(500, "drawn");
        requests().too_many_requests(Duration::from_secs(1));
        requests().connection_lost();
        requests().reply_lost();
        requests().slow(Duration::from_secs(2));
        requests().reply_delayed(Duration::from_secs(2));
        requests().hangs();
        requests().reply_hangs();
        let watches = || api.faults().on(Verb::Watch).user(user).rate(self.api_requests);
        watches().gone();
        watches().broken_after(Duration::from_secs(20));
        watches().closed_after(Duration::from_secs(20));
        watches().silent_after(Duration::from_secs(20));
    }
}

/// Prints the code for it in a test.
impl fmt::Display for FaultPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FaultPlan::none()")?;
        for (name, rate) in [
            ("runtime_calls", self.runtime_calls),
            ("api_requests", self.api_requests),
            ("container_events", self.container_events),
            ("mounts", self.mounts),
            ("plugin_calls", self.plugin_calls),
            ("state_crashes", self.state_crashes),
        ] {
            if rate > 0.0 {
                write!(f, ".{name}({rate})")?;
            }
        }
        for (name, every) in [
            ("container_crashes", self.container_crashes),
            ("agent_restarts", self.agent_restarts),
            ("agent_stops", self.agent_stops),
            ("sandbox_crashes", self.sandbox_crashes),
            ("reboots", self.reboots),
            ("shutdowns", self.shutdowns),
            ("device_changes", self.device_changes),
        ] {
            if let Some(every) = every {
                write!(f, ".{name}({})", Time(every))?;
            }
        }
        for (name, outages) in [
            ("not_ready", self.not_ready),
            ("runtime_outages", self.runtime_outages),
            ("api_outages", self.api_outages),
            ("shortages", self.shortages),
        ] {
            if let Some((every, length)) = outages {
                write!(f, ".{name}({}, {})", Time(every), Time(length))?;
            }
        }
        Ok(())
    }
}

/// Prints the code for a duration.
pub(super) struct Time(pub(super) Duration);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.subsec_millis() == 0 {
            write!(f, "Duration::from_secs({})", self.0.as_secs())
        } else {
            write!(f, "Duration::from_millis({})", self.0.as_millis())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_written_as_in_a_test() {
        let plan = FaultPlan::none()
            .runtime_calls(0.05)
            .agent_restarts(Duration::from_secs(600))
            .api_outages(Duration::from_secs(900), Duration::from_millis(1500));
        let text = "FaultPlan::none().runtime_calls(0.05).agent_restarts(Duration::from_secs(600))\
            .api_outages(Duration::from_secs(900), Duration::from_millis(1500))";
        assert_eq!(plan.to_string(), text);
    }
}
