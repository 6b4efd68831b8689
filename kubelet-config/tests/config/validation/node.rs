//! Rules about the node, its reservations, its shutdown and its log.

use super::*;

#[test]
fn the_node() {
    fn taint(key: &str, value: &str, effect: &str) -> Taint {
        let value = Some(value.to_owned());
        Taint {
            key: key.into(),
            value,
            effect: effect.into(),
            time_added: None,
        }
    }
    fn ids(ids_per_pod: i64) -> Option<UserNamespaces> {
        Some(UserNamespaces {
            ids_per_pod: Some(ids_per_pod),
        })
    }
    told(&[
        (|c| c.system_cgroups = "/system".into(), &["systemCgroups"]),
        (
            |c| (c.system_cgroups, c.cgroup_root) = ("/system".into(), "/".into()),
            &[],
        ),
        (
            |c| c.topology_manager_policy = "Restricted".into(),
            &["topologyManagerPolicy"],
        ),
        (|c| c.topology_manager_policy = "restricted".into(), &[]),
        (|c| c.topology_manager_scope.clear(), &["topologyManagerScope"]),
        (|c| c.topology_manager_scope = "pod".into(), &[]),
        (|c| c.hairpin_mode.clear(), &["hairpinMode"]),
        (|c| c.hairpin_mode = "hairpin-veth".into(), &[]),
        (|c| c.memory_swap.swap_behavior = "LimitedSwap".into(), &[]),
        (
            |c| c.memory_swap.swap_behavior = "UnlimitedSwap".into(),
            &["memorySwap.swapBehavior"],
        ),
        (|c| c.user_namespaces = ids(65_536), &[]),
        (|c| c.user_namespaces = ids(65_535), &["userNamespaces.idsPerPod"]),
        (|c| c.user_namespaces = ids(65_537), &["userNamespaces.idsPerPod"]),
        (|c| c.user_namespaces = ids(65_536 * 65_535), &[]),
        (
            |c| c.user_namespaces = ids(65_536 * 65_536),
            &["userNamespaces.idsPerPod"],
        ),
        (
            |c| c.register_with_taints = vec![taint("a", "", "NoExecute"), taint("a.io/b", "c", "")],
            &[],
        ),
        (
            |c| c.register_with_taints = vec![taint("a", "", "NoSchedule"), taint("", "b c", "Bogus")],
            &[
                "registerWithTaints[1].key",
                "registerWithTaints[1].value",
                "registerWithTaints[1].effect",
            ],
        ),
    ]);
}

#[test]
fn cgroup_versions() {
    let host = Host::default().with_cgroup_v1(true);
    let cases: [(Change, &[&str]); 3] = [
        (|_| {}, &["failCgroupV1"]),
        (|c| c.fail_cgroup_v1 = false, &[]),
        (
            |c| (c.fail_cgroup_v1, c.single_process_oom_kill) = (false, Some(false)),
            &["singleProcessOOMKill"],
        ),
    ];
    for (change, expected) in cases {
        let errors = errors(change, &FeatureGates::new(), &host);
        let fields: Vec<_> = errors.iter().map(|error| error.field.as_str()).collect();
        assert_eq!(fields, expected);
    }
    told(&[(|c| c.single_process_oom_kill = Some(false), &[])]);
}

#[test]
fn reservations() {
    fn memory(numa_node: i32, limits: &[(&str, &str)]) -> MemoryReservation {
        let limit = |&(kind, amount): &(&str, &str)| (kind.to_owned(), Quantity(amount.to_owned()));
        MemoryReservation {
            numa_node,
            limits: limits.iter().map(limit).collect(),
        }
    }
    told(&[
        (|c| c.enforce_node_allocatable = texts(&["none"]), &[]),
        (
            |c| c.enforce_node_allocatable = texts(&["none", "pods"]),
            &["enforceNodeAllocatable[0]"],
        ),
        (
            |c| c.enforce_node_allocatable = texts(&["pods", "pods"]),
            &["enforceNodeAllocatable[1]"],
        ),
        (
            |c| c.enforce_node_allocatable = texts(&["Pods"]),
            &["enforceNodeAllocatable[0]"],
        ),
        (
            |c| c.enforce_node_allocatable = texts(&["system-reserved"]),
            &["systemReservedCgroup"],
        ),
        (
            |c| c.enforce_node_allocatable = texts(&["kube-reserved-compressible"]),
            &["kubeReservedCgroup"],
        ),
        (
            |c| {
                c.enforce_node_allocatable = texts(&["system-reserved", "system-reserved-compressible"]);
                c.system_reserved_cgroup = "/s".into();
            },
            &["enforceNodeAllocatable"],
        ),
        (
            |c| {
                c.enforce_node_allocatable = texts(&["kube-reserved", "kube-reserved-compressible"]);
                c.kube_reserved_cgroup = "/k".into();
            },
            &["enforceNodeAllocatable"],
        ),
        (|c| c.cgroups_per_qos = false, &["cgroupsPerQOS"]),
        (
            |c| (c.cgroups_per_qos, c.enforce_node_allocatable) = (false, texts(&["none"])),
            &[],
        ),
        (
            |c| (c.cgroups_per_qos, c.enforce_node_allocatable) = (false, Vec::new()),
            &[],
        ),
        (|c| c.reserved_system_cpus = "0-3,7".into(), &[]),
        (|c| c.reserved_system_cpus = "3-0".into(), &["reservedSystemCPUs"]),
        (
            |c| (c.reserved_system_cpus, c.kube_reserved_cgroup) = ("0".into(), "/k".into()),
            &["reservedSystemCPUs"],
        ),
        (
            |c| {
                c.reserved_memory = vec![
                    memory(0, &[("memory", "1Gi"), ("hugepages-2Mi", "1")]),
                    memory(1, &[("memory", "1")]),
                ]
            },
            &[],
        ),
        (
            |c| c.reserved_memory = vec![memory(0, &[("cpu", "1"), ("memory", "0")])],
            &["reservedMemory[0].limits.cpu", "reservedMemory[0].limits.memory"],
        ),
        (
            |c| c.reserved_memory = vec![memory(0, &[("memory", "1")]), memory(0, &[("memory", "2")])],
            &["reservedMemory[1].limits.memory"],
        ),
    ]);
}

