//! Rules about single values, or a few that belong together.

use super::*;

#[test]
fn numbers() {
    told(&[
        (
            |c| c.node_lease_duration_seconds = 0,
            &["nodeLeaseDurationSeconds"],
        ),
        (|c| c.node_lease_duration_seconds = 1, &[]),
        (|c| c.event_burst = -1, &["eventBurst"]),
        (|c| c.event_record_qps = -1, &["eventRecordQPS"]),
        (|c| (c.event_burst, c.event_record_qps) = (0, 0), &[]),
        (|c| c.iptables_drop_bit = 32, &["iptablesDropBit"]),
        (|c| c.iptables_masquerade_bit = -1, &["iptablesMasqueradeBit"]),
        (
            |c| (c.iptables_drop_bit, c.iptables_masquerade_bit) = (0, 31),
            &[],
        ),
        (|c| c.kube_api_burst = -1, &["kubeAPIBurst"]),
        (|c| c.kube_api_qps = -1, &["kubeAPIQPS"]),
        (|c| c.node_status_max_images = -2, &["nodeStatusMaxImages"]),
        (|c| c.node_status_max_images = -1, &[]),
        (|c| c.max_open_files = -1, &["maxOpenFiles"]),
        (|c| c.max_open_files = i64::MIN, &["maxOpenFiles"]),
        (|c| c.max_pods = -1, &["maxPods"]),
        (|c| c.max_pods = 0, &[]),
        (|c| c.oom_score_adj = -1001, &["oomScoreAdj"]),
        (|c| c.oom_score_adj = 1001, &["oomScoreAdj"]),
        (|c| c.oom_score_adj = 1000, &[]),
        (|c| c.pods_per_core = -1, &["podsPerCore"]),
    ]);
}

#[test]
fn ports() {
    told(&[
        (|c| c.port = 0, &["port"]),
        (|c| c.port = 65536, &["port"]),
        (|c| c.port = 65535, &[]),
        (|c| c.healthz_port = -1, &["healthzPort"]),
        (|c| c.healthz_port = 65536, &["healthzPort"]),
        (|c| c.healthz_port = 0, &[]),
        (|c| c.read_only_port = -1, &["readOnlyPort"]),
        (|c| c.read_only_port = 65536, &["readOnlyPort"]),
        (|c| c.read_only_port = 10255, &[]),
    ]);
}

#[test]
fn what_stands_for_itself() {
    told(&[
        (|c| c.run_once = true, &["runOnce"]),
        (|c| c.show_hidden_metrics_for_version = "1.35".into(), &[]),
        (
            |c| c.show_hidden_metrics_for_version = "1.36".into(),
            &["showHiddenMetricsForVersion"],
        ),
        (
            |c| c.container_runtime_endpoint.clear(),
            &["containerRuntimeEndpoint"],
        ),
        (|c| c.enable_system_log_query = true, &[]),
        (
            |c| (c.enable_system_log_query, c.enable_system_log_handler) = (true, false),
            &["enableSystemLogQuery"],
        ),
        (|c| c.server_tls_bootstrap = true, &[]),
        (
            |c| {
                c.server_tls_bootstrap = true;
                c.feature_gates = gates("RotateKubeletServerCertificate=false");
            },
            &["serverTLSBootstrap"],
        ),
    ]);
}

#[test]
fn images() {
    told(&[
        (
            |c| c.image_gc_high_threshold_percent = 101,
            &["imageGCHighThresholdPercent"],
        ),
        (
            |c| c.image_gc_low_threshold_percent = -1,
            &["imageGCLowThresholdPercent"],
        ),
        (
            |c| c.image_gc_low_threshold_percent = 85,
            &["imageGCLowThresholdPercent"],
        ),
        (
            |c| {
                (
                    c.image_gc_low_threshold_percent,
                    c.image_gc_high_threshold_percent,
                ) = (101, 101)
            },
            &[
                "imageGCHighThresholdPercent",
                "imageGCLowThresholdPercent",
                "imageGCLowThresholdPercent",
            ],
        ),
        (
            |c| {
                (
                    c.image_gc_low_threshold_percent,
                    c.image_gc_high_threshold_percent,
                ) = (0, 1)
            },
            &[],
        ),
        (|c| c.image_minimum_gc_age = millis(-1), &["imageMinimumGCAge"]),
        (|c| c.image_maximum_gc_age = millis(-1), &["imageMaximumGCAge"]),
        (
            |c| c.image_maximum_gc_age = c.image_minimum_gc_age,
            &["imageMaximumGCAge"],
        ),
        (|c| c.image_maximum_gc_age = millis(120_001), &[]),
        (|c| c.registry_burst = -1, &["registryBurst"]),
        (|c| c.registry_pull_qps = -1, &["registryPullQPS"]),
        (
            |c| c.max_parallel_image_pulls = Some(0),
            &["maxParallelImagePulls"],
        ),
        (|c| c.max_parallel_image_pulls = Some(1), &[]),
        (
            |c| c.max_parallel_image_pulls = Some(2),
            &["maxParallelImagePulls"],
        ),
        (
            |c| (c.max_parallel_image_pulls, c.serialize_image_pulls) = (Some(2), false),
            &[],
        ),
    ]);
}

