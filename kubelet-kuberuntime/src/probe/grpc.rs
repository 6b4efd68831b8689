//! gRPC probes: the protocol `grpc.health.v1.Health` (`pkg/probe/grpc`).

use std::time::Duration;

use http::uri::PathAndQuery;
use k8s_openapi::api::core::v1::GRPCAction;
use kubelet_core::ProbeOutcome;
use tokio::time::Instant;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;

use super::dial::join_host_port;
use crate::containers::back_off::go_seconds;

/// The first wait before the next dial, and its growth factor (grpc-go's `backoff.DefaultConfig`).
const BACK_OFF: (Duration, f64) = (Duration::from_secs(1), 1.6);

#[derive(Clone, PartialEq, prost::Message)]
struct HealthCheckRequest {
    #[prost(string, tag = "1")]
    service: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct HealthCheckResponse {
    #[prost(enumeration = "ServingStatus", tag = "1")]
    status: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
enum ServingStatus {
    Unknown = 0,
    Serving = 1,
    NotServing = 2,
    ServiceUnknown = 3,
}

impl ServingStatus {
    fn name(self) -> &'static str {
        match self {
            ServingStatus::Unknown => "UNKNOWN",
            ServingStatus::Serving => "SERVING",
            ServingStatus::NotServing => "NOT_SERVING",
            ServingStatus::ServiceUnknown => "SERVICE_UNKNOWN",
        }
    }
}

/// Every error is a failure.
pub(super) async fn probe(action: &GRPCAction, host: &str, timeout: Duration) -> ProbeOutcome {
    let Some(port) = u16::try_from(action.port).ok().filter(|port| *port > 0) else {
        return ProbeOutcome::failure(format!("invalid port number: {}", action.port));
    };
    let address = join_host_port(if host.is_empty() { "127.0.0.1" } else { host }, port);
    let deadline = Instant::now() + timeout;
    let within = go_seconds(timeout);
    let channel = match tokio::time::timeout_at(deadline, connect(&address)).await {
        Ok(Ok(channel)) => channel,
        Ok(Err(error)) => {
            return ProbeOutcome::failure(format!(
                "error: failed to connect service at {address:?}: {error}"
            ));
        }
        Err(_) => {
            return ProbeOutcome::failure(format!(
                "timeout: failed to connect service {address:?} within {within}: context deadline exceeded"
            ));
        }
    };
    let service = action.service.clone().unwrap_or_default();
    let timed_out = || ProbeOutcome::failure(format!("timeout: health rpc did not complete within {within}"));
    let Ok(answer) = tokio::time::timeout_at(deadline, check(channel, service)).await else {
        return timed_out();
    };
    match answer {
        Ok(status) if status == ServingStatus::Serving as i32 => ProbeOutcome::Success,
        Ok(status) => {
            let name = match ServingStatus::try_from(status) {
                Ok(status) => status.name().to_owned(),
                Err(_) => status.to_string(),
            };
            ProbeOutcome::failure(format!("service unhealthy (responded with {name:?})"))
        }
        Err(status) => match status.code() {
            Code::Unimplemented => ProbeOutcome::failure(format!(
                "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): {}",
                status.message()
            )),
            Code::DeadlineExceeded => timed_out(),
            code => ProbeOutcome::failure(format!(
                "error: health rpc probe failed: rpc error: code = {} desc = {}",
                kubelet_cri::Code::from(i32::from(code)),
                status.message()
            )),
        },
    }
}

/// Dials until the server answers, also after a refused connection (`grpc.WithBlock`).
async fn connect(address: &str) -> Result<Channel, tonic::transport::Error> {
    let endpoint =
        Endpoint::from_shared(format!("http://{address}"))?.user_agent(super::http::PROBE_USER_AGENT)?;
    let (mut wait, growth) = BACK_OFF;
    loop {
        match endpoint.connect().await {
            Ok(channel) => return Ok(channel),
            Err(error) => tracing::debug!(address, %error, "cannot connect to a gRPC server"),
        }
        tokio::time::sleep(wait).await;
        wait = wait.mul_f64(growth);
    }
}

async fn check(channel: Channel, service: String) -> Result<i32, Status> {
    let mut client = Grpc::new(channel);
    let ready = client.ready().await;
    ready.map_err(|error| Status::unavailable(error.to_string()))?;
    let path = PathAndQuery::from_static("/grpc.health.v1.Health/Check");
    let codec = ProstCodec::<HealthCheckRequest, HealthCheckResponse>::default();
    let request = Request::new(HealthCheckRequest { service });
    let response = client.unary(request, path, codec).await?;
    Ok(response.into_inner().status)
}
