//! The flags that are the command line's alone: the kubelet's (`options.KubeletFlags`), cAdvisor's and the
//! program's.

use super::flag::Flag;
use super::slot::Slot;

/// Sorted by name.
pub(super) static KUBELET_FLAGS: &[Flag] = &[
    Flag::of_kubelet(
        "bootstrap-kubeconfig",
        "Kubeconfig to request a client certificate with, if the file of --kubeconfig does not exist",
        |f| Slot::Text(&mut f.bootstrap_kubeconfig),
    ),
    Flag::of_kubelet(
        "cert-dir",
        "Folder of the certificates; not used with --tls-cert-file and --tls-private-key-file",
        |f| Slot::Text(&mut f.cert_directory),
    ),
    Flag::of_kubelet(
        "cloud-provider",
        "'external', or empty without a cloud provider",
        |f| Slot::Text(&mut f.cloud_provider),
    ),
    Flag::of_kubelet("config", "File of the configuration; flags go before it", |f| {
        Slot::Text(&mut f.kubelet_config_file)
    }),
    Flag::of_kubelet(
        "config-dir",
        "Folder of files ('*.conf', in order of their names) that change the configuration; flags go before them",
        |f| Slot::Text(&mut f.kubelet_dropin_config_directory),
    ),
    Flag::of_kubelet(
        "exit-on-lock-contention",
        "Exit when another agent locks the file of --lock-file",
        |f| Slot::Bool(&mut f.exit_on_lock_contention),
    ),
    Flag::of_kubelet(
        "experimental-allocatable-ignore-eviction",
        "Leave hard eviction thresholds out of what the node can allocate",
        |f| Slot::Bool(&mut f.experimental_node_allocatable_ignore_eviction_threshold),
    )
    .deprecated_for("it will be removed"),
    Flag::of_kubelet("experimental-mounter-path", "Program that mounts", |f| {
        Slot::Text(&mut f.experimental_mounter_path)
    })
    .deprecated_for("it will be removed in favour of CSI"),
    Flag::of_kubelet(
        "hostname-override",
        "Name of the node instead of its hostname",
        |f| Slot::Text(&mut f.hostname_override),
    ),
    Flag::of_kubelet(
        "image-credential-provider-bin-dir",
        "Folder of the image credential providers",
        |f| Slot::Text(&mut f.image_credential_provider_bin_dir),
    ),
    Flag::of_kubelet(
        "image-credential-provider-config",
        "File or folder of the image credential providers' configuration",
        |f| Slot::Text(&mut f.image_credential_provider_config_path),
    ),
    Flag::of_kubelet(
        "kubeconfig",
        "Kubeconfig of the API server; without it the agent runs without an API server",
        |f| Slot::Text(&mut f.kube_config),
    ),
    Flag::of_kubelet("lock-file", "File that only one agent at a time holds", |f| {
        Slot::Text(&mut f.lock_file_path)
    }),
    Flag::of_kubelet(
        "maximum-dead-containers",
        "Dead containers kept on the node; negative is no limit",
        |f| Slot::Int32(&mut f.max_container_count),
    )
    .deprecated_for("use --eviction-hard or --eviction-soft"),
    Flag::of_kubelet(
        "maximum-dead-containers-per-container",
        "Dead containers kept of each container",
        |f| Slot::Int32(&mut f.max_per_pod_container_count),
    )
    .deprecated_for("use --eviction-hard or --eviction-soft"),
    Flag::of_kubelet(
        "minimum-container-ttl-duration",
        "Minimum age of a dead container before it is removed",
        |f| Slot::Duration(&mut f.minimum_gc_age),
    )
    .deprecated_for("use --eviction-hard or --eviction-soft"),
    Flag::of_kubelet(
        "node-ip",
        "IP address of the node, or one of each family, separated by a comma; '0.0.0.0' or '::' to prefer a family",
        |f| Slot::Text(&mut f.node_ip),
    ),
    Flag::of_kubelet(
        "node-labels",
        "Labels that the node registers with, as key=value separated by commas; of 'kubernetes.io' and 'k8s.io' only those that a node may give itself",
        |f| Slot::Labels(&mut f.node_labels),
    ),
    Flag::of_kubelet("root-dir", "Folder of the agent's data", |f| {
        Slot::Text(&mut f.root_directory)
    }),
    Flag::of_kubelet("runtime-cgroups", "Cgroup that the runtime runs in", |f| {
        Slot::Text(&mut f.runtime_cgroups)
    }),
    Flag::of_kubelet(
        "seccomp-default",
        "RuntimeDefault is the seccomp profile of containers without one",
        |f| Slot::Bool(&mut f.seccomp_default),
    ),
];

