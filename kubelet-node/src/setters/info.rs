//! The node's software versions, and the port of its agent.

use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{DaemonEndpoint, Node, NodeDaemonEndpoints};

use super::{LastAnswer, node_info, status};
use crate::runtime_version::runtime_version;
use crate::{MachineInfo, NodeRuntime, NodeStatusSetter, Result};

/// Versions, operating system and architecture (`nodestatus.VersionInfo`, `nodestatus.GoRuntime`).
pub(crate) struct Versions {
    pub(crate) machine: Arc<MachineInfo>,
    pub(crate) runtime: Arc<dyn NodeRuntime>,
    pub(crate) kubelet_version: String,
    pub(crate) last_version: LastAnswer<String>,
}

#[async_trait]
impl NodeStatusSetter for Versions {
    fn name(&self) -> &str {
        "versions"
    }

    async fn set(&self, node: &mut Node) -> Result<()> {
        let version = self.last_version.ask("version", self.runtime.version()).await;
        let version = version.and_then(|version| runtime_version(&version));
        let version = version.unwrap_or_else(|| "Unknown".to_owned());
        let info = node_info(node);
        info.kernel_version.clone_from(&self.machine.kernel_version);
        info.os_image.clone_from(&self.machine.os_image);
        info.container_runtime_version = format!("{}://{version}", self.runtime.runtime_type());
        info.kubelet_version.clone_from(&self.kubelet_version);
        // No component sets this field any more (`DisableNodeKubeProxyVersion`).
        info.kube_proxy_version = String::new();
        info.operating_system.clone_from(&self.machine.operating_system);
        info.architecture.clone_from(&self.machine.architecture);
        Ok(())
    }
}

/// The port of the kubelet's server (`nodestatus.DaemonEndpoints`).
pub(crate) struct Endpoints {
    pub(crate) kubelet_port: u16,
}

#[async_trait]
impl NodeStatusSetter for Endpoints {
    fn name(&self) -> &str {
        "daemonEndpoints"
    }

    async fn set(&self, node: &mut Node) -> Result<()> {
        status(node).daemon_endpoints = Some(NodeDaemonEndpoints {
            kubelet_endpoint: Some(DaemonEndpoint {
                port: self.kubelet_port.into(),
            }),
        });
        Ok(())
    }
}

/// The declared features of the node, for the scheduler (`discoverNodeDeclaredFeatures`).
pub(crate) struct DeclaredFeatures {
    pub(crate) features: Vec<String>,
}

#[async_trait]
impl NodeStatusSetter for DeclaredFeatures {
    fn name(&self) -> &str {
        "declaredFeatures"
    }

    async fn set(&self, node: &mut Node) -> Result<()> {
        let declared = Some(self.features.clone()).filter(|features| !features.is_empty());
        status(node).declared_features = declared;
        Ok(())
    }
}
