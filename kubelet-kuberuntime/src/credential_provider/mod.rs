//! Credential provider plugins: programs that return the credentials of a registry (`credentialprovider/plugin`).

mod cache;
mod exec;
mod plugin;
mod service_account;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kubelet_core::ServiceAccounts;

use self::plugin::Plugin;
pub use self::service_account::{ServiceAccountTokenAttributes, ServiceAccountTokenCacheType};
use crate::images::{Keyring, Source};

/// A credential provider plugin, which is called when an image is pulled: one of the `providers` of
/// `CredentialProviderConfig`.
///
/// The supported versions of `credentialprovider.kubelet.k8s.io` are `v1`, `v1beta1` and `v1alpha1`. A plugin has a
/// minute to answer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CredentialProvider {
    /// `name`, also used in metrics and logs.
    pub name: String,
    /// The file to run: `name` in the folder of `--image-credential-provider-bin-dir`.
    pub program: PathBuf,
    /// `matchImages`: patterns of the images for which it is called. A pattern has a host, in which `*` matches within
    /// one part, and optionally a port and a path prefix.
    pub match_images: Vec<String>,
    /// `defaultCacheDuration`: how long its credentials are cached if its answer has no duration; zero disables the
    /// cache.
    pub default_cache_duration: Duration,
    /// `apiVersion`: `credentialprovider.kubelet.k8s.io/v1` by default.
    pub api_version: String,
    /// `args`
    pub args: Vec<String>,
    /// `env`: variables besides the agent's own.
    pub env: BTreeMap<String, String>,
    /// `tokenAttributes`: the token of the pod's service account that the plugin gets. The
    /// [`service_accounts`](crate::CriRuntimeBuilder::service_accounts) issue it. `None`: no token.
    pub token_attributes: Option<ServiceAccountTokenAttributes>,
}

impl CredentialProvider {
    /// The versions of the protocol.
    const API_VERSIONS: [&str; 3] = [
        "credentialprovider.kubelet.k8s.io/v1",
        "credentialprovider.kubelet.k8s.io/v1beta1",
        "credentialprovider.kubelet.k8s.io/v1alpha1",
    ];

    /// A plugin for images that match one of `match_images`. It uses the version `v1`, and its answers are cached only
    /// if they have a duration.
    pub fn new(name: impl Into<String>, program: impl Into<PathBuf>, match_images: Vec<String>) -> Self {
        Self {
            name: name.into(),
            program: program.into(),
            match_images,
            default_cache_duration: Duration::ZERO,
            api_version: Self::API_VERSIONS[0].to_owned(),
            args: Vec::new(),
            env: BTreeMap::new(),
            token_attributes: None,
        }
    }

    /// Why the plugin cannot be used: a wrong setting, or its program is missing. Blocks while it looks at the program.
    pub fn problem(&self) -> Option<String> {
        let Self { name, program, .. } = self;
        let of = |problem: String| Some(format!("credential provider {name}: {problem}"));
        if !Self::API_VERSIONS.contains(&self.api_version.as_str()) {
            return of(format!("api_version {:?} is not supported", self.api_version));
        }
        if let Some(attributes) = &self.token_attributes {
            if self.api_version != Self::API_VERSIONS[0] {
                return of(format!(
                    "api_version {:?} has no token_attributes",
                    self.api_version
                ));
            }
            if attributes.audience.is_empty() {
                return of("the audience of its token is empty".to_owned());
            }
            if !attributes.require_service_account && !attributes.required_annotation_keys.is_empty() {
                return of("required_annotation_keys need require_service_account".to_owned());
            }
        }
        if self.match_images.is_empty() {
            return of("match_images is empty".to_owned());
        }
        if !program.is_file() {
            return of(format!(
                "plugin binary executable {} did not exist",
                program.display()
            ));
        }
        None
    }
}

/// All plugins of an agent (`externalCredentialProviderKeyring`).
pub(crate) struct CredentialProviders {
    plugins: Vec<Plugin>,
    accounts: Arc<dyn ServiceAccounts>,
}

impl CredentialProviders {
    pub(crate) fn new(providers: Vec<CredentialProvider>, accounts: Arc<dyn ServiceAccounts>) -> Self {
        Self {
            plugins: providers.into_iter().map(Plugin::new).collect(),
            accounts,
        }
    }

    /// The credentials for an image of this pod. Calls each plugin that matches, one after the other.
    pub(crate) async fn keyring(&self, repository: &str, pod: &Pod) -> Keyring {
        let mut keyring = Keyring::default();
        for plugin in &self.plugins {
            let provided = plugin.provide(repository, pod, &*self.accounts).await;
            let source = provided.account.map(Source::ServiceAccount).map(Arc::new);
            keyring.add(source, provided.config);
        }
        keyring
    }
}
