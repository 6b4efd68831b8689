//! The settings of a PLEG, and the kubelet's values for them.

use std::time::Duration;

use kubelet_core::Clock;

/// The kubelet's `genericPlegRelistPeriod`.
const RELIST_PERIOD: Duration = Duration::from_secs(1);
/// The kubelet's `genericPlegRelistThreshold`.
const RELIST_THRESHOLD: Duration = Duration::from_secs(3 * 60);
/// The kubelet's default of `runtimeRequestTimeout`.
const INSPECTION_DEADLINE: Duration = Duration::from_secs(2 * 60);
/// The kubelet inspects one pod after the other. A runtime can answer several calls at once.
const MAX_CONCURRENT_INSPECTIONS: usize = 16;

/// The settings that both PLEGs have.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) relist_period: Duration,
    pub(crate) relist_threshold: Duration,
    pub(crate) max_concurrent_inspections: usize,
    pub(crate) inspection_deadline: Duration,
    pub(crate) clock: Clock,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            relist_period: RELIST_PERIOD,
            relist_threshold: RELIST_THRESHOLD,
            max_concurrent_inspections: MAX_CONCURRENT_INSPECTIONS,
            inspection_deadline: INSPECTION_DEADLINE,
            clock: Clock::system(),
        }
    }
}
