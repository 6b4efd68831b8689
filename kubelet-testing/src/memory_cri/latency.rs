//! How long calls take.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Call;

/// The latency of each call, on tokio's clock. Scripts and faults add to it.
///
/// ```
/// use std::time::Duration;
/// use kubelet_testing::memory_cri::{Call, Latency};
///
/// let slow_network = Latency::containerd().of(Call::RunPodSandbox, Duration::from_secs(4));
/// assert_eq!(slow_network.get(Call::StartContainer), Duration::from_millis(46));
/// assert_eq!(Latency::none().get(Call::RunPodSandbox), Duration::ZERO);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Latency {
    calls: BTreeMap<Call, Duration>,
}

impl Latency {
    /// No latency.
    pub fn none() -> Self {
        Self {
            calls: BTreeMap::new(),
        }
    }

    /// Latencies measured with containerd on two cores with a bridge network: 70 ms for a sandbox, 6 ms to create a
    /// container, 46 ms to start it, 100 ms to stop a sandbox, 1 ms for a list or a status, 500 ms for a pull.
    pub fn containerd() -> Self {
        let calls = Call::ALL.map(|call| {
            let millis = match call {
                Call::RunPodSandbox => 70,
                Call::CreateContainer => 6,
                Call::StartContainer => 46,
                Call::StopContainer => 15,
                Call::StopPodSandbox => 100,
                Call::RemovePodSandbox => 30,
                Call::RemoveContainer | Call::RemoveImage => 12,
                Call::ExecSync => 40,
                Call::PullImage => 500,
                Call::UpdateContainerResources | Call::ContainerStats => 4,
                Call::GetContainerEvents => 0,
                _ => 1,
            };
            (call, Duration::from_millis(millis))
        });
        Self {
            calls: calls.into_iter().collect(),
        }
    }

    /// Sets the latency of one call.
    pub fn of(mut self, call: Call, takes: Duration) -> Self {
        self.calls.insert(call, takes);
        self
    }

    /// The latency of a call.
    pub fn get(&self, call: Call) -> Duration {
        self.calls.get(&call).copied().unwrap_or_default()
    }
}

/// [`Latency::containerd`]
impl Default for Latency {
    fn default() -> Self {
        Self::containerd()
    }
}
