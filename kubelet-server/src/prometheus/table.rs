//! The metrics that the kubelet and the crates of this project have: name, type, help, labels and buckets.
//!
//! A help text with a stability in brackets is the kubelet's; the others are of metrics that the kubelet does not have.

use super::buckets::{
    CONTAINERS, DEFAULT, DELEGATED, DRA, IMAGE_PULL, POD_START, RESIZE_MILLISECONDS, ROTATION,
    RUNTIME_OPERATIONS, STATUS_SYNC, STORAGE, TOPOLOGY_ADMISSION,
};
use super::definition::{Definition, Page, counter, gauge, histogram};

/// All of them, sorted by name.
pub(super) const DEFINITIONS: &[Definition] = &[
    histogram(
        "apiserver_delegated_authn_request_duration_seconds",
        "[ALPHA] Request latency in seconds. Broken down by status code.",
        &["code"], DELEGATED,
    ),
    counter(
        "apiserver_delegated_authn_request_total",
        "[ALPHA] Number of HTTP requests partitioned by status code.",
        &["code"],
    ),
    histogram(
        "apiserver_delegated_authz_request_duration_seconds",
        "[ALPHA] Request latency in seconds. Broken down by status code.",
        &["code"], DELEGATED,
    ),
    counter(
        "apiserver_delegated_authz_request_total",
        "[ALPHA] Number of HTTP requests partitioned by status code.",
        &["code"],
    ),
    counter(
        "apiserver_stream_translator_requests_total",
        "[ALPHA] Total number of requests that were handled by the StreamTranslatorProxy, which processes streaming RemoteCommand/V5",
        &["code"],
    ),
    counter(
        "apiserver_stream_tunnel_requests_total",
        "[ALPHA] Total number of requests that were handled by the StreamTunnelProxy, which processes streaming PortForward/V2",
        &["code"],
    ),
    gauge(
        "authentication_token_cache_active_fetch_count",
        "[ALPHA] ",
        &["status"],
    ),
    counter(
        "authentication_token_cache_fetch_total",
        "[ALPHA] ",
        &["status"],
    ),
    histogram(
        "authentication_token_cache_request_duration_seconds",
        "[ALPHA] ",
        &["status"], DEFAULT,
    ),
    counter(
        "authentication_token_cache_request_total",
        "[ALPHA] ",
        &["status"],
    ),
    histogram(
        "csi_operations_seconds",
        "[ALPHA] Container Storage Interface operation duration with gRPC error code status total",
        &["driver_name", "grpc_status_code", "method_name", "migrated"], STORAGE,
    ),
    histogram(
        "dra_grpc_operations_duration_seconds",
        "[ALPHA] Duration in seconds of the DRA gRPC operations",
        &["driver_name", "grpc_status_code", "method_name"], DRA,
    ),
    histogram(
        "dra_operations_duration_seconds",
        "[ALPHA] Latency histogram in seconds for the duration of handling all ResourceClaims referenced by a pod when the pod starts or stops. Identified by the name of the operation (PrepareResources or UnprepareResources) and separated by the success of the operation. The number of failed operations is provided through the histogram's overall count.",
        &["is_error", "operation_name"], DRA,
    ),
    gauge(
        "dra_resource_claims_in_use",
        "[ALPHA] The number of ResourceClaims that are currently in use on the node, by driver name (driver_name label value) and across all drivers (special value <any> for driver_name). Note that the sum of all by-driver counts is not the total number of in-use ResourceClaims because the same ResourceClaim might use devices from different drivers. Instead, use the count for the <any> driver_name.",
        &["driver_name"],
    ),
    counter(
        "force_cleaned_failed_volume_operation_errors_total",
        "[ALPHA] The number of volumes that failed force cleanup after their reconstruction failed during kubelet startup.",
        &[],
    ),
    counter(
        "force_cleaned_failed_volume_operations_total",
        "[ALPHA] The number of volumes that were force cleaned after their reconstruction failed during kubelet startup. This includes both successful and failed cleanups.",
        &[],
    ),
    gauge(
        "kubelet_active_pods",
        "[ALPHA] The number of pods the kubelet considers active and which are being considered when admitting new pods. static is true if the pod is not from the apiserver.",
        &["static"],
    ),
    counter(
        "kubelet_admission_rejections_total",
        "[ALPHA] Cumulative number pod admission rejections by the Kubelet.",
        &["reason"],
    ),
    counter(
        "kubelet_certificate_manager_client_expiration_renew_errors",
        "[ALPHA] Counter of certificate renewal errors.",
        &[],
    ).when_used(),
    gauge(
        "kubelet_certificate_manager_client_ttl_seconds",
        "[ALPHA] Gauge of the TTL (time-to-live) of the Kubelet's client certificate. The value is in seconds until certificate expiry (negative if already expired). If client certificate is invalid or unused, the value will be +INF.",
        &[],
    ).when_used(),
    histogram(
        "kubelet_certificate_manager_server_rotation_seconds",
        "[ALPHA] Histogram of the number of seconds the previous certificate lived before being rotated.",
        &[], ROTATION,
    ).when_used(),
    gauge(
        "kubelet_certificate_manager_server_ttl_seconds",
        "[ALPHA] Gauge of the shortest TTL (time-to-live) of the Kubelet's serving certificate. The value is in seconds until certificate expiry (negative if already expired). If serving certificate is invalid or unused, the value will be +INF.",
        &[],
    ).when_used(),
    histogram(
        "kubelet_cgroup_manager_duration_seconds",
        "[ALPHA] Duration in seconds for cgroup manager operations. Broken down by method.",
        &["operation_type"], DEFAULT,
    ),
    gauge(
        "kubelet_cgroup_version",
        "[ALPHA] cgroup version on the hosts.",
        &[],
    ),
    counter(
        "kubelet_container_aligned_compute_resources_count",
        "[ALPHA] Cumulative number of aligned compute resources allocated to containers by alignment type.",
        &["boundary", "scope"],
    ),
    counter(
        "kubelet_container_aligned_compute_resources_failure_count",
        "[ALPHA] Cumulative number of failures to allocate aligned compute resources to containers by alignment type.",
        &["boundary", "scope"],
    ),
    counter(
        "kubelet_container_requested_resizes_total",
        "[ALPHA] Number of requested resizes, counted at the container level. Different resources on the same container are counted separately. The 'requirement' label refers to 'memory' or 'limits'; the 'operation' label can be one of 'add', 'remove', 'increase' or 'decrease'.",
        &["operation", "requirement", "resource"],
    ),
    histogram(
        "kubelet_containers_per_pod_count",
        "[ALPHA] The number of containers per pod.",
        &[], CONTAINERS,
    ),
    gauge(
        "kubelet_cpu_manager_allocation_per_numa",
        "[ALPHA] Number of CPUs allocated per NUMA node",
        &["numa_node"],
    ),
    gauge(
        "kubelet_cpu_manager_exclusive_cpu_allocation_count",
        "[ALPHA] The total number of CPUs exclusively allocated to containers running on this node",
        &[],
    ),
    counter(
        "kubelet_cpu_manager_pinning_errors_total",
        "[ALPHA] The number of cpu core allocations which required pinning failed.",
        &[],
    ),
    counter(
        "kubelet_cpu_manager_pinning_requests_total",
        "[ALPHA] The number of cpu core allocations which required pinning.",
        &[],
    ),
    gauge(
        "kubelet_cpu_manager_shared_pool_size_millicores",
        "[ALPHA] The size of the shared CPU pool for non-guaranteed QoS pods, in millicores.",
        &[],
    ),
    histogram(
        "kubelet_credential_provider_plugin_duration",
        "[ALPHA] Duration of execution in seconds for credential provider plugin",
        &["plugin_name"], DEFAULT,
    ),
    counter(
        "kubelet_credential_provider_plugin_errors_total",
        "[ALPHA] Number of errors from credential provider plugin",
        &["plugin_name"],
    ),
    gauge(
        "kubelet_cri_losing_support",
        "[ALPHA] the Kubernetes version that the currently running CRI implementation will lose support on if not upgraded.",
        &["version"],
    ).when_used(),
    counter(
        "kubelet_deadlines_exceeded_total",
        "Calls that were given up at their deadline.",
        &["operation"],
    ),
    gauge(
        "kubelet_desired_pods",
        "[ALPHA] The number of pods the kubelet is being instructed to run. static is true if the pod is not from the apiserver.",
        &["static"],
    ),
    histogram(
        "kubelet_device_plugin_alloc_duration_seconds",
        "[ALPHA] Duration in seconds to serve a device plugin Allocation request. Broken down by resource name.",
        &["resource_name"], DEFAULT,
    ),
    counter(
        "kubelet_device_plugin_registration_total",
        "[ALPHA] Cumulative number of device plugin registrations. Broken down by resource name.",
        &["resource_name"],
    ),
    counter(
        "kubelet_evented_pleg_connection_error_count",
        "[ALPHA] The number of errors encountered during the establishment of streaming connection with the CRI runtime.",
        &[],
    ),
    histogram(
        "kubelet_evented_pleg_connection_latency_seconds",
        "[ALPHA] The latency of streaming connection with the CRI runtime, measured in seconds.",
        &[], DEFAULT,
    ),
    counter(
        "kubelet_evented_pleg_connection_success_count",
        "[ALPHA] The number of times a streaming client was obtained to receive CRI Events.",
        &[],
    ),
    counter(
        "kubelet_evented_pleg_missed_changes_total",
        "Changes of containers that a relist found and for which the runtime sent no event.",
        &[],
    ).when_used(),
    histogram(
        "kubelet_eviction_stats_age_seconds",
        "[ALPHA] Time between when stats are collected, and when pod is evicted based on those stats by eviction signal",
        &["eviction_signal"], DEFAULT,
    ),
    counter(
        "kubelet_evictions",
        "[ALPHA] Cumulative number of pod evictions by eviction signal",
        &["eviction_signal"],
    ),
    gauge(
        "kubelet_first_network_pod_start_sli_duration_seconds",
        "[INTERNAL] Duration in seconds to start the first network pod, excluding time to pull images and run init containers, measured from pod creation timestamp to when all its containers are reported as started and observed via watch",
        &[],
    ),
    gauge(
        "kubelet_graceful_shutdown_end_time_seconds",
        "[ALPHA] Last graceful shutdown end time since unix epoch in seconds",
        &[],
    ).when_used(),
    gauge(
        "kubelet_graceful_shutdown_start_time_seconds",
        "[ALPHA] Last graceful shutdown start time since unix epoch in seconds",
        &[],
    ).when_used(),
    histogram(
        "kubelet_housekeeping_duration_seconds",
        "Duration in seconds of a clean-up of pods.",
        &[], DEFAULT,
    ),
    gauge(
        "kubelet_http_inflight_requests",
        "[ALPHA] Number of the inflight http requests",
        &["long_running", "method", "path", "server_type"],
    ),
    histogram(
        "kubelet_http_requests_duration_seconds",
        "[ALPHA] Duration in seconds to serve http requests",
        &["long_running", "method", "path", "server_type"], DEFAULT,
    ),
    counter(
        "kubelet_http_requests_total",
        "[ALPHA] Number of the http requests received since the server started",
        &["long_running", "method", "path", "server_type"],
    ),
    counter(
        "kubelet_image_garbage_collected_total",
        "[ALPHA] Total number of images garbage collected by the kubelet, whether through disk usage or image age.",
        &["reason"],
    ),
    counter(
        "kubelet_image_manager_ensure_image_requests_total",
        "[ALPHA] Number of ensure-image requests processed by the kubelet.",
        &["present_locally", "pull_policy", "pull_required"],
    ),
    histogram(
        "kubelet_image_pull_duration_seconds",
        "[ALPHA] Duration in seconds to pull an image.",
        &["image_size_in_bytes"], IMAGE_PULL,
    ),
    counter(
        "kubelet_image_volume_mounted_errors_total",
        "[BETA] Number of failed image volume mounts.",
        &[],
    ),
    counter(
        "kubelet_image_volume_mounted_succeed_total",
        "[BETA] Number of successful image volume mounts.",
        &[],
    ),
    counter(
        "kubelet_image_volume_requested_total",
        "[BETA] Number of requested image volumes.",
        &[],
    ),
    counter(
        "kubelet_imagemanager_image_mustpull_checks_total",
        "[ALPHA] Counter for how many times kubelet checked whether credentials need to be re-verified to access an image",
        &["result"],
    ),
    gauge(
        "kubelet_imagemanager_ondisk_pulledrecords",
        "[ALPHA] Number of ImagePulledRecords stored on disk.",
        &[],
    ),
    gauge(
        "kubelet_imagemanager_ondisk_pullintents",
        "[ALPHA] Number of ImagePullIntents stored on disk.",
        &[],
    ),
    counter(
        "kubelet_lifecycle_handler_http_fallbacks_total",
        "[ALPHA] The number of times lifecycle handlers successfully fell back to http from https.",
        &[],
    ),
    gauge(
        "kubelet_managed_ephemeral_containers",
        "[ALPHA] Current number of ephemeral containers in pods managed by this kubelet.",
        &[],
    ),
    counter(
        "kubelet_memory_manager_pinning_errors_total",
        "[ALPHA] The number of memory pages allocations which required pinning that failed.",
        &[],
    ),
    counter(
        "kubelet_memory_manager_pinning_requests_total",
        "[ALPHA] The number of memory pages allocations which required pinning.",
        &[],
    ),
    gauge(
        "kubelet_memory_qos_node_memory_low_bytes",
        "[ALPHA] Total cgroup v2 memory.low in bytes for Burstable pods. This memory is soft-reserved and may be reclaimed under extreme pressure.",
        &[],
    ).when_used(),
    gauge(
        "kubelet_memory_qos_node_memory_min_bytes",
        "[ALPHA] Total cgroup v2 memory.min in bytes for Guaranteed pods. This memory is hard-reserved and never reclaimed by the kernel.",
        &[],
    ).when_used(),
    gauge(
        "kubelet_metrics_provider",
        "[ALPHA] Metrics provider used by kubelet to collect container stats. Values can be 'cadvisor' and 'cri'",
        &["provider"],
    ),
    gauge(
        "kubelet_mirror_pods",
        "[ALPHA] The number of mirror pods the kubelet will try to create (one per admitted static pod)",
        &[],
    ),
    gauge(
        "kubelet_node_name",
        "[ALPHA] The node's name. The count is always 1.",
        &["node"],
    ),
    gauge(
        "kubelet_node_startup_duration_seconds",
        "[ALPHA] Duration in seconds of node startup in total.",
        &[],
    ),
    gauge(
        "kubelet_node_startup_post_registration_duration_seconds",
        "[ALPHA] Duration in seconds of node startup after registration.",
        &[],
    ),
    gauge(
        "kubelet_node_startup_pre_kubelet_duration_seconds",
        "[ALPHA] Duration in seconds of node startup before kubelet starts.",
        &[],
    ),
    gauge(
        "kubelet_node_startup_pre_registration_duration_seconds",
        "[ALPHA] Duration in seconds of node startup before registration.",
        &[],
    ),
    gauge(
        "kubelet_node_startup_registration_duration_seconds",
        "[ALPHA] Duration in seconds of node startup during registration.",
        &[],
    ),
    counter(
        "kubelet_orphaned_runtime_pods_total",
        "[ALPHA] Number of pods that have been detected in the container runtime without being already known to the pod worker. This typically indicates the kubelet was restarted while a pod was force deleted in the API or in the local configuration, which is unusual.",
        &[],
    ),
    counter(
        "kubelet_pleg_discard_events",
        "[ALPHA] The number of discard events in PLEG.",
        &[],
    ),
    gauge(
        "kubelet_pleg_last_seen_seconds",
        "[ALPHA] Timestamp in seconds when PLEG was last seen active.",
        &[],
    ),
    histogram(
        "kubelet_pleg_pod_relist_duration_seconds",
        "[ALPHA] Duration in seconds for relisting a single pod in PLEG.",
        &[], DEFAULT,
    ),
    histogram(
        "kubelet_pleg_relist_duration_seconds",
        "[ALPHA] Duration in seconds for relisting pods in PLEG.",
        &[], DEFAULT,
    ),
    histogram(
        "kubelet_pleg_relist_interval_seconds",
        "[ALPHA] Interval in seconds between relisting in PLEG.",
        &[], DEFAULT,
    ),
    counter(
        "kubelet_pod_deferrals_total",
        "Number of times that the work on a pod was put off, by reason.",
        &["reason"],
    ),
    counter(
        "kubelet_pod_deferred_accepted_resizes_total",
        "[ALPHA] Cumulative number of resizes that were accepted after being deferred.",
        &["retry_trigger"],
    ),
    gauge(
        "kubelet_pod_in_progress_resizes",
        "[ALPHA] Number of in-progress resizes for pods.",
        &[],
    ),
    counter(
        "kubelet_pod_infeasible_resizes_total",
        "[ALPHA] Number of infeasible resizes for pods.",
        &["reason_detail"],
    ),
    gauge(
        "kubelet_pod_pending_resizes",
        "[ALPHA] Number of pending resizes for pods.",
        &["reason"],
    ),
    histogram(
        "kubelet_pod_resize_duration_milliseconds",
        "[ALPHA] Duration in milliseconds to actuate a pod resize",
        &["success"], RESIZE_MILLISECONDS,
    ),
    counter(
        "kubelet_pod_resources_endpoint_errors_get",
        "[ALPHA] Number of requests to the PodResource Get endpoint which returned error. Broken down by server api version.",
        &["server_api_version"],
    ),
    counter(
        "kubelet_pod_resources_endpoint_errors_get_allocatable",
        "[ALPHA] Number of requests to the PodResource GetAllocatableResources endpoint which returned error. Broken down by server api version.",
        &["server_api_version"],
    ),
    counter(
        "kubelet_pod_resources_endpoint_errors_list",
        "[ALPHA] Number of requests to the PodResource List endpoint which returned error. Broken down by server api version.",
        &["server_api_version"],
    ),
    counter(
        "kubelet_pod_resources_endpoint_requests_get",
        "[ALPHA] Number of requests to the PodResource Get endpoint. Broken down by server api version.",
        &["server_api_version"],
    ),
    counter(
        "kubelet_pod_resources_endpoint_requests_get_allocatable",
        "[ALPHA] Number of requests to the PodResource GetAllocatableResources endpoint. Broken down by server api version.",
        &["server_api_version"],
    ),
    counter(
        "kubelet_pod_resources_endpoint_requests_list",
        "[ALPHA] Number of requests to the PodResource List endpoint. Broken down by server api version.",
        &["server_api_version"],
    ),
    counter(
        "kubelet_pod_resources_endpoint_requests_total",
        "[ALPHA] Cumulative number of requests to the PodResource endpoint. Broken down by server api version.",
        &["server_api_version"],
    ),
    histogram(
        "kubelet_pod_start_duration_seconds",
        "[ALPHA] Duration in seconds from kubelet seeing a pod for the first time to the pod starting to run",
        &[], POD_START,
    ),
    histogram(
        "kubelet_pod_start_sli_duration_seconds",
        "[ALPHA] Duration in seconds to start a pod, excluding time to pull images and run init containers, measured from pod creation timestamp to when all its containers are reported as started and observed via watch",
        &[], POD_START,
    ),
    histogram(
        "kubelet_pod_start_total_duration_seconds",
        "[ALPHA] Duration in seconds to start a pod since creation, including time to pull images and run init containers, measured from pod creation timestamp to when all its containers are reported as started and observed via watch",
        &[], POD_START,
    ),
    histogram(
        "kubelet_pod_status_sync_duration_seconds",
        "[ALPHA] Duration in seconds to sync a pod status update. Measures time from detection of a change to pod status until the API is successfully updated for that pod, even if multiple intevening changes to pod status occur.",
        &[], STATUS_SYNC,
    ),
    counter(
        "kubelet_pod_watch_events_dropped_total",
        "[ALPHA] Cumulative number of pod watch events dropped.",
        &[],
    ),
    histogram(
        "kubelet_pod_worker_duration_seconds",
        "[ALPHA] Duration in seconds to sync a single pod. Broken down by operation type: create, update, or sync",
        &["operation_type"], DEFAULT,
    ),
    histogram(
        "kubelet_pod_worker_start_duration_seconds",
        "[ALPHA] Duration in seconds from kubelet seeing a pod to starting a worker.",
        &[], DEFAULT,
    ),
    gauge(
        "kubelet_podcertificate_states",
        "[ALPHA] Gauge vector reporting the number of pod certificate projected volume sources, faceted by signer_name and state.",
        &["signer_name", "state"],
    ),
    counter(
        "kubelet_preemptions",
        "[ALPHA] Cumulative number of pod preemptions by preemption resource",
        &["preemption_signal"],
    ),
    counter(
        "kubelet_restarted_pods_total",
        "[ALPHA] Number of pods that have been restarted because they were deleted and recreated with the same UID while the kubelet was watching them (common for static pods, extremely uncommon for API pods)",
        &["static"],
    ),
    histogram(
        "kubelet_run_podsandbox_duration_seconds",
        "[ALPHA] Duration in seconds of the run_podsandbox operations. Broken down by RuntimeClass.Handler.",
        &["runtime_handler"], DEFAULT,
    ),
    counter(
        "kubelet_run_podsandbox_errors_total",
        "[ALPHA] Cumulative number of the run_podsandbox operation errors by RuntimeClass.Handler.",
        &["runtime_handler"],
    ),
    gauge(
        "kubelet_running_containers",
        "[ALPHA] Number of containers currently running",
        &["container_state"],
    ),
    gauge(
        "kubelet_running_pods",
        "[ALPHA] Number of pods that have a running pod sandbox",
        &[],
    ),
    histogram(
        "kubelet_runtime_operations_duration_seconds",
        "[ALPHA] Duration in seconds of runtime operations. Broken down by operation type.",
        &["operation_type"], RUNTIME_OPERATIONS,
    ),
    counter(
        "kubelet_runtime_operations_errors_total",
        "[ALPHA] Cumulative number of runtime operation errors by operation type.",
        &["operation_type"],
    ),
    counter(
        "kubelet_runtime_operations_total",
        "[ALPHA] Cumulative number of runtime operations by operation type.",
        &["operation_type"],
    ),
    counter(
        "kubelet_server_expiration_renew_errors",
        "[ALPHA] Counter of certificate renewal errors.",
        &[],
    ).when_used(),
    counter(
        "kubelet_started_containers_errors_total",
        "[ALPHA] Cumulative number of errors when starting containers",
        &["code", "container_type"],
    ),
    counter(
        "kubelet_started_containers_total",
        "[ALPHA] Cumulative number of containers started",
        &["container_type"],
    ),
    counter(
        "kubelet_started_pods_errors_total",
        "[ALPHA] Cumulative number of errors when starting pods",
        &[],
    ),
    counter(
        "kubelet_started_pods_total",
        "[ALPHA] Cumulative number of pods started",
        &[],
    ),
    counter(
        "kubelet_started_user_namespaced_pods_errors_total",
        "[ALPHA] Cumulative number of errors when starting pods with user namespaces. This metric will only be collected on Linux.",
        &[],
    ),
    counter(
        "kubelet_started_user_namespaced_pods_total",
        "[ALPHA] Cumulative number of pods with user namespaces started. This metric will only be collected on Linux.",
        &[],
    ),
    counter(
        "kubelet_terminated_containers_total",
        "[ALPHA] Cumulative number of container terminations.",
        &["container_type", "exit_code", "reason"],
    ),
    histogram(
        "kubelet_topology_manager_admission_duration_ms",
        "[ALPHA] Duration in milliseconds to serve a pod admission request.",
        &[], TOPOLOGY_ADMISSION,
    ),
    counter(
        "kubelet_topology_manager_admission_errors_total",
        "[ALPHA] The number of admission request failures where resources could not be aligned.",
        &[],
    ),
    counter(
        "kubelet_topology_manager_admission_requests_total",
        "[ALPHA] The number of admission requests where resources have to be aligned.",
        &[],
    ),
    histogram(
        "kubelet_volume_metric_collection_duration_seconds",
        "[ALPHA] Duration in seconds to calculate volume stats",
        &["metric_source"], DEFAULT,
    ),
    counter(
        "kubelet_websocket_streaming_requests_total",
        "[ALPHA] Total number of WebSocket streaming requests (exec/attach/portforward) received by the kubelet.",
        &["subresource"],
    ),
    gauge(
        "kubelet_working_pods",
        "[ALPHA] Number of pods the kubelet is actually running, broken down by lifecycle phase, whether the pod is desired, orphaned, or runtime only (also orphaned), and whether the pod is static. An orphaned pod has been removed from local configuration or force deleted in the API and consumes resources that are not otherwise visible.",
        &["config", "lifecycle", "static"],
    ),
    gauge(
        "kubernetes_build_info",
        "[BETA] A metric with a constant '1' value labeled by major, minor, git version, git commit, git tree state, build date, Go version, and compiler from which Kubernetes was built, and platform on which it is running.",
        &["build_date", "compiler", "git_commit", "git_tree_state", "git_version", "go_version", "major", "minor", "platform"],
    ),
    gauge(
        "kubernetes_feature_enabled",
        "[BETA] This metric records the data about the stage and enablement of a k8s feature.",
        &["name", "stage"],
    ),
    gauge(
        "kubernetes_healthcheck",
        "[STABLE] This metric records the result of a single healthcheck.",
        &["name", "type"],
    ).page(Page::Slis),
    counter(
        "kubernetes_healthchecks_total",
        "[STABLE] This metric records the results of all healthcheck.",
        &["name", "status", "type"],
    ).page(Page::Slis),
    gauge(
        "plugin_manager_total_plugins",
        "[ALPHA] Number of plugins in Plugin Manager",
        &["socket_path", "state"],
    ),
    histogram(
        "prober_probe_duration_seconds",
        "[ALPHA] Duration in seconds for a probe response.",
        &["container", "namespace", "pod", "probe_type"], DEFAULT,
    ).page(Page::Probes),
    counter(
        "prober_probe_total",
        "[BETA] Cumulative number of a liveness, readiness or startup probe for a container by result.",
        &["container", "namespace", "pod", "pod_uid", "probe_type", "result"],
    ).page(Page::Probes),
    counter(
        "reconstruct_volume_operations_errors_total",
        "[ALPHA] The number of volumes that failed reconstruction from the operating system during kubelet startup.",
        &[],
    ),
    counter(
        "reconstruct_volume_operations_total",
        "[ALPHA] The number of volumes that were attempted to be reconstructed from the operating system during kubelet startup. This includes both successful and failed reconstruction.",
        &[],
    ),
    counter(
        "resource_manager_allocation_errors_total",
        "[ALPHA] Number of errors encountered during exclusive resource allocation.",
        &["resource_name", "source"],
    ),
    counter(
        "resource_manager_allocations_total",
        "[ALPHA] Number of exclusive resource allocations performed by a resource manager.",
        &["resource_name", "source"],
    ),
    counter(
        "resource_manager_container_assignments",
        "[ALPHA] Number of containers with a specific type of resource assignment.",
        &["assignment_type", "resource_name"],
    ),
    histogram(
        "storage_operation_duration_seconds",
        "[ALPHA] Storage operation duration",
        &["migrated", "operation_name", "status", "volume_plugin"], STORAGE,
    ),
    gauge(
        "volume_manager_selinux_pod_context_mismatch_errors_total",
        "[ALPHA] Number of errors when a Pod defines different SELinux contexts for its containers that use the same volume. Kubelet can't start such a Pod then and it will retry, therefore value of this metric may not represent the actual nr. of Pods.",
        &["access_mode"],
    ),
    gauge(
        "volume_manager_selinux_pod_context_mismatch_warnings_total",
        "[ALPHA] Number of errors when a Pod defines different SELinux contexts for its containers that use the same volume. They are not errors yet, but they will become real errors when SELinuxMountReadWriteOncePod feature is expanded to all volume access modes.",
        &["access_mode"],
    ),
    gauge(
        "volume_manager_selinux_volume_context_mismatch_errors_total",
        "[ALPHA] Number of errors when a Pod uses a volume that is already mounted with a different SELinux context than the Pod needs. Kubelet can't start such a Pod then and it will retry, therefore value of this metric may not represent the actual nr. of Pods.",
        &["access_mode", "volume_plugin"],
    ),
    gauge(
        "volume_manager_selinux_volume_context_mismatch_warnings_total",
        "[ALPHA] Number of errors when a Pod uses a volume that is already mounted with a different SELinux context than the Pod needs. They are not errors yet, but they will become real errors when SELinuxMountReadWriteOncePod feature is expanded to all volume access modes.",
        &["access_mode", "volume_plugin"],
    ),
    gauge(
        "volume_manager_selinux_volumes_admitted_total",
        "[ALPHA] Number of volumes whose SELinux context was fine and will be mounted with mount -o context option.",
        &["access_mode", "volume_plugin"],
    ),
    gauge(
        "volume_manager_total_volumes",
        "[ALPHA] Number of volumes in Volume Manager",
        &["plugin_name", "state"],
    ),
    histogram(
        "volume_operation_total_seconds",
        "[ALPHA] Storage operation end to end duration in seconds",
        &["operation_name", "plugin_name"], STORAGE,
    ),
];
