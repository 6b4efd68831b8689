//! The kubelet's probes of containers: a command in the container, or a call over the network (`pkg/probe`).

#[cfg(feature = "probes")]
mod dial;
mod exec;
#[cfg(feature = "probes")]
mod grpc;
#[cfg(feature = "probes")]
pub(crate) mod http;
#[cfg(feature = "probes")]
mod network;
#[cfg(feature = "probes")]
mod port;

use std::sync::Arc;

use async_trait::async_trait;
use kubelet_core::{PodExt, ProbeOutcome, ProbeTarget, Prober};

use kubelet_cri::RuntimeService;

#[cfg(feature = "probes")]
pub use network::NetworkProber;

/// Probes containers as the kubelet's `prober` does. Commands run through the runtime's `ExecSync`. All other probes go
/// to another prober, by default to `NetworkProber` if the feature `probes` is enabled.
///
/// ```no_run
/// # use std::sync::Arc;
/// # use kubelet_core::{Kubelet, KubeletBuilder, ProbeResultCache};
/// # use kubelet_cri::{ImageService, RuntimeService};
/// # use kubelet_kuberuntime::{CriRuntime, NodeProber};
/// # async fn example<S: RuntimeService + ImageService + 'static>(cri: Arc<S>, kubelet: KubeletBuilder) -> kubelet_core::Result<()> {
/// let results = ProbeResultCache::new();
/// let runtime = CriRuntime::builder(cri.clone(), cri.clone())
///     .probes(Arc::new(results.clone())) // a failed liveness probe kills its container
///     .build()
///     .await?;
/// let kubelet = kubelet
///     .runtime(Arc::new(runtime))
///     .prober(NodeProber::new(cri), results);
/// # let _ = kubelet;
/// # Ok(())
/// # }
/// ```
///
/// Without the feature `probes` and without your own prober, each probe over the network fails with an error that
/// explains this, in an event of its pod.
#[derive(Clone)]
pub struct NodeProber {
    runtime: Arc<dyn RuntimeService>,
    network: Option<Arc<dyn Prober>>,
}

impl NodeProber {
    /// A prober that runs commands through this runtime.
    pub fn new(runtime: Arc<dyn RuntimeService>) -> Self {
        #[cfg(feature = "probes")]
        let network: Option<Arc<dyn Prober>> = Some(Arc::new(NetworkProber::new()));
        #[cfg(not(feature = "probes"))]
        let network = None;
        Self { runtime, network }
    }

    /// Sets the prober for all probes that are not commands.
    pub fn network(mut self, network: impl Prober) -> Self {
        self.network = Some(Arc::new(network));
        self
    }
}

#[async_trait]
impl Prober for NodeProber {
    async fn probe(&self, target: &ProbeTarget) -> ProbeOutcome {
        let Some(probe) = target.probe() else {
            return missing_handler(target);
        };
        if let Some(exec) = &probe.exec {
            return exec::probe(&*self.runtime, exec, target).await;
        }
        if probe.http_get.is_none() && probe.tcp_socket.is_none() && probe.grpc.is_none() {
            return missing_handler(target);
        }
        match &self.network {
            Some(network) => network.probe(target).await,
            None => ProbeOutcome::unknown(
                "probes over the network are not supported: this program is built without the feature probes",
            ),
        }
    }
}

kubelet_core::impl_debug!(NodeProber);

/// A probe without a handler.
fn missing_handler(target: &ProbeTarget) -> ProbeOutcome {
    let pod = &target.pod;
    let key = pod.key();
    let container = target.container().map_or("", |container| &container.name);
    ProbeOutcome::unknown(format_args!(
        "missing probe handler for {}_{}({}):{container}",
        key.name,
        key.namespace,
        pod.uid_str(),
    ))
}
