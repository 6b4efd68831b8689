//! The local gRPC API for pods: `PodsAPI` of Kubernetes 1.36, which is alpha.
//!
//! Programs on the node list and watch its pods without an API server: over a unix socket, which the kubelet has at
//! [`SOCKET`] below its root folder. A pod comes as protobuf of core/v1 with the status that the node has computed.
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use kubelet_core::{PodManager, PodStatusReporter};
//! use kubelet_server::pods_api::{self, PodsApi};
//! use tokio_util::sync::CancellationToken;
//!
//! # async fn example(pods: PodManager, statuses: Arc<dyn PodStatusReporter>) -> std::io::Result<()> {
//! let api = PodsApi::new(pods, statuses);
//! let socket = pods_api::bind("/var/lib/kubelet/pods-api/pods-api.sock".as_ref())?;
//! api.serve(socket, CancellationToken::new()).await;
//! # Ok(())
//! # }
//! ```
//!
//! A watch reads at its own pace. If a pod changes often before it is read, the watch gets the last state only. So no watch
//! misses a pod's last state, and none needs more memory than there are pods. A slow watch is not ended, unlike in the kubelet.

mod encode;
mod fields;
mod socket;
mod watch;

/// The messages and the server of the API.
pub mod v1alpha1 {
    #[rustfmt::skip]
    #[allow(missing_docs, clippy::all)]
    mod messages;

    #[rustfmt::skip]
    #[allow(missing_docs, unused_qualifications, clippy::all)]
    mod grpc_server;

    #[cfg(test)]
    #[rustfmt::skip]
    #[allow(missing_docs, unreachable_pub, unused_qualifications, clippy::all)]
    pub(crate) mod grpc_client;

    pub use grpc_server::{pods_server, pods_server::PodsServer};
    pub use messages::*;
}

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kubelet_core::{PodExt, PodManager, PodStatusReporter, PodUid, RateLimit};
use tonic::{Request, Response, Status, async_trait};

pub use self::socket::bind;
use self::v1alpha1::pods_server::Pods;
use self::v1alpha1::{
    GetPodRequest, GetPodResponse, ListPodsRequest, ListPodsResponse, PodsServer, WatchPodsRequest,
};
pub use self::watch::PodEvents;
use self::watch::Watches;

/// Where the kubelet has the socket, below its root folder.
pub const SOCKET: &str = "pods-api/pods-api.sock";

/// Lists and gets in a second.
const QPS: u32 = 100;
/// Of them at once.
const BURST: u32 = 10;

/// Serves the pods of a node. Clones share the limit of requests.
#[derive(Clone)]
pub struct PodsApi {
    shared: Arc<Shared>,
}

struct Shared {
    pods: PodManager,
    statuses: Arc<dyn PodStatusReporter>,
    watches: Watches,
    rate: RateLimit,
}

impl PodsApi {
    /// Serves desired pods with the statuses reported last.
    pub fn new(pods: PodManager, statuses: Arc<dyn PodStatusReporter>) -> Self {
        Self {
            shared: Arc::new(Shared {
                pods,
                statuses,
                watches: Watches::default(),
                rate: RateLimit::new(QPS, BURST),
            }),
        }
    }

    /// Sends a pod to the watches, because its status has changed. Changes of the pod itself need no call.
    pub fn status_changed(&self, uid: &PodUid) {
        self.shared.watches.push(uid);
    }

    /// The gRPC service, for a server of one's own.
    pub fn service(&self) -> PodsServer<Self> {
        PodsServer::new(self.clone())
    }

    fn limit(&self) -> Result<(), Status> {
        match self.shared.rate.try_take() {
            true => Ok(()),
            false => Err(Status::resource_exhausted("rejected by rate limit")),
        }
    }
}

impl Shared {
    fn encode(&self, pod: &Pod) -> Result<Vec<u8>, Status> {
        let status = self.statuses.pod_status(&pod.uid());
        encode::pod(pod, status.as_deref()).map_err(|error| {
            tracing::error!(pod = %pod.key(), %error, "cannot encode pod");
            Status::internal(format!("failed to marshal pod: {error}"))
        })
    }
}

#[async_trait]
impl Pods for PodsApi {
    type WatchPodsStream = PodEvents;

    async fn list_pods(&self, _: Request<ListPodsRequest>) -> Result<Response<ListPodsResponse>, Status> {
        self.limit()?;
        let mut pods = self.shared.pods.pods();
        pods.sort_unstable_by(|a, b| a.uid_str().cmp(b.uid_str()));
        let pods = pods
            .iter()
            .map(|pod| self.shared.encode(pod))
            .collect::<Result<_, _>>()?;
        Ok(Response::new(ListPodsResponse { pods }))
    }

    async fn get_pod(&self, request: Request<GetPodRequest>) -> Result<Response<GetPodResponse>, Status> {
        self.limit()?;
        let uid = request.into_inner().pod_uid;
        let Some(pod) = self.shared.pods.pod(&PodUid::new(&uid)) else {
            return Err(Status::not_found(format!("pod with UID {uid} not found")));
        };
        let pod = self.shared.encode(&pod)?;
        Ok(Response::new(GetPodResponse { pod }))
    }

    async fn watch_pods(&self, _: Request<WatchPodsRequest>) -> Result<Response<PodEvents>, Status> {
        Ok(Response::new(PodEvents::new(self.shared.clone())))
    }
}

#[cfg(test)]
mod tests;
