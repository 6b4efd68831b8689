//! A machine that is made up, and a client whose requests are kept.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use async_trait::async_trait;
use http::Request;
use http_body_util::BodyExt;
use kube_client::Client;
use kube_client::client::Body;
use kubelet_core::{Clock, EventType, NodeEventRecorder};
use kubelet_node::{
    BoxError, DefaultRoute, HostNetwork, HugePages, Interface, MachineInfo, NodeRuntime, Result, RuntimeImage,
};
use kubelet_testing::ApiServer;
use kubelet_testing::api_server::User;
use parking_lot::Mutex;
use serde_json::Value;
use tower::Service;

/// When the recording began.
pub(crate) const START: &str = "2026-11-21T06:14:55Z";

pub(crate) fn clock() -> Clock {
    Clock::starting_at(START.parse().unwrap())
}

/// A request as it was sent.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sent {
    pub(crate) method: String,
    pub(crate) uri: String,
    pub(crate) body: Value,
}

/// All requests of a client.
#[derive(Clone, Default)]
pub(crate) struct Requests(Arc<Mutex<Vec<Sent>>>);

impl Requests {
    pub(crate) fn all(&self) -> Vec<Sent> {
        self.0.lock().clone()
    }

    /// `POST /api/v1/nodes`
    pub(crate) fn lines(&self) -> Vec<String> {
        let all = self.0.lock();
        all.iter()
            .map(|sent| format!("{} {}", sent.method, sent.uri))
            .collect()
    }

    pub(crate) fn of(&self, method: &str) -> Vec<Sent> {
        self.all()
            .into_iter()
            .filter(|sent| sent.method == method)
            .collect()
    }

    /// A client of the kubelet of `node`, whose requests are kept here.
    pub(crate) fn client(&self, server: &ApiServer, node: &str) -> Client {
        let (service, requests) = (server.service_as(User::node(node)), self.clone());
        let service = tower::service_fn(move |request: Request<Body>| {
            let (mut service, requests) = (service.clone(), requests.clone());
            async move {
                let (head, body) = request.into_parts();
                let bytes = body.collect().await?.to_bytes();
                requests.0.lock().push(Sent {
                    method: head.method.to_string(),
                    uri: head.uri.to_string(),
                    body: serde_json::from_slice(&bytes).unwrap_or_default(),
                });
                service
                    .call(Request::from_parts(head, Body::from(bytes.to_vec())))
                    .await
            }
        });
        Client::new(service, "default")
    }
}

/// The events of a node: type, reason, message.
#[derive(Clone, Default)]
pub(crate) struct Events(Arc<Mutex<Vec<(EventType, String, String)>>>);

impl Events {
    pub(crate) fn messages(&self) -> Vec<String> {
        self.0
            .lock()
            .iter()
            .map(|(_, _, message)| message.clone())
            .collect()
    }
}

impl NodeEventRecorder for Events {
    fn record_node(&self, event_type: EventType, reason: &str, message: String) {
        self.0.lock().push((event_type, reason.to_owned(), message));
    }
}

/// A network of which all is known.
#[derive(Clone, Default)]
pub(crate) struct Network {
    pub(crate) interfaces: Vec<Interface>,
    pub(crate) routes: Option<Vec<DefaultRoute>>,
    pub(crate) names: BTreeMap<String, Vec<IpAddr>>,
}

impl Network {
    /// `eth0` leads outside.
    pub(crate) fn with(addresses: &[&str]) -> Self {
        Self {
            interfaces: vec![
                interface("lo", &["127.0.0.1", "::1"]),
                interface("eth0", addresses),
            ],
            routes: Some(vec![route("eth0", false), route("eth0", true)]),
            names: BTreeMap::new(),
        }
    }
}

pub(crate) fn route(interface: &str, ipv6: bool) -> DefaultRoute {
    DefaultRoute {
        interface: interface.to_owned(),
        ipv6,
    }
}

pub(crate) fn interface(name: &str, addresses: &[&str]) -> Interface {
    Interface {
        name: name.to_owned(),
        up: true,
        loopback: name == "lo",
        point_to_point: name.starts_with("tun"),
        addresses: addresses.iter().map(|address| address.parse().unwrap()).collect(),
    }
}

#[async_trait]
impl HostNetwork for Network {
    fn interfaces(&self) -> Result<Vec<Interface>> {
        Ok(self.interfaces.clone())
    }

    fn default_routes(&self) -> Result<Option<Vec<DefaultRoute>>> {
        Ok(self.routes.clone())
    }

    async fn lookup(&self, name: &str) -> Vec<IpAddr> {
        self.names.get(name).cloned().unwrap_or_default()
    }
}

/// The machine of the recording.
pub(crate) fn machine() -> MachineInfo {
    let mut machine = MachineInfo::new(2, 24_684_100 * 1024);
    machine.huge_pages = [1 << 30, 2 << 20]
        .map(|page_size| HugePages { page_size, pages: 0 })
        .into();
    machine.cgroup_version = Some(1);
    machine.machine_id = "3d1219c7c4c5404aaa1f6d2a48adfda4".into();
    machine.system_uuid = machine.machine_id.clone();
    machine.boot_id = "3607363a-fbbf-4809-a3a5-835c027370e7".into();
    machine.kernel_version = "6.18.44-fc-v509".into();
    machine.os_image = "Debian GNU/Linux 12 (bookworm)".into();
    machine.operating_system = "linux".into();
    machine.architecture = "amd64".into();
    machine
}

/// A runtime with these images.
#[derive(Default)]
pub(crate) struct Containerd {
    pub(crate) images: Vec<RuntimeImage>,
    /// The received pod CIDRs; the first call fails.
    pub(crate) cidrs: Mutex<Vec<String>>,
}

#[async_trait]
impl NodeRuntime for Containerd {
    fn runtime_type(&self) -> &str {
        "containerd"
    }

    async fn version(&self) -> Result<String, BoxError> {
        Ok("1.6.20".into())
    }

    async fn images(&self) -> Result<Vec<RuntimeImage>, BoxError> {
        Ok(self.images.clone())
    }

    async fn update_pod_cidr(&self, pod_cidrs: &str) -> Result<(), BoxError> {
        let mut received = self.cidrs.lock();
        received.push(pod_cidrs.to_owned());
        match received.len() {
            1 => Err("the runtime is away".into()),
            _ => Ok(()),
        }
    }
}
