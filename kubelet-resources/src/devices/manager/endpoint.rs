//! A plugin as the manager knows it, and the calls to it.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use kubelet_plugins::Transport;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tonic::{Response, Status};

use super::STOP_GRACE_PERIOD;
use crate::devices::PreferenceRequest;
use crate::devices::v1beta1::device_plugin_client::DevicePluginClient;
use crate::devices::v1beta1::{
    AllocateRequest, ContainerAllocateRequest, ContainerAllocateResponse,
    ContainerPreferredAllocationRequest, DevicePluginOptions, PreStartContainerRequest,
    PreferredAllocationRequest,
};
use crate::grpc::describe;

/// How long a plugin may take before the start of a container (`KubeletPreStartContainerRPCTimeoutInSecs`).
const PRE_START_TIMEOUT: Duration = Duration::from_secs(30);

/// A plugin of a resource (`endpointInfo`).
#[derive(Clone)]
pub(super) struct Endpoint {
    /// The number of its connection. A later one replaces it.
    pub(super) connection: u64,
    /// Its socket. `None`: it is in this process, or has not come back.
    pub(super) socket: Option<PathBuf>,
    /// `None`: it registered with the agent before, and has not come back.
    client: Option<DevicePluginClient<Transport>>,
    pub(super) options: DevicePluginOptions,
    /// Since when it is gone.
    stopped: Option<Instant>,
    /// Ends the connection.
    pub(super) replaced: CancellationToken,
}

impl Endpoint {
    pub(super) fn new(
        connection: u64,
        socket: Option<PathBuf>,
        client: DevicePluginClient<Transport>,
        options: DevicePluginOptions,
        replaced: CancellationToken,
    ) -> Self {
        Self {
            connection,
            socket,
            client: Some(client),
            options,
            stopped: None,
            replaced,
        }
    }

    /// That of a plugin that registered with the agent before (`newStoppedEndpointImpl`).
    pub(super) fn stopped() -> Self {
        Self {
            connection: 0,
            socket: None,
            client: None,
            options: DevicePluginOptions::default(),
            stopped: Some(Instant::now()),
            replaced: CancellationToken::new(),
        }
    }

    pub(super) fn stop(&mut self) {
        self.stopped = Some(Instant::now());
    }

    /// Whether its resource is to be forgotten (`stopGracePeriodExpired`).
    pub(super) fn is_expired(&self) -> bool {
        self.stopped
            .is_some_and(|since| since.elapsed() > STOP_GRACE_PERIOD)
    }

    fn client(&self, resource: &str) -> Result<DevicePluginClient<Transport>, String> {
        match (&self.client, self.stopped) {
            (Some(client), None) => Ok(client.clone()),
            _ => Err(format!("endpoint {resource} has been stopped")),
        }
    }

    /// The devices that the plugin prefers; none if it has no preference.
    pub(super) async fn preferred(
        &self,
        resource: &str,
        request: &PreferenceRequest,
        limit: Duration,
    ) -> Result<BTreeSet<String>, String> {
        let mut client = self.client(resource)?;
        let request = PreferredAllocationRequest {
            container_requests: vec![ContainerPreferredAllocationRequest {
                available_device_i_ds: request.available.iter().cloned().collect(),
                must_include_device_i_ds: request.must_include.iter().cloned().collect(),
                allocation_size: i32::try_from(request.size).unwrap_or(i32::MAX),
            }],
        };
        let answer = within(limit, client.get_preferred_allocation(request)).await?;
        let first = answer.container_responses.into_iter().next();
        Ok(first
            .map(|answer| answer.device_i_ds.into_iter().collect())
            .unwrap_or_default())
    }

    /// What the container needs to use the devices.
    pub(super) async fn allocate(
        &self,
        resource: &str,
        ids: &BTreeSet<String>,
        limit: Duration,
    ) -> Result<ContainerAllocateResponse, String> {
        let mut client = self.client(resource)?;
        let request = AllocateRequest {
            container_requests: vec![ContainerAllocateRequest {
                devices_ids: ids.iter().cloned().collect(),
            }],
        };
        let answer = within(limit, client.allocate(request)).await?;
        let first = answer.container_responses.into_iter().next();
        // In the kubelet's text the message follows, which is empty.
        first.ok_or_else(|| "no containers return in allocation response ".to_owned())
    }

    pub(super) async fn pre_start(&self, resource: &str, ids: &BTreeSet<String>) -> Result<(), String> {
        let mut client = self.client(resource)?;
        let request = PreStartContainerRequest {
            devices_ids: ids.iter().cloned().collect(),
        };
        let called = within(PRE_START_TIMEOUT, client.pre_start_container(request));
        called.await.map(drop)
    }
}

/// The answer to a call, with the kubelet's text if it fails or is late.
pub(super) async fn within<T>(
    limit: Duration,
    call: impl Future<Output = Result<Response<T>, Status>>,
) -> Result<T, String> {
    let late = || Status::deadline_exceeded("context deadline exceeded");
    let answer = timeout(limit, call).await.unwrap_or_else(|_| Err(late()));
    answer
        .map(Response::into_inner)
        .map_err(|status| describe(&status))
}
