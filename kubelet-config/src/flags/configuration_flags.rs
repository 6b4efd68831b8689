//! The flags that are fields of the configuration as well (`options.AddKubeletConfigFlags`).

use super::flag::Flag;
use super::slot::Slot;

const fn of(
    name: &'static str,
    field: &'static str,
    slot: fn(&mut crate::KubeletConfiguration) -> Slot<'_>,
) -> Flag {
    Flag::of_configuration(name, field, slot)
}

/// Sorted by name.
pub(super) static FLAGS: &[Flag] = &[
    of("address", "address", |c| Slot::Ip(&mut c.address)),
    of("allowed-unsafe-sysctls", "allowedUnsafeSysctls", |c| {
        Slot::List(&mut c.allowed_unsafe_sysctls)
    }),
    of("anonymous-auth", "authentication.anonymous.enabled", |c| {
        Slot::Bool(&mut c.authentication.anonymous.enabled)
    }),
    of(
        "authentication-token-webhook",
        "authentication.webhook.enabled",
        |c| Slot::Bool(&mut c.authentication.webhook.enabled),
    ),
    of(
        "authentication-token-webhook-cache-ttl",
        "authentication.webhook.cacheTTL",
        |c| Slot::Duration(&mut c.authentication.webhook.cache_ttl),
    ),
    of("authorization-mode", "authorization.mode", |c| {
        Slot::Text(&mut c.authorization.mode)
    }),
    of(
        "authorization-webhook-cache-authorized-ttl",
        "authorization.webhook.cacheAuthorizedTTL",
        |c| Slot::Duration(&mut c.authorization.webhook.cache_authorized_ttl),
    ),
    of(
        "authorization-webhook-cache-unauthorized-ttl",
        "authorization.webhook.cacheUnauthorizedTTL",
        |c| Slot::Duration(&mut c.authorization.webhook.cache_unauthorized_ttl),
    ),
    of("cgroup-driver", "cgroupDriver", |c| {
        Slot::Text(&mut c.cgroup_driver)
    }),
    of("cgroup-root", "cgroupRoot", |c| Slot::Text(&mut c.cgroup_root)),
    of("cgroups-per-qos", "cgroupsPerQOS", |c| {
        Slot::Bool(&mut c.cgroups_per_qos)
    }),
    of("client-ca-file", "authentication.x509.clientCAFile", |c| {
        Slot::Text(&mut c.authentication.x509.client_ca_file)
    }),
    of("cluster-dns", "clusterDNS", |c| Slot::List(&mut c.cluster_dns)),
    of("cluster-domain", "clusterDomain", |c| {
        Slot::Text(&mut c.cluster_domain)
    }),
    of("container-log-max-files", "containerLogMaxFiles", |c| {
        Slot::Int32(&mut c.container_log_max_files)
    }),
    of("container-log-max-size", "containerLogMaxSize", |c| {
        Slot::Text(&mut c.container_log_max_size)
    }),
    of("container-runtime-endpoint", "containerRuntimeEndpoint", |c| {
        Slot::Text(&mut c.container_runtime_endpoint)
    }),
    of("contention-profiling", "enableContentionProfiling", |c| {
        Slot::Bool(&mut c.enable_contention_profiling)
    }),
    of("cpu-cfs-quota", "cpuCFSQuota", |c| {
        Slot::Bool(&mut c.cpu_cfs_quota)
    }),
    of("cpu-cfs-quota-period", "cpuCFSQuotaPeriod", |c| {
        Slot::Duration(&mut c.cpu_cfs_quota_period)
    }),
    of("cpu-manager-policy", "cpuManagerPolicy", |c| {
        Slot::Text(&mut c.cpu_manager_policy)
    }),
    of("cpu-manager-policy-options", "cpuManagerPolicyOptions", |c| {
        Slot::MapEntry(&mut c.cpu_manager_policy_options)
    }),
    of("cpu-manager-reconcile-period", "cpuManagerReconcilePeriod", |c| {
        Slot::Duration(&mut c.cpu_manager_reconcile_period)
    }),
    of(
        "enable-controller-attach-detach",
        "enableControllerAttachDetach",
        |c| Slot::Bool(&mut c.enable_controller_attach_detach),
    ),
    of("enable-debugging-handlers", "enableDebuggingHandlers", |c| {
        Slot::Bool(&mut c.enable_debugging_handlers)
    }),
    of("enable-server", "enableServer", |c| {
        Slot::Bool(&mut c.enable_server)
    }),
    of("enforce-node-allocatable", "enforceNodeAllocatable", |c| {
        Slot::List(&mut c.enforce_node_allocatable)
    }),
    of("event-burst", "eventBurst", |c| Slot::Int32(&mut c.event_burst)),
    of("event-qps", "eventRecordQPS", |c| {
        Slot::Int32(&mut c.event_record_qps)
    }),
    of("eviction-hard", "evictionHard", |c| {
        Slot::Thresholds(&mut c.eviction_hard)
    }),
    of(
        "eviction-max-pod-grace-period",
        "evictionMaxPodGracePeriod",
        |c| Slot::Int32(&mut c.eviction_max_pod_grace_period),
    ),
    of("eviction-minimum-reclaim", "evictionMinimumReclaim", |c| {
        Slot::Map(&mut c.eviction_minimum_reclaim)
    }),
    of(
        "eviction-pressure-transition-period",
        "evictionPressureTransitionPeriod",
        |c| Slot::Duration(&mut c.eviction_pressure_transition_period),
    ),
    of("eviction-soft", "evictionSoft", |c| {
        Slot::Thresholds(&mut c.eviction_soft)
    }),
    of("eviction-soft-grace-period", "evictionSoftGracePeriod", |c| {
        Slot::Map(&mut c.eviction_soft_grace_period)
    }),
    of("fail-cgroupv1", "failCgroupV1", |c| {
        Slot::Bool(&mut c.fail_cgroup_v1)
    })
    .kept(),
    of("fail-swap-on", "failSwapOn", |c| Slot::Bool(&mut c.fail_swap_on)),
    of("feature-gates", "featureGates", |c| {
        Slot::Gates(&mut c.feature_gates)
    }),
    of("file-check-frequency", "fileCheckFrequency", |c| {
        Slot::Duration(&mut c.file_check_frequency)
    }),
    of("hairpin-mode", "hairpinMode", |c| Slot::Text(&mut c.hairpin_mode)),
    of("healthz-bind-address", "healthzBindAddress", |c| {
        Slot::Ip(&mut c.healthz_bind_address)
    }),
    of("healthz-port", "healthzPort", |c| {
        Slot::Int32(&mut c.healthz_port)
    }),
    of("http-check-frequency", "httpCheckFrequency", |c| {
        Slot::Duration(&mut c.http_check_frequency)
    }),
    of("image-gc-high-threshold", "imageGCHighThresholdPercent", |c| {
        Slot::Int32(&mut c.image_gc_high_threshold_percent)
    }),
    of("image-gc-low-threshold", "imageGCLowThresholdPercent", |c| {
        Slot::Int32(&mut c.image_gc_low_threshold_percent)
    }),
    of("image-service-endpoint", "imageServiceEndpoint", |c| {
        Slot::Text(&mut c.image_service_endpoint)
    }),
    of("kernel-memcg-notification", "kernelMemcgNotification", |c| {
        Slot::Bool(&mut c.kernel_memcg_notification)
    }),
    of("kube-api-burst", "kubeAPIBurst", |c| {
        Slot::Int32(&mut c.kube_api_burst)
    }),
    of("kube-api-content-type", "contentType", |c| {
        Slot::Text(&mut c.content_type)
    }),
    of("kube-api-qps", "kubeAPIQPS", |c| Slot::Int32(&mut c.kube_api_qps)),
    of("kube-reserved", "kubeReserved", |c| {
        Slot::Map(&mut c.kube_reserved)
    }),
    of("kube-reserved-cgroup", "kubeReservedCgroup", |c| {
        Slot::Text(&mut c.kube_reserved_cgroup)
    }),
    of("kubelet-cgroups", "kubeletCgroups", |c| {
        Slot::Text(&mut c.kubelet_cgroups)
    }),
    of(
        "local-storage-capacity-isolation",
        "localStorageCapacityIsolation",
        |c| Slot::Bool(&mut c.local_storage_capacity_isolation),
    ),
    of("log-flush-frequency", "logging.flushFrequency", |c| {
        Slot::Duration(&mut c.logging.flush_frequency.duration)
    })
    .kept(),
    of(
        "log-json-info-buffer-size",
        "logging.options.json.infoBufferSize",
        |c| Slot::Quantity(&mut c.logging.options.json.info_buffer_size),
    ),
    of("log-json-split-stream", "logging.options.json.splitStream", |c| {
        Slot::Bool(&mut c.logging.options.json.split_stream)
    }),
    of(
        "log-text-info-buffer-size",
        "logging.options.text.infoBufferSize",
        |c| Slot::Quantity(&mut c.logging.options.text.info_buffer_size),
    ),
    of("log-text-split-stream", "logging.options.text.splitStream", |c| {
        Slot::Bool(&mut c.logging.options.text.split_stream)
    }),
    of("logging-format", "logging.format", |c| {
        Slot::Text(&mut c.logging.format)
    }),
    of("make-iptables-util-chains", "makeIPTablesUtilChains", |c| {
        Slot::Bool(&mut c.make_iptables_util_chains)
    }),
    of("manifest-url", "staticPodURL", |c| {
        Slot::Text(&mut c.static_pod_url)
    }),
    of("manifest-url-header", "staticPodURLHeader", |c| {
        Slot::Headers(&mut c.static_pod_url_header)
    }),
    of("max-open-files", "maxOpenFiles", |c| {
        Slot::Int64(&mut c.max_open_files)
    }),
    of("max-pods", "maxPods", |c| Slot::Int32(&mut c.max_pods)),
    of("memory-manager-policy", "memoryManagerPolicy", |c| {
        Slot::Text(&mut c.memory_manager_policy)
    }),
    of("minimum-image-ttl-duration", "imageMinimumGCAge", |c| {
        Slot::Duration(&mut c.image_minimum_gc_age)
    }),
    of("node-status-max-images", "nodeStatusMaxImages", |c| {
        Slot::Int32(&mut c.node_status_max_images)
    }),
    of("node-status-update-frequency", "nodeStatusUpdateFrequency", |c| {
        Slot::Duration(&mut c.node_status_update_frequency)
    }),
    of("oom-score-adj", "oomScoreAdj", |c| {
        Slot::Int32(&mut c.oom_score_adj)
    }),
    of("pod-cidr", "podCIDR", |c| Slot::Text(&mut c.pod_cidr)),
    of("pod-manifest-path", "staticPodPath", |c| {
        Slot::Text(&mut c.static_pod_path)
    }),
    of("pod-max-pids", "podPidsLimit", |c| {
        Slot::Int64(&mut c.pod_pids_limit)
    }),
    of("pods-per-core", "podsPerCore", |c| {
        Slot::Int32(&mut c.pods_per_core)
    }),
    of("port", "port", |c| Slot::Int32(&mut c.port)),
    of("protect-kernel-defaults", "protectKernelDefaults", |c| {
        Slot::Bool(&mut c.protect_kernel_defaults)
    }),
    of("provider-id", "providerID", |c| Slot::Text(&mut c.provider_id)).kept(),
    of("qos-reserved", "qosReserved", |c| Slot::Map(&mut c.qos_reserved)),
    of("read-only-port", "readOnlyPort", |c| {
        Slot::Int32(&mut c.read_only_port)
    }),
    of("register-node", "registerNode", |c| {
        Slot::Bool(&mut c.register_node)
    }),
    of("register-with-taints", "registerWithTaints", |c| {
        Slot::Taints(&mut c.register_with_taints)
    }),
    of("registry-burst", "registryBurst", |c| {
        Slot::Int32(&mut c.registry_burst)
    }),
    of("registry-qps", "registryPullQPS", |c| {
        Slot::Int32(&mut c.registry_pull_qps)
    }),
    of("reserved-cpus", "reservedSystemCPUs", |c| {
        Slot::Text(&mut c.reserved_system_cpus)
    }),
    of("reserved-memory", "reservedMemory", |c| {
        Slot::ReservedMemory(&mut c.reserved_memory)
    }),
    of("resolv-conf", "resolvConf", |c| Slot::Text(&mut c.resolv_conf)),
    of("rotate-certificates", "rotateCertificates", |c| {
        Slot::Bool(&mut c.rotate_certificates)
    }),
    of("rotate-server-certificates", "serverTLSBootstrap", |c| {
        Slot::Bool(&mut c.server_tls_bootstrap)
    }),
    of("runonce", "runOnce", |c| Slot::Bool(&mut c.run_once)),
    of("runtime-request-timeout", "runtimeRequestTimeout", |c| {
        Slot::Duration(&mut c.runtime_request_timeout)
    }),
    of("serialize-image-pulls", "serializeImagePulls", |c| {
        Slot::Bool(&mut c.serialize_image_pulls)
    }),
    of(
        "streaming-connection-idle-timeout",
        "streamingConnectionIdleTimeout",
        |c| Slot::Duration(&mut c.streaming_connection_idle_timeout),
    ),
    of("sync-frequency", "syncFrequency", |c| {
        Slot::Duration(&mut c.sync_frequency)
    }),
    of("system-cgroups", "systemCgroups", |c| {
        Slot::Text(&mut c.system_cgroups)
    }),
    of("system-reserved", "systemReserved", |c| {
        Slot::Map(&mut c.system_reserved)
    }),
    of("system-reserved-cgroup", "systemReservedCgroup", |c| {
        Slot::Text(&mut c.system_reserved_cgroup)
    }),
    of("tls-cert-file", "tlsCertFile", |c| {
        Slot::Text(&mut c.tls_cert_file)
    }),
    of("tls-cipher-suites", "tlsCipherSuites", |c| {
        Slot::List(&mut c.tls_cipher_suites)
    }),
    of("tls-min-version", "tlsMinVersion", |c| {
        Slot::Text(&mut c.tls_min_version)
    }),
    of("tls-private-key-file", "tlsPrivateKeyFile", |c| {
        Slot::Text(&mut c.tls_private_key_file)
    }),
    of("topology-manager-policy", "topologyManagerPolicy", |c| {
        Slot::Text(&mut c.topology_manager_policy)
    }),
    of(
        "topology-manager-policy-options",
        "topologyManagerPolicyOptions",
        |c| Slot::Map(&mut c.topology_manager_policy_options),
    ),
    of("topology-manager-scope", "topologyManagerScope", |c| {
        Slot::Text(&mut c.topology_manager_scope)
    }),
    of("v", "logging.verbosity", |c| {
        Slot::Level(&mut c.logging.verbosity)
    })
    .kept()
    .short('v'),
    of("vmodule", "logging.vmodule", |c| {
        Slot::VModule(&mut c.logging.vmodule)
    })
    .kept(),
    of("volume-plugin-dir", "volumePluginDir", |c| {
        Slot::Text(&mut c.volume_plugin_dir)
    }),
    of("volume-stats-agg-period", "volumeStatsAggPeriod", |c| {
        Slot::Duration(&mut c.volume_stats_agg_period)
    }),
];
