//! Numbers, durations and what else stands for itself.

use super::super::{GoDuration, KubeletConfiguration};
use super::errors::Problems;
use crate::FeatureGates;

/// The default of the kernel.
const DEFAULT_CFS_QUOTA_PERIOD: GoDuration = GoDuration::from_millis(100);
const LEAST_CONTAINER_LOG_MONITOR_INTERVAL: GoDuration = GoDuration::from_secs(3);
/// In milliseconds.
const CONTAINER_RESTART_PERIOD: std::ops::RangeInclusive<i64> = 1_000..=300_000;
const NANOS_PER_MILLI: i64 = 1_000_000;
/// The version before that of the kubelet this crate follows.
const PREVIOUS_MINOR_VERSION: &str = "1.35";

pub(super) fn validate(config: &KubeletConfiguration, gates: &FeatureGates, problems: &mut Problems) {
    numbers(config, problems);
    ports(config, problems);
    cpu_quota(config, gates, problems);
    crash_loop(config, gates, problems);
    container_logs(config, problems);
    memory_qos(config, gates, problems);

    if config.server_tls_bootstrap && !gates.enabled("RotateKubeletServerCertificate") {
        let why = "requires feature gate RotateKubeletServerCertificate";
        problems.invalid("serverTLSBootstrap", true, why);
    }
    if config.run_once {
        problems.invalid("runOnce", true, "is no longer there and must not be set");
    }
    if !matches!(
        config.show_hidden_metrics_for_version.as_str(),
        "" | PREVIOUS_MINOR_VERSION
    ) {
        problems.invalid_text(
            "showHiddenMetricsForVersion",
            &config.show_hidden_metrics_for_version,
            format!(
                "must be omitted or {PREVIOUS_MINOR_VERSION:?}: only the previous minor version is allowed"
            ),
        );
    }
    if config.container_runtime_endpoint.is_empty() {
        problems.invalid_text("containerRuntimeEndpoint", "", "must not be empty");
    }
    if config.enable_system_log_query {
        if !gates.enabled("NodeLogQuery") {
            problems.invalid("enableSystemLogQuery", true, "requires feature gate NodeLogQuery");
        }
        if !config.enable_system_log_handler {
            problems.invalid("enableSystemLogQuery", true, "requires enableSystemLogHandler");
        }
    }
}

fn numbers(config: &KubeletConfiguration, problems: &mut Problems) {
    problems.if_less("nodeLeaseDurationSeconds", config.node_lease_duration_seconds, 1);
    problems.if_less("eventBurst", config.event_burst, 0);
    problems.if_less("eventRecordQPS", config.event_record_qps, 0);
    problems.unless_within("iptablesDropBit", config.iptables_drop_bit, 0, 31);
    problems.unless_within("iptablesMasqueradeBit", config.iptables_masquerade_bit, 0, 31);
    problems.if_less("kubeAPIBurst", config.kube_api_burst, 0);
    problems.if_less("kubeAPIQPS", config.kube_api_qps, 0);
    problems.if_less("nodeStatusMaxImages", config.node_status_max_images, -1);
    problems.if_less("maxOpenFiles", config.max_open_files, 0);
    problems.if_less("maxPods", config.max_pods, 0);
    problems.unless_within("oomScoreAdj", config.oom_score_adj, -1000, 1000);
    problems.if_less("podsPerCore", config.pods_per_core, 0);
}

fn ports(config: &KubeletConfiguration, problems: &mut Problems) {
    const MOST: i32 = u16::MAX as i32;
    problems.unless_within("port", config.port, 1, MOST);
    problems.unless_within("healthzPort", config.healthz_port, 0, MOST);
    problems.unless_within("readOnlyPort", config.read_only_port, 0, MOST);
}

fn cpu_quota(config: &KubeletConfiguration, gates: &FeatureGates, problems: &mut Problems) {
    let period = config.cpu_cfs_quota_period;
    let within = GoDuration::from_millis(1)..=GoDuration::from_secs(1);
    if gates.enabled("CustomCPUCFSQuotaPeriod") {
        if !within.contains(&period) {
            problems.invalid(
                "cpuCFSQuotaPeriod",
                period,
                "must be between 1ms and 1s, inclusive",
            );
        }
    } else if period != DEFAULT_CFS_QUOTA_PERIOD {
        problems.invalid(
            "cpuCFSQuotaPeriod",
            period,
            "requires feature gate CustomCPUCFSQuotaPeriod",
        );
    }
}

