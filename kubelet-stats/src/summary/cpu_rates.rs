//! The CPU time per second of containers that only the runtime reports.

use std::collections::HashMap;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kubelet_core::stats::RuntimeContainerUsage;
use parking_lot::Mutex;

/// A usage that was not updated for this long is forgotten (`defaultCachePeriod`).
const CACHE_PERIOD: SignedDuration = SignedDuration::from_mins(10);

/// The last CPU time of each container, and the rate then (`cpuUsageCache`).
#[derive(Default)]
pub(super) struct CpuRates(Mutex<HashMap<String, Known>>);

struct Known {
    timestamp: Timestamp,
    total: u64,
    rate: Option<u64>,
}

impl CpuRates {
    /// The rate that the runtime reports, or else the one that was last [computed](Self::update)
    /// (`getContainerUsageNanoCores`).
    pub(super) fn get(&self, usage: &RuntimeContainerUsage) -> Option<u64> {
        let reported = usage.cpu.as_ref().and_then(|cpu| cpu.usage_nano_cores);
        reported.or_else(|| self.0.lock().get(&usage.id)?.rate)
    }

    /// The rate that the runtime reports, or else the one since the last update (`getAndUpdateContainerUsageNanoCores`).
    pub(super) fn update(&self, usage: &RuntimeContainerUsage) -> Option<u64> {
        let cpu = usage.cpu.as_ref()?;
        if cpu.usage_nano_cores.is_some() {
            return cpu.usage_nano_cores;
        }
        let total = cpu.usage_core_nano_seconds?;
        let mut known = self.0.lock();
        let mut new = Known {
            timestamp: cpu.timestamp,
            total,
            rate: None,
        };
        if let Some(before) = known.get(&usage.id)
            && total >= before.total
        {
            let passed = cpu.timestamp.duration_since(before.timestamp).as_nanos();
            if passed <= 0 {
                tracing::debug!(container = %usage.id, "the runtime reported the CPU time of the same moment again");
                return before.rate;
            }
            new.rate = Some(((total - before.total) as f64 / passed as f64 * 1e9) as u64);
        }
        let rate = new.rate;
        known.insert(usage.id.clone(), new);
        rate
    }

    /// Forgets containers that are gone (`cleanupOutdatedCaches`).
    pub(super) fn clean_up(&self, now: Timestamp) {
        let is_young = |known: &Known| now.duration_since(known.timestamp) <= CACHE_PERIOD;
        self.0.lock().retain(|_, known| is_young(known));
    }
}

#[cfg(test)]
mod tests {
    use kubelet_core::stats::RuntimeCpu;

    use super::*;

    #[test]
    fn the_rate_since_the_last_update() {
        let rates = CpuRates::default();
        let usage = |second, total, reported| RuntimeContainerUsage {
            id: "c".to_owned(),
            cpu: Some(RuntimeCpu {
                timestamp: Timestamp::from_second(second).unwrap(),
                usage_core_nano_seconds: total,
                usage_nano_cores: reported,
                psi: None,
            }),
            ..Default::default()
        };
        assert_eq!(rates.update(&usage(0, None, None)), None);
        assert_eq!(rates.update(&usage(0, Some(1000), None)), None);
        assert_eq!(rates.get(&usage(1, Some(2000), None)), None);
        assert_eq!(rates.update(&usage(2, Some(5000), None)), Some(2000));
        assert_eq!(
            rates.update(&usage(2, Some(5000), None)),
            Some(2000),
            "no time has passed"
        );
        assert_eq!(rates.get(&usage(3, Some(5000), None)), Some(2000));
        assert_eq!(
            rates.update(&usage(3, Some(6000), Some(7))),
            Some(7),
            "the runtime's own"
        );
        assert_eq!(rates.update(&usage(4, Some(9000), None)), Some(2000));
        assert_eq!(
            rates.update(&usage(5, Some(10), None)),
            None,
            "the counter was reset"
        );
        assert_eq!(rates.update(&usage(6, Some(110), None)), Some(100));
        rates.clean_up(Timestamp::from_second(607).unwrap());
        assert_eq!(rates.update(&usage(608, Some(200), None)), None);
    }
}
