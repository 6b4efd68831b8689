//! Pulls modules from registries.

use kubelet_cri::verbs::{ErrorClass, RegistryLogin, Result, RuntimeError};
use oci_client::client::{ClientConfig, ClientProtocol};
use oci_client::errors::OciDistributionError;
use oci_client::manifest::ImageIndexEntry;
use oci_client::secrets::RegistryAuth;
use oci_client::{Client, Reference};

/// The media types of layers that are a module.
pub(crate) const MODULES: &[&str] = &[
    "application/wasm",
    "application/vnd.wasm.content.layer.v1+wasm",
    "application/vnd.module.wasm.content.layer.v1+wasm",
];

pub(crate) struct Registry {
    /// Without TLS.
    insecure: Vec<String>,
}

impl Registry {
    pub(crate) fn new(insecure: Vec<String>) -> Self {
        // The client asks for the one of the process. If there is one already, it is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        Self { insecure }
    }

    /// The module of an image.
    pub(crate) async fn pull(&self, image: &str, login: Option<&RegistryLogin>) -> Result<Vec<u8>> {
        let reference: Reference =
            image.parse().map_err(|error| RuntimeError::permanent(image, format!("{error}")))?;
        if login.is_some_and(|login| !login.identity_token.is_empty()) {
            return Err(RuntimeError::unsupported(image, "identity tokens are not supported"));
        }
        // A client remembers what it may pull. So each pull has one of its own: no pod uses the credentials of another.
        let client = Client::new(ClientConfig {
            protocol: ClientProtocol::HttpsExcept(self.insecure.clone()),
            platform_resolver: Some(Box::new(for_wasm)),
            ..ClientConfig::default()
        });
        let pulled = client.pull(&reference, &auth(login), MODULES.to_vec()).await;
        let layers = pulled.map_err(|error| failed(image, &error))?.layers;
        let module = layers.into_iter().find(|layer| MODULES.contains(&layer.media_type.as_str()));
        let module = module.ok_or_else(|| RuntimeError::permanent(image, "the image has no module"))?;
        Ok(module.data.to_vec())
    }
}

fn auth(login: Option<&RegistryLogin>) -> RegistryAuth {
    match login {
        None => RegistryAuth::Anonymous,
        Some(login) if !login.registry_token.is_empty() => RegistryAuth::Bearer(login.registry_token.clone()),
        Some(login) => RegistryAuth::Basic(login.username.clone(), login.password.clone()),
    }
}

/// The image for WebAssembly, of one for several platforms.
fn for_wasm(entries: &[ImageIndexEntry]) -> Option<String> {
    let is_wasm = |entry: &&ImageIndexEntry| {
        entry.platform.as_ref().is_some_and(|platform| platform.architecture.to_string() == "wasm")
    };
    entries.iter().find(is_wasm).map(|entry| entry.digest.clone())
}

fn failed(image: &str, error: &OciDistributionError) -> RuntimeError {
    let class = match error {
        OciDistributionError::RequestError(_) | OciDistributionError::IoError(_) => ErrorClass::Transient,
        OciDistributionError::ServerError { code: 429, .. } => ErrorClass::Throttled,
        OciDistributionError::ServerError { code: 500.., .. } => ErrorClass::Transient,
        OciDistributionError::ImageManifestNotFoundError(_) => ErrorClass::Gone,
        _ => ErrorClass::Permanent,
    };
    let mut message = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        message = format!("{message}: {error}");
        cause = error.source();
    }
    RuntimeError::new(class, image, message)
}