#[test]
fn shutdown() {
    const WHOLE: &str = "shutdownGracePeriod";
    const CRITICAL: &str = "shutdownGracePeriodCriticalPods";
    const BY_PRIORITY: &str = "shutdownGracePeriodByPodPriority";
    const NO_SHUTDOWN: &str = "GracefulNodeShutdown=false,GracefulNodeShutdownBasedOnPodPriority=false,\
                               WindowsGracefulNodeShutdown=false";
    told(&[
        (|c| c.shutdown_grace_period = millis(1000), &[]),
        (|c| c.shutdown_grace_period = millis(999), &[WHOLE]),
        (|c| c.shutdown_grace_period = millis(-1), &[CRITICAL, WHOLE]),
        (
            |c| c.shutdown_grace_period_critical_pods = millis(1000),
            &[CRITICAL],
        ),
        (
            |c| {
                (c.shutdown_grace_period, c.shutdown_grace_period_critical_pods) = (millis(2000), millis(999))
            },
            &[CRITICAL],
        ),
        (
            |c| c.shutdown_grace_period_critical_pods = millis(-1),
            &[CRITICAL],
        ),
        (
            |c| c.shutdown_grace_period_by_pod_priority = vec![ShutdownGracePeriodByPodPriority::default()],
            &[],
        ),
        (
            |c| {
                c.shutdown_grace_period_by_pod_priority = vec![ShutdownGracePeriodByPodPriority::default()];
                c.shutdown_grace_period = millis(1000);
            },
            &[BY_PRIORITY],
        ),
        (|c| c.feature_gates = gates(NO_SHUTDOWN), &[]),
        (
            |c| {
                c.feature_gates = gates(NO_SHUTDOWN);
                c.shutdown_grace_period = millis(1);
            },
            &[WHOLE],
        ),
        (
            |c| {
                c.feature_gates = gates("GracefulNodeShutdownBasedOnPodPriority=false");
                c.shutdown_grace_period_by_pod_priority = vec![ShutdownGracePeriodByPodPriority::default()];
            },
            &[BY_PRIORITY],
        ),
    ]);
}

#[test]
fn logging_and_tracing() {
    fn module(pattern: &str, verbosity: u32) -> VModuleItem {
        VModuleItem {
            file_pattern: pattern.into(),
            verbosity,
        }
    }
    fn tracing(endpoint: &str, rate: i32) -> Option<TracingConfiguration> {
        Some(TracingConfiguration {
            endpoint: Some(endpoint.into()),
            sampling_rate_per_million: Some(rate),
        })
    }
    told(&[
        (
            |c| c.logging.flush_frequency.duration = GoDuration::ZERO,
            &["logging.flushFrequency"],
        ),
        (|c| c.logging.format = "json".into(), &[]),
        (|c| c.logging.format = "xml".into(), &["logging.format"]),
        (|c| c.logging.format.clear(), &["logging.format"]),
        (|c| c.logging.verbosity = 1 << 31, &["logging.verbosity"]),
        (|c| c.logging.verbosity = (1 << 31) - 1, &[]),
        (|c| c.logging.vmodule = vec![module("a*", 3)], &[]),
        (
            |c| c.logging.vmodule = vec![module("", 1 << 31)],
            &["logging.vmodule[0].filePattern", "logging.vmodule[0].verbosity"],
        ),
        (
            |c| c.logging.vmodule = vec![module("a", 1), module("b=", 1)],
            &["logging.vmodule[1].filePattern"],
        ),
        (
            |c| (c.logging.format, c.logging.vmodule) = ("json".into(), vec![module("a", 1)]),
            &["logging.vmodule"],
        ),
        (
            |c| {
                c.logging.options.text.split_stream = true;
                c.logging.options.json.info_buffer_size = Quantity("1Ki".into());
            },
            &[
                "logging.options.text.splitStream",
                "logging.options.json.infoBufferSize",
            ],
        ),
        (
            |c| {
                c.feature_gates = gates("LoggingAlphaOptions=true");
                c.logging.options.text.split_stream = true;
                c.logging.options.json.info_buffer_size = Quantity("1Ki".into());
            },
            &[],
        ),
        (|c| c.tracing = tracing("localhost:4317", 1_000_000), &[]),
        (
            |c| c.tracing = tracing("http://localhost", -1),
            &["tracing.samplingRatePerMillion", "tracing.endpoint"],
        ),
        (
            |c| c.tracing = tracing("unix:///x", 1_000_001),
            &["tracing.samplingRatePerMillion"],
        ),
        (|c| c.tracing = Some(TracingConfiguration::default()), &[]),
    ]);
    let host = Host::default().with_json_log_format(false);
    let errors = errors(|c| c.logging.format = "json".into(), &FeatureGates::new(), &host);
    assert_eq!(errors[0].field, "logging.format");
}
