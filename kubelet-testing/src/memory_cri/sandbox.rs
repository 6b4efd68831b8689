//! One sandbox.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use kubelet_core::PodUid;
use kubelet_cri::v1;

use super::Subject;

#[derive(Debug)]
pub(super) struct Sandbox {
    pub(super) id: String,
    /// The name that is reserved for it.
    pub(super) name: String,
    pub(super) config: Arc<v1::PodSandboxConfig>,
    pub(super) handler: String,
    /// In nanoseconds since 1970.
    pub(super) created_at: i64,
    pub(super) ready: bool,
    pub(super) addresses: Vec<IpAddr>,
    /// The containers, by number.
    pub(super) containers: BTreeSet<u64>,
}

impl Sandbox {
    /// The sandbox's unique name: containerd's `makeSandboxName`.
    pub(super) fn name_of(metadata: &v1::PodSandboxMetadata) -> String {
        let v1::PodSandboxMetadata {
            name,
            uid,
            namespace,
            attempt,
        } = metadata;
        format!("{name}_{namespace}_{uid}_{attempt}")
    }

    pub(super) fn metadata(&self) -> Option<&v1::PodSandboxMetadata> {
        self.config.metadata.as_ref()
    }

    pub(super) fn pod_uid(&self) -> PodUid {
        PodUid::new(self.metadata().map_or("", |metadata| &metadata.uid))
    }

    pub(super) fn about(&self) -> Subject {
        Subject::sandbox(self.metadata())
    }

    /// Whether containers that share the PID namespace of the sandbox end with it.
    pub(super) fn shares_pids(&self) -> bool {
        namespaces(&self.config).is_none_or(|options| options.pid() == v1::NamespaceMode::Pod)
    }

    fn state(&self) -> v1::PodSandboxState {
        if self.ready {
            v1::PodSandboxState::SandboxReady
        } else {
            v1::PodSandboxState::SandboxNotready
        }
    }

    pub(super) fn status(&self) -> v1::PodSandboxStatus {
        let mut addresses = self.addresses.iter().map(ToString::to_string);
        let network = v1::PodSandboxNetworkStatus {
            ip: addresses.next().unwrap_or_default(),
            additional_ips: addresses.map(|ip| v1::PodIp { ip }).collect(),
        };
        let namespaces = v1::Namespace {
            options: namespaces(&self.config).cloned(),
        };
        v1::PodSandboxStatus {
            id: self.id.clone(),
            metadata: self.config.metadata.clone(),
            state: self.state() as i32,
            created_at: self.created_at,
            network: Some(network),
            linux: Some(v1::LinuxPodSandboxStatus {
                namespaces: Some(namespaces),
            }),
            labels: self.config.labels.clone(),
            annotations: self.config.annotations.clone(),
            runtime_handler: self.handler.clone(),
        }
    }

    pub(super) fn message(&self) -> v1::PodSandbox {
        v1::PodSandbox {
            id: self.id.clone(),
            metadata: self.config.metadata.clone(),
            state: self.state() as i32,
            created_at: self.created_at,
            labels: self.config.labels.clone(),
            annotations: self.config.annotations.clone(),
            runtime_handler: self.handler.clone(),
        }
    }
}

/// Whether a pod is on the host's network.
pub(super) fn is_host_network(config: &v1::PodSandboxConfig) -> bool {
    namespaces(config).is_some_and(|options| options.network() == v1::NamespaceMode::Node)
}

fn namespaces(config: &v1::PodSandboxConfig) -> Option<&v1::NamespaceOption> {
    let context = config.linux.as_ref()?.security_context.as_ref()?;
    context.namespace_options.as_ref()
}