/// The flags of cAdvisor. There is no cAdvisor here: the values are checked and not used. Sorted by name.
pub(super) static CADVISOR_FLAGS: &[Flag] = &[
    Flag::of_cadvisor("application-metrics-count-limit", "100", |c| {
        Slot::Int(&mut c.int)
    }),
    Flag::of_cadvisor("boot-id-file", "/proc/sys/kernel/random/boot_id", |c| {
        Slot::Text(&mut c.text)
    }),
    Flag::of_cadvisor("container-hints", "/etc/cadvisor/container_hints.json", |c| {
        Slot::Text(&mut c.text)
    }),
    Flag::of_cadvisor("containerd", "/run/containerd/containerd.sock", |c| {
        Slot::Text(&mut c.text)
    }),
    Flag::of_cadvisor("containerd-namespace", "k8s.io", |c| Slot::Text(&mut c.text)),
    Flag::of_cadvisor("enable-load-reader", "false", |c| Slot::Bool(&mut c.bool)),
    Flag::of_cadvisor("event-storage-age-limit", "default=0", |c| {
        Slot::Text(&mut c.text)
    }),
    Flag::of_cadvisor("event-storage-event-limit", "default=0", |c| {
        Slot::Text(&mut c.text)
    }),
    Flag::of_cadvisor("global-housekeeping-interval", "1m0s", |c| {
        Slot::Duration(&mut c.duration)
    }),
    Flag::of_cadvisor("housekeeping-interval", "10s", |c| {
        Slot::Duration(&mut c.duration)
    })
    .kept(),
    Flag::of_cadvisor("log-cadvisor-usage", "false", |c| Slot::Bool(&mut c.bool)),
    Flag::of_cadvisor(
        "machine-id-file",
        "/etc/machine-id,/var/lib/dbus/machine-id",
        |c| Slot::Text(&mut c.text),
    ),
    Flag::of_cadvisor("max-housekeeping-interval", "15s", |c| {
        Slot::Duration(&mut c.duration)
    })
    .kept(),
    Flag::of_cadvisor("storage-driver-buffer-duration", "1m0s", |c| {
        Slot::Duration(&mut c.duration)
    }),
    Flag::of_cadvisor("storage-driver-db", "cadvisor", |c| Slot::Text(&mut c.text)),
    Flag::of_cadvisor("storage-driver-host", "localhost:8086", |c| {
        Slot::Text(&mut c.text)
    }),
    Flag::of_cadvisor("storage-driver-password", "root", |c| Slot::Text(&mut c.text)),
    Flag::of_cadvisor("storage-driver-secure", "false", |c| Slot::Bool(&mut c.bool)),
    Flag::of_cadvisor("storage-driver-table", "stats", |c| Slot::Text(&mut c.text)),
    Flag::of_cadvisor("storage-driver-user", "root", |c| Slot::Text(&mut c.text)),
];

/// The flags of the program itself. Sorted by name.
pub(super) static PROGRAM_FLAGS: &[Flag] = &[
    Flag::of_program("help", "Print the flags and exit", |p| Slot::Bool(&mut p.help)).short('h'),
    Flag::of_program(
        "version",
        "Print the version and exit; 'raw' prints all version information, 'vX.Y.Z...' sets the version to report",
        |p| Slot::Version(&mut p.version),
    ),
];
