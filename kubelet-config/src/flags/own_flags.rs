//! The flags that are the command line's alone: the kubelet's (`options.KubeletFlags`), cAdvisor's and the
//! program's.

use super::flag::{Flag, flags};
use super::slot::Slot;

/// Sorted by name.
pub(super) static KUBELET_FLAGS: &[Flag] = flags! { of_kubelet:
    "bootstrap-kubeconfig", "Kubeconfig to request a client certificate with, if the file of --kubeconfig does not exist",
        Text(bootstrap_kubeconfig);
    "cert-dir", "Folder of the certificates; not used with --tls-cert-file and --tls-private-key-file",
        Text(cert_directory);
    "cloud-provider", "'external', or empty without a cloud provider", Text(cloud_provider);
    "config", "File of the configuration; flags go before it", Text(kubelet_config_file);
    "config-dir", "Folder of files ('*.conf', in order of their names) that change the configuration; flags go before them",
        Text(kubelet_dropin_config_directory);
    "exit-on-lock-contention", "Exit when another agent locks the file of --lock-file",
        Bool(exit_on_lock_contention);
    "experimental-allocatable-ignore-eviction", "Leave hard eviction thresholds out of what the node can allocate",
        Bool(experimental_node_allocatable_ignore_eviction_threshold).deprecated_for("it will be removed");
    "experimental-mounter-path", "Program that mounts",
        Text(experimental_mounter_path).deprecated_for("it will be removed in favour of CSI");
    "hostname-override", "Name of the node instead of its hostname", Text(hostname_override);
    "image-credential-provider-bin-dir", "Folder of the image credential providers",
        Text(image_credential_provider_bin_dir);
    "image-credential-provider-config", "File or folder of the image credential providers' configuration",
        Text(image_credential_provider_config_path);
    "kubeconfig", "Kubeconfig of the API server; without it the agent runs without an API server",
        Text(kube_config);
    "lock-file", "File that only one agent at a time holds", Text(lock_file_path);
    "maximum-dead-containers", "Dead containers kept on the node; negative is no limit",
        Int32(max_container_count).deprecated_for("use --eviction-hard or --eviction-soft");
    "maximum-dead-containers-per-container", "Dead containers kept of each container",
        Int32(max_per_pod_container_count).deprecated_for("use --eviction-hard or --eviction-soft");
    "minimum-container-ttl-duration", "Minimum age of a dead container before it is removed",
        Duration(minimum_gc_age).deprecated_for("use --eviction-hard or --eviction-soft");
    "node-ip", "IP address of the node, or one of each family, separated by a comma; '0.0.0.0' or '::' to prefer a family",
        Text(node_ip);
    "node-labels", "Labels that the node registers with, as key=value separated by commas; of 'kubernetes.io' and 'k8s.io' only those that a node may give itself",
        Labels(node_labels);
    "root-dir", "Folder of the agent's data", Text(root_directory);
    "runtime-cgroups", "Cgroup that the runtime runs in", Text(runtime_cgroups);
    "seccomp-default", "RuntimeDefault is the seccomp profile of containers without one",
        Bool(seccomp_default);
};

/// The flags of cAdvisor. There is no cAdvisor here: the values are checked and not used. Sorted by name.
pub(super) static CADVISOR_FLAGS: &[Flag] = flags! { of_cadvisor:
    "application-metrics-count-limit", "100", Int(int);
    "boot-id-file", "/proc/sys/kernel/random/boot_id", Text(text);
    "container-hints", "/etc/cadvisor/container_hints.json", Text(text);
    "containerd", "/run/containerd/containerd.sock", Text(text);
    "containerd-namespace", "k8s.io", Text(text);
    "enable-load-reader", "false", Bool(bool);
    "event-storage-age-limit", "default=0", Text(text);
    "event-storage-event-limit", "default=0", Text(text);
    "global-housekeeping-interval", "1m0s", Duration(duration);
    "housekeeping-interval", "10s", Duration(duration).kept();
    "log-cadvisor-usage", "false", Bool(bool);
    "machine-id-file", "/etc/machine-id,/var/lib/dbus/machine-id", Text(text);
    "max-housekeeping-interval", "15s", Duration(duration).kept();
    "storage-driver-buffer-duration", "1m0s", Duration(duration);
    "storage-driver-db", "cadvisor", Text(text);
    "storage-driver-host", "localhost:8086", Text(text);
    "storage-driver-password", "root", Text(text);
    "storage-driver-secure", "false", Bool(bool);
    "storage-driver-table", "stats", Text(text);
    "storage-driver-user", "root", Text(text);
};

/// The flags of the program itself. Sorted by name.
pub(super) static PROGRAM_FLAGS: &[Flag] = flags! { of_program:
    "help", "Print the flags and exit", Bool(help).short('h');
    "version", "Print the version and exit; 'raw' prints all version information, 'vX.Y.Z...' sets the version to report",
        Version(version);
};
