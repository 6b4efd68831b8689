//! The flags that are fields of the configuration as well (`options.AddKubeletConfigFlags`).

use super::flag::{Flag, flags};
use super::slot::Slot;

/// Sorted by name.
pub(super) static FLAGS: &[Flag] = flags! { of_configuration:
    "address", "address", Ip(address);
    "allowed-unsafe-sysctls", "allowedUnsafeSysctls", List(allowed_unsafe_sysctls);
    "anonymous-auth", "authentication.anonymous.enabled", Bool(authentication.anonymous.enabled);
    "authentication-token-webhook", "authentication.webhook.enabled", Bool(authentication.webhook.enabled);
    "authentication-token-webhook-cache-ttl", "authentication.webhook.cacheTTL",
        Duration(authentication.webhook.cache_ttl);
    "authorization-mode", "authorization.mode", Text(authorization.mode);
    "authorization-webhook-cache-authorized-ttl", "authorization.webhook.cacheAuthorizedTTL",
        Duration(authorization.webhook.cache_authorized_ttl);
    "authorization-webhook-cache-unauthorized-ttl", "authorization.webhook.cacheUnauthorizedTTL",
        Duration(authorization.webhook.cache_unauthorized_ttl);
    "cgroup-driver", "cgroupDriver", Text(cgroup_driver);
    "cgroup-root", "cgroupRoot", Text(cgroup_root);
    "cgroups-per-qos", "cgroupsPerQOS", Bool(cgroups_per_qos);
    "client-ca-file", "authentication.x509.clientCAFile", Text(authentication.x509.client_ca_file);
    "cluster-dns", "clusterDNS", List(cluster_dns);
    "cluster-domain", "clusterDomain", Text(cluster_domain);
    "container-log-max-files", "containerLogMaxFiles", Int32(container_log_max_files);
    "container-log-max-size", "containerLogMaxSize", Text(container_log_max_size);
    "container-runtime-endpoint", "containerRuntimeEndpoint", Text(container_runtime_endpoint);
    "contention-profiling", "enableContentionProfiling", Bool(enable_contention_profiling);
    "cpu-cfs-quota", "cpuCFSQuota", Bool(cpu_cfs_quota);
    "cpu-cfs-quota-period", "cpuCFSQuotaPeriod", Duration(cpu_cfs_quota_period);
    "cpu-manager-policy", "cpuManagerPolicy", Text(cpu_manager_policy);
    "cpu-manager-policy-options", "cpuManagerPolicyOptions", MapEntry(cpu_manager_policy_options);
    "cpu-manager-reconcile-period", "cpuManagerReconcilePeriod", Duration(cpu_manager_reconcile_period);
    "enable-controller-attach-detach", "enableControllerAttachDetach", Bool(enable_controller_attach_detach);
    "enable-debugging-handlers", "enableDebuggingHandlers", Bool(enable_debugging_handlers);
    "enable-server", "enableServer", Bool(enable_server);
    "enforce-node-allocatable", "enforceNodeAllocatable", List(enforce_node_allocatable);
    "event-burst", "eventBurst", Int32(event_burst);
    "event-qps", "eventRecordQPS", Int32(event_record_qps);
    "eviction-hard", "evictionHard", Thresholds(eviction_hard);
    "eviction-max-pod-grace-period", "evictionMaxPodGracePeriod", Int32(eviction_max_pod_grace_period);
    "eviction-minimum-reclaim", "evictionMinimumReclaim", Map(eviction_minimum_reclaim);
    "eviction-pressure-transition-period", "evictionPressureTransitionPeriod",
        Duration(eviction_pressure_transition_period);
    "eviction-soft", "evictionSoft", Thresholds(eviction_soft);
    "eviction-soft-grace-period", "evictionSoftGracePeriod", Map(eviction_soft_grace_period);
    "fail-cgroupv1", "failCgroupV1", Bool(fail_cgroup_v1).kept();
    "fail-swap-on", "failSwapOn", Bool(fail_swap_on);
    "feature-gates", "featureGates", Gates(feature_gates);
    "file-check-frequency", "fileCheckFrequency", Duration(file_check_frequency);
    "hairpin-mode", "hairpinMode", Text(hairpin_mode);
    "healthz-bind-address", "healthzBindAddress", Ip(healthz_bind_address);
    "healthz-port", "healthzPort", Int32(healthz_port);
    "http-check-frequency", "httpCheckFrequency", Duration(http_check_frequency);
    "image-gc-high-threshold", "imageGCHighThresholdPercent", Int32(image_gc_high_threshold_percent);
    "image-gc-low-threshold", "imageGCLowThresholdPercent", Int32(image_gc_low_threshold_percent);
    "image-service-endpoint", "imageServiceEndpoint", Text(image_service_endpoint);
    "kernel-memcg-notification", "kernelMemcgNotification", Bool(kernel_memcg_notification);
    "kube-api-burst", "kubeAPIBurst", Int32(kube_api_burst);
    "kube-api-content-type", "contentType", Text(content_type);
    "kube-api-qps", "kubeAPIQPS", Int32(kube_api_qps);
    "kube-reserved", "kubeReserved", Map(kube_reserved);
    "kube-reserved-cgroup", "kubeReservedCgroup", Text(kube_reserved_cgroup);
    "kubelet-cgroups", "kubeletCgroups", Text(kubelet_cgroups);
    "local-storage-capacity-isolation", "localStorageCapacityIsolation",
        Bool(local_storage_capacity_isolation);
    "log-flush-frequency", "logging.flushFrequency", Duration(logging.flush_frequency.duration).kept();
    "log-json-info-buffer-size", "logging.options.json.infoBufferSize",
        Quantity(logging.options.json.info_buffer_size);
    "log-json-split-stream", "logging.options.json.splitStream", Bool(logging.options.json.split_stream);
    "log-text-info-buffer-size", "logging.options.text.infoBufferSize",
        Quantity(logging.options.text.info_buffer_size);
    "log-text-split-stream", "logging.options.text.splitStream", Bool(logging.options.text.split_stream);
    "logging-format", "logging.format", Text(logging.format);
    "make-iptables-util-chains", "makeIPTablesUtilChains", Bool(make_iptables_util_chains);
    "manifest-url", "staticPodURL", Text(static_pod_url);
    "manifest-url-header", "staticPodURLHeader", Headers(static_pod_url_header);
    "max-open-files", "maxOpenFiles", Int64(max_open_files);
    "max-pods", "maxPods", Int32(max_pods);
    "memory-manager-policy", "memoryManagerPolicy", Text(memory_manager_policy);
    "minimum-image-ttl-duration", "imageMinimumGCAge", Duration(image_minimum_gc_age);
    "node-status-max-images", "nodeStatusMaxImages", Int32(node_status_max_images);
    "node-status-update-frequency", "nodeStatusUpdateFrequency", Duration(node_status_update_frequency);
    "oom-score-adj", "oomScoreAdj", Int32(oom_score_adj);
    "pod-cidr", "podCIDR", Text(pod_cidr);
    "pod-manifest-path", "staticPodPath", Text(static_pod_path);
    "pod-max-pids", "podPidsLimit", Int64(pod_pids_limit);
    "pods-per-core", "podsPerCore", Int32(pods_per_core);
    "port", "port", Int32(port);
    "protect-kernel-defaults", "protectKernelDefaults", Bool(protect_kernel_defaults);
    "provider-id", "providerID", Text(provider_id).kept();
    "qos-reserved", "qosReserved", Map(qos_reserved);
    "read-only-port", "readOnlyPort", Int32(read_only_port);
    "register-node", "registerNode", Bool(register_node);
    "register-with-taints", "registerWithTaints", Taints(register_with_taints);
    "registry-burst", "registryBurst", Int32(registry_burst);
    "registry-qps", "registryPullQPS", Int32(registry_pull_qps);
    "reserved-cpus", "reservedSystemCPUs", Text(reserved_system_cpus);
    "reserved-memory", "reservedMemory", ReservedMemory(reserved_memory);
    "resolv-conf", "resolvConf", Text(resolv_conf);
    "rotate-certificates", "rotateCertificates", Bool(rotate_certificates);
    "rotate-server-certificates", "serverTLSBootstrap", Bool(server_tls_bootstrap);
    "runonce", "runOnce", Bool(run_once);
    "runtime-request-timeout", "runtimeRequestTimeout", Duration(runtime_request_timeout);
    "serialize-image-pulls", "serializeImagePulls", Bool(serialize_image_pulls);
    "streaming-connection-idle-timeout", "streamingConnectionIdleTimeout",
        Duration(streaming_connection_idle_timeout);
    "sync-frequency", "syncFrequency", Duration(sync_frequency);
    "system-cgroups", "systemCgroups", Text(system_cgroups);
    "system-reserved", "systemReserved", Map(system_reserved);
    "system-reserved-cgroup", "systemReservedCgroup", Text(system_reserved_cgroup);
    "tls-cert-file", "tlsCertFile", Text(tls_cert_file);
    "tls-cipher-suites", "tlsCipherSuites", List(tls_cipher_suites);
    "tls-min-version", "tlsMinVersion", Text(tls_min_version);
    "tls-private-key-file", "tlsPrivateKeyFile", Text(tls_private_key_file);
    "topology-manager-policy", "topologyManagerPolicy", Text(topology_manager_policy);
    "topology-manager-policy-options", "topologyManagerPolicyOptions", Map(topology_manager_policy_options);
    "topology-manager-scope", "topologyManagerScope", Text(topology_manager_scope);
    "v", "logging.verbosity", Level(logging.verbosity).kept().short('v');
    "vmodule", "logging.vmodule", VModule(logging.vmodule).kept();
    "volume-plugin-dir", "volumePluginDir", Text(volume_plugin_dir);
    "volume-stats-agg-period", "volumeStatsAggPeriod", Duration(volume_stats_agg_period);
};
