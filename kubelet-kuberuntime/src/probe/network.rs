//! Probes over the network: HTTP, TCP, gRPC.

use async_trait::async_trait;
use k8s_openapi::api::core::v1::TCPSocketAction;
use kubelet_core::{ProbeOutcome, ProbeTarget, Prober};

use super::dial::{dial, join_host_port};
use super::http::{HttpClient, Redirects};
use super::port::resolve_container_port;
use super::{grpc, missing_handler};

/// Probes by HTTP, TCP and gRPC, from the agent's network, with the kubelet's rules and messages. It runs no commands:
/// see [`NodeProber`](super::NodeProber).
///
/// It uses no proxies, keeps no connections between probes, and does not verify certificates. Network errors have the
/// texts of the Go kubelet.
#[derive(Clone, Debug)]
pub struct NetworkProber {
    http: HttpClient,
}

impl NetworkProber {
    /// A prober.
    pub fn new() -> Self {
        Self {
            http: HttpClient::new(Redirects::SameHost),
        }
    }
}

impl Default for NetworkProber {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl Prober for NetworkProber {
    async fn probe(&self, target: &ProbeTarget) -> ProbeOutcome {
        let Some(probe) = target.probe() else {
            return missing_handler(target);
        };
        if let Some(action) = &probe.http_get {
            self.http.probe(action, target).await
        } else if let Some(action) = &probe.tcp_socket {
            tcp(action, target).await
        } else if let Some(action) = &probe.grpc {
            grpc::probe(action, target.pod_ip(), target.timeout()).await
        } else {
            missing_handler(target)
        }
    }
}

/// Succeeds if a connection is established (`pkg/probe/tcp`).
async fn tcp(action: &TCPSocketAction, target: &ProbeTarget) -> ProbeOutcome {
    let Some(container) = target.container() else {
        return missing_handler(target);
    };
    let port = match resolve_container_port(&action.port, container) {
        Ok(port) => port,
        Err(error) => return ProbeOutcome::unknown(error),
    };
    let host = action.host.as_deref().filter(|host| !host.is_empty());
    let host = host.unwrap_or(target.pod_ip());
    match tokio::time::timeout(target.timeout(), dial(host, port)).await {
        Ok(Ok(_)) => ProbeOutcome::Success,
        Ok(Err(error)) => ProbeOutcome::failure(error),
        Err(_) => ProbeOutcome::failure(format!("dial tcp {}: i/o timeout", join_host_port(host, port))),
    }
}