#[test]
fn use_of_pulled_images() {
    const POLICY: &str = "imagePullCredentialsVerificationPolicy";
    const ALLOWLIST: &str = "preloadedImagesVerificationAllowlist";
    told(&[
        (
            |c| c.image_pull_credentials_verification_policy = "AlwaysVerify".into(),
            &[],
        ),
        (
            |c| c.image_pull_credentials_verification_policy = "Always".into(),
            &[POLICY],
        ),
        (
            |c| c.preloaded_images_verification_allowlist = texts(&["a"]),
            &[ALLOWLIST],
        ),
        (
            |c| {
                c.image_pull_credentials_verification_policy = "NeverVerifyAllowlistedImages".into();
                c.preloaded_images_verification_allowlist = texts(&["a", "a:1", "b.io/*"]);
            },
            &["preloadedImagesVerificationAllowlist[1]"],
        ),
        (
            |c| {
                c.feature_gates = gates("KubeletEnsureSecretPulledImages=false");
                c.preloaded_images_verification_allowlist = texts(&["a"]);
            },
            &[POLICY, ALLOWLIST],
        ),
        (
            |c| {
                c.feature_gates = gates("KubeletEnsureSecretPulledImages=false");
                c.image_pull_credentials_verification_policy.clear();
            },
            &[],
        ),
    ]);
}

#[test]
fn periods() {
    const RESTART: &str = "crashLoopBackOff.maxContainerRestartPeriod";
    told(&[
        (
            |c| c.cpu_cfs_quota_period = GoDuration::from_nanos(999_999),
            &["cpuCFSQuotaPeriod"],
        ),
        (|c| c.cpu_cfs_quota_period = millis(1), &[]),
        (|c| c.cpu_cfs_quota_period = millis(1000), &[]),
        (|c| c.cpu_cfs_quota_period = millis(1001), &["cpuCFSQuotaPeriod"]),
        (
            |c| {
                c.feature_gates = gates("CustomCPUCFSQuotaPeriod=false");
                c.cpu_cfs_quota_period = millis(50);
            },
            &["cpuCFSQuotaPeriod"],
        ),
        (|c| c.feature_gates = gates("CustomCPUCFSQuotaPeriod=false"), &[]),
        (
            |c| c.crash_loop_back_off.max_container_restart_period = None,
            &[RESTART],
        ),
        (
            |c| c.crash_loop_back_off.max_container_restart_period = Some(millis(999)),
            &[RESTART],
        ),
        (
            |c| c.crash_loop_back_off.max_container_restart_period = Some(millis(1000)),
            &[],
        ),
        // Fractions of a millisecond do not count.
        (
            |c| {
                c.crash_loop_back_off.max_container_restart_period =
                    Some(GoDuration::from_nanos(300_000_999_999))
            },
            &[],
        ),
        (
            |c| c.crash_loop_back_off.max_container_restart_period = Some(millis(300_001)),
            &[RESTART],
        ),
        (
            |c| c.feature_gates = gates("KubeletCrashLoopBackOffMax=false"),
            &[RESTART],
        ),
        (
            |c| {
                c.feature_gates = gates("KubeletCrashLoopBackOffMax=false");
                c.crash_loop_back_off.max_container_restart_period = None;
            },
            &[],
        ),
    ]);
}

#[test]
fn container_logs() {
    told(&[
        (|c| c.container_log_max_workers = 0, &["containerLogMaxWorkers"]),
        (
            |c| c.container_log_monitor_interval = millis(2999),
            &["containerLogMonitorInterval"],
        ),
        (|c| c.container_log_monitor_interval = millis(3000), &[]),
        (|c| c.container_log_max_files = 1, &["containerLogMaxFiles"]),
        (|c| c.container_log_max_files = 2, &[]),
        (|c| c.pod_logs_dir.clear(), &["podLogsDir"]),
        (|c| c.pod_logs_dir = "logs".into(), &["podLogsDir"]),
        (|c| c.pod_logs_dir = "/var/./log".into(), &["podLogsDir"]),
        (
            |c| c.pod_logs_dir = "/var/lög/".into(),
            &["podLogsDir", "podLogsDir"],
        ),
    ]);
}

#[test]
fn memory_qos() {
    told(&[
        (
            |c| c.memory_throttling_factor = Some(0.0),
            &["memoryThrottlingFactor"],
        ),
        (
            |c| c.memory_throttling_factor = Some(1.1),
            &["memoryThrottlingFactor"],
        ),
        (|c| c.memory_throttling_factor = Some(1.0), &[]),
        (|c| c.memory_throttling_factor = None, &[]),
        (
            |c| {
                c.feature_gates = gates("MemoryQoS=true");
                c.memory_throttling_factor = None;
            },
            &["memoryThrottlingFactor"],
        ),
        (
            |c| c.memory_reservation_policy = "TieredReservation".into(),
            &["memoryReservationPolicy"],
        ),
        (
            |c| {
                c.feature_gates = gates("MemoryQoS=true");
                c.memory_reservation_policy = "TieredReservation".into();
            },
            &[],
        ),
        (
            |c| c.memory_reservation_policy = "none".into(),
            &["memoryReservationPolicy"],
        ),
    ]);
}
