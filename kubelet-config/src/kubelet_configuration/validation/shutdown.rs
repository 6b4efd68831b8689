//! Graceful node shutdown.

use super::super::{GoDuration, KubeletConfiguration};
use super::errors::Problems;
use crate::FeatureGates;

const WHOLE: &str = "shutdownGracePeriod";
const CRITICAL: &str = "shutdownGracePeriodCriticalPods";
const BY_PRIORITY: &str = "shutdownGracePeriodByPodPriority";

pub(super) fn validate(config: &KubeletConfiguration, gates: &FeatureGates, problems: &mut Problems) {
    let whole = config.shutdown_grace_period;
    let critical = config.shutdown_grace_period_critical_pods;
    let some = whole > GoDuration::ZERO || critical > GoDuration::ZERO;

    if gates.enabled("GracefulNodeShutdown") {
        if critical > whole {
            problems.invalid(
                CRITICAL,
                critical,
                format!("must be no more than {WHOLE} ({whole})"),
            );
        }
        for (field, period) in [(WHOLE, whole), (CRITICAL, critical)] {
            if period != GoDuration::ZERO && period < GoDuration::from_secs(1) {
                problems.invalid(field, period, "must be zero or at least 1s");
            }
        }
    } else if some {
        for (field, period) in [(WHOLE, whole), (CRITICAL, critical)] {
            if period > GoDuration::ZERO {
                problems.invalid(field, period, "requires feature gate GracefulNodeShutdown");
            }
        }
    }

    let priorities = config.shutdown_grace_period_by_pod_priority.len();
    if priorities == 0 {
        return;
    }
    let value = format_args!("{priorities} priorities").to_string();
    if !gates.enabled("GracefulNodeShutdownBasedOnPodPriority") {
        let why = "requires feature gate GracefulNodeShutdownBasedOnPodPriority";
        problems.invalid(BY_PRIORITY, value, why);
    } else if some {
        problems.invalid(
            BY_PRIORITY,
            value,
            format!("cannot be set together with {WHOLE} or {CRITICAL}"),
        );
    }
}