fn crash_loop(config: &KubeletConfiguration, gates: &FeatureGates, problems: &mut Problems) {
    const FIELD: &str = "crashLoopBackOff.maxContainerRestartPeriod";
    let period = config.crash_loop_back_off.max_container_restart_period;
    match (period, gates.enabled("KubeletCrashLoopBackOffMax")) {
        (None, true) => {
            problems.invalid(
                FIELD,
                "null",
                "must be set with feature gate KubeletCrashLoopBackOffMax",
            );
        }
        (Some(period), true) => {
            if !CONTAINER_RESTART_PERIOD.contains(&(period.as_nanos() / NANOS_PER_MILLI)) {
                problems.invalid(FIELD, period, "must be between 1s and 300s");
            }
        }
        (Some(period), false) => {
            problems.invalid(FIELD, period, "requires feature gate KubeletCrashLoopBackOffMax");
        }
        (None, false) => {}
    }
}

fn container_logs(config: &KubeletConfiguration, problems: &mut Problems) {
    problems.if_less("containerLogMaxWorkers", config.container_log_max_workers, 1);
    problems.if_less("containerLogMaxFiles", config.container_log_max_files, 2);
    if config.container_log_monitor_interval < LEAST_CONTAINER_LOG_MONITOR_INTERVAL {
        let interval = config.container_log_monitor_interval;
        problems.invalid("containerLogMonitorInterval", interval, "must be at least 3s");
    }
    pod_logs_dir(&config.pod_logs_dir, problems);
}

fn pod_logs_dir(path: &str, problems: &mut Problems) {
    const FIELD: &str = "podLogsDir";
    if path.is_empty() {
        return problems.invalid_text(FIELD, path, "must be set");
    }
    if !path.starts_with('/') {
        problems.invalid_text(FIELD, path, "must be an absolute path");
    }
    if !is_clean(path) {
        problems.invalid_text(FIELD, path, "must be normalized");
    }
    // It is a label of metrics.
    if !path.is_ascii() {
        problems.invalid_text(FIELD, path, "must contain only ASCII characters");
    }
}

/// Whether Go's `filepath.Clean` leaves it as it is: without `.`, doubled or trailing slashes, and with `..` at
/// most at the beginning of a relative path.
fn is_clean(path: &str) -> bool {
    if matches!(path, "/" | ".") {
        return true;
    }
    let (absolute, relative) = match path.strip_prefix('/') {
        Some(rest) => (true, rest),
        None => (false, path),
    };
    let mut back_allowed = !absolute;
    relative.split('/').all(|part| match part {
        "" | "." => false,
        ".." => back_allowed,
        _ => {
            back_allowed = false;
            true
        }
    })
}

fn memory_qos(config: &KubeletConfiguration, gates: &FeatureGates, problems: &mut Problems) {
    let on = gates.enabled("MemoryQoS");
    match config.memory_throttling_factor {
        None if on => {
            problems.invalid(
                "memoryThrottlingFactor",
                "null",
                "must be set with feature gate MemoryQoS",
            );
        }
        Some(factor) if factor <= 0.0 || factor > 1.0 => {
            let why = "must be greater than 0 and less than or equal to 1.0";
            problems.invalid("memoryThrottlingFactor", factor, why);
        }
        _ => {}
    }
    match config.memory_reservation_policy.as_str() {
        "TieredReservation" if !on => {
            let why = "requires feature gate MemoryQoS";
            problems.invalid_text("memoryReservationPolicy", "TieredReservation", why);
        }
        policy => problems.unless_one_of("memoryReservationPolicy", policy, &["None", "TieredReservation"]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clean_paths() {
        for path in [
            "/",
            "/a",
            "/a/b",
            "a/b",
            "..",
            "../a",
            "../../a",
            ".",
            "/a..b/...",
            "/a b",
        ] {
            assert!(is_clean(path), "{path}");
        }
        for path in [
            "", "//", "/a/", "/a//b", "/./a", "a/.", "/..", "/../a", "a/../b", "./a",
        ] {
            assert!(!is_clean(path), "{path}");
        }
    }
}
