//! Plugins register: through the service `Registration`, or through the plugin watcher.

use async_trait::async_trait;
use kubelet_core::admission::is_extended_resource;
use kubelet_plugins::{Plugin, PluginHandler};
use tonic::{Request, Response, Status};

use super::DeviceManagerHandle;
use super::metrics;
use crate::devices::v1beta1::registration_server::{Registration, RegistrationServer};
use crate::devices::v1beta1::{Empty, RegisterRequest};
use crate::grpc::Place;

/// The version of the API that plugins must speak.
const VERSION: &str = "v1beta1";

impl DeviceManagerHandle {
    /// The service of the socket [`KUBELET_SOCKET`](super::KUBELET_SOCKET).
    pub(super) fn registration(&self) -> RegistrationServer<Self> {
        RegistrationServer::new(self.clone())
    }
}

#[async_trait]
impl Registration for DeviceManagerHandle {
    async fn register(&self, request: Request<RegisterRequest>) -> Result<Response<Empty>, Status> {
        let request = request.into_inner();
        let resource = request.resource_name.as_str();
        tracing::info!(
            resource,
            "got registration request from device plugin with resource"
        );
        metrics::count_device_registration(resource);
        let refused = |error: String| {
            tracing::error!(resource, error, "bad registration request from device plugin");
            Err(Status::unknown(error))
        };
        if request.version != VERSION {
            return refused(format!(
                "requested API version {:?} is not supported by kubelet. Supported version is [{VERSION:?}]",
                request.version
            ));
        }
        if let Err(error) = check_name(resource) {
            return refused(error);
        }
        // The folder is before each path, also before one with a leading slash.
        let endpoint = request.endpoint.trim_start_matches('/');
        let socket = self.shared.folder.join(endpoint);
        match self.connect(resource, &Place::Socket(socket)).await {
            Ok(()) => Ok(Response::new(Empty {})),
            Err(error) => refused(error),
        }
    }
}

#[async_trait]
impl PluginHandler for DeviceManagerHandle {
    async fn validate(&self, plugin: &Plugin) -> kubelet_plugins::Result<()> {
        if !plugin.versions.iter().any(|version| version == VERSION) {
            return Err(kubelet_plugins::Error::refused(format!(
                "manager version, {VERSION}, is not among plugin supported versions [{}]",
                plugin.versions.join(" ")
            )));
        }
        check_name(&plugin.name).map_err(|error| {
            kubelet_plugins::Error::refused(format!("invalid name of device plugin socket: {error}"))
        })
    }

    async fn register(&self, plugin: &Plugin) -> kubelet_plugins::Result<()> {
        tracing::info!(plugin = plugin.name, endpoint = %plugin.endpoint.display(), "registering plugin at endpoint");
        let place = Place::Socket(plugin.endpoint.clone());
        let connected = self.connect(&plugin.name, &place).await;
        connected.map_err(kubelet_plugins::Error::refused)
    }

    async fn deregister(&self, plugin: &Plugin) {
        self.disconnect(&plugin.name, &plugin.endpoint);
    }
}

fn check_name(resource: &str) -> Result<(), String> {
    match is_extended_resource(resource) && is_qualified_name(resource) {
        true => Ok(()),
        false => Err(format!("the ResourceName {resource:?} is invalid")),
    }
}

/// Whether this is `prefix/name` with the characters and lengths of a qualified name, also with the prefix that quotas add
/// (`IsQualifiedName`).
fn is_qualified_name(resource: &str) -> bool {
    let Some((prefix, name)) = resource.split_once('/') else {
        return false;
    };
    let ends_well = |text: &str, is_allowed: fn(u8) -> bool| {
        let (first, last) = (text.bytes().next(), text.bytes().next_back());
        first.is_some_and(is_allowed) && last.is_some_and(is_allowed)
    };
    let is_label = |label: &str| {
        let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        ends_well(label, allowed) && label.bytes().all(|byte| allowed(byte) || byte == b'-')
    };
    let is_name = |name: &str| {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric();
        ends_well(name, allowed) && name.bytes().all(|byte| allowed(byte) || b"-_.".contains(&byte))
    };
    // `DefaultResourceRequestsPrefix`
    let with_quota = "requests.".len() + prefix.len();
    with_quota <= 253 && prefix.split('.').all(is_label) && name.len() <= 63 && is_name(name)
}

#[cfg(test)]
mod tests {
    use super::check_name;

    #[test]
    fn names_of_resources() {
        for (name, valid) in [
            ("example.com/gpu", true),
            ("example.com/GPU_2.x", true),
            ("a/b", true),
            ("gpu", false),
            ("kubernetes.io/gpu", false),
            ("requests.example.com/gpu", false),
            ("example.com/", false),
            ("/gpu", false),
            ("example.com/gpu/2", false),
            ("Example.com/gpu", false),
            ("example..com/gpu", false),
            ("example.com/gpu-", false),
        ] {
            assert_eq!(check_name(name).is_ok(), valid, "{name}");
        }
        assert!(check_name(&format!("example.com/{}", "g".repeat(64))).is_err());
        assert!(check_name(&format!("{}/gpu", "e".repeat(245))).is_err());
    }
}
