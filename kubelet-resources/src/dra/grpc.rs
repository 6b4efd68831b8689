//! Plugins at unix sockets.

use std::error::Error as _;
use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll};

use async_trait::async_trait;
use futures::future::BoxFuture;
use futures::stream::{BoxStream, FuturesUnordered};
use futures::{FutureExt as _, StreamExt as _};
use hyper::body::Incoming;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper::rt::Executor;
use hyper_util::rt::TokioIo;
use kubelet_plugins::grpc_go::system_error;
use tokio::net::UnixStream;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tonic::body::Body;
use tonic::codegen::http;
use tonic::codegen::http::Uri;
use tonic::{Request, Status};
use tower::Service;

use super::health_v1alpha1::grpc_client::dra_resource_health_client::DraResourceHealthClient;
use super::health_v1alpha1::{NodeWatchResourcesRequest, NodeWatchResourcesResponse};
use super::plugin::{Connection, Dialer, DraService, DriverPlugin};
use super::v1::grpc_client::dra_plugin_client::DraPluginClient as V1Client;
use super::v1::{
    NodePrepareResourcesRequest, NodePrepareResourcesResponse, NodeUnprepareResourcesRequest,
    NodeUnprepareResourcesResponse,
};
use super::v1beta1::grpc_client::dra_plugin_client::DraPluginClient as V1Beta1Client;

/// Connects to plugins at their sockets. Spawns no task: who polls the connection runs it.
#[derive(Clone, Copy, Debug, Default)]
pub struct GrpcDialer;

#[async_trait]
impl Dialer for GrpcDialer {
    async fn dial(&self, endpoint: &Path, service: DraService) -> Result<Connection, Status> {
        let stream = UnixStream::connect(endpoint).await.map_err(|error| {
            Status::unavailable(format!(
                "connection error: desc = \"transport: Error while dialing: dial unix {}: connect: {}\"",
                endpoint.display(),
                system_error(&error)
            ))
        })?;
        let (tasks, mut started) = unbounded_channel();
        let (sender, connection) = handshake(Tasks(tasks), TokioIo::new(stream))
            .await
            .map_err(|error| Status::unavailable(format!("connection error: {error}")))?;
        let closed = async move {
            let mut running = FuturesUnordered::new();
            let mut connection = std::pin::pin!(connection.fuse());
            loop {
                tokio::select! {
                    biased;
                    _ = &mut connection => return,
                    Some(task) = started.recv() => running.push(task),
                    Some(()) = running.next() => {}
                }
            }
        };
        Ok(Connection {
            plugin: Arc::new(GrpcPlugin {
                service,
                sender: Sender(sender),
            }),
            closed: closed.boxed(),
        })
    }
}

/// Lets the poller of the connection run hyper's tasks.
#[derive(Clone)]
struct Tasks(UnboundedSender<BoxFuture<'static, ()>>);

impl<F: Future<Output: Send> + Send + 'static> Executor<F> for Tasks {
    fn execute(&self, task: F) {
        // Nobody receives it when the connection is already dropped; then it has nothing to do.
        let _ = self.0.send(task.map(drop).boxed());
    }
}

#[derive(Clone)]
struct Sender(SendRequest<Body>);

impl Service<http::Request<Body>> for Sender {
    type Response = http::Response<Incoming>;
    type Error = hyper::Error;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        self.0.send_request(request).boxed()
    }
}

struct GrpcPlugin {
    service: DraService,
    sender: Sender,
}

#[async_trait]
impl DriverPlugin for GrpcPlugin {
    async fn prepare(
        &self,
        request: NodePrepareResourcesRequest,
    ) -> Result<NodePrepareResourcesResponse, Status> {
        let (sender, request) = (self.sender.clone(), Request::new(request));
        let answer = match self.service {
            DraService::V1 => {
                let mut client = V1Client::with_origin(sender, origin());
                client.node_prepare_resources(request).await
            }
            DraService::V1Beta1 => {
                let mut client = V1Beta1Client::with_origin(sender, origin());
                client.node_prepare_resources(request).await
            }
        };
        Ok(answer.map_err(of_connection)?.into_inner())
    }

    async fn unprepare(
        &self,
        request: NodeUnprepareResourcesRequest,
    ) -> Result<NodeUnprepareResourcesResponse, Status> {
        let (sender, request) = (self.sender.clone(), Request::new(request));
        let answer = match self.service {
            DraService::V1 => {
                let mut client = V1Client::with_origin(sender, origin());
                client.node_unprepare_resources(request).await
            }
            DraService::V1Beta1 => {
                let mut client = V1Beta1Client::with_origin(sender, origin());
                client.node_unprepare_resources(request).await
            }
        };
        Ok(answer.map_err(of_connection)?.into_inner())
    }

    async fn watch_health(
        &self,
    ) -> Result<BoxStream<'static, Result<NodeWatchResourcesResponse, Status>>, Status> {
        let mut client = DraResourceHealthClient::with_origin(self.sender.clone(), origin());
        let answer = client.node_watch_resources(NodeWatchResourcesRequest {}).await;
        let reports = answer.map_err(of_connection)?.into_inner();
        Ok(reports.map(|report| report.map_err(of_connection)).boxed())
    }
}

/// A unix socket has no host.
fn origin() -> Uri {
    Uri::from_static("http://localhost")
}

/// An error that did not come from the plugin, but from the connection to it, is `Unavailable`, as with grpc-go.
fn of_connection(status: Status) -> Status {
    let Some(mut source) = status.source() else {
        return status;
    };
    while let Some(inner) = source.source() {
        source = inner;
    }
    Status::unavailable(format!("error reading from server: {source}"))
}
