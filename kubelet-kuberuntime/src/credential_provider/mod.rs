//! Credential provider plugins: programs that are asked for the credentials of a registry (`credentialprovider/plugin`).

#[cfg(feature = "credential-providers")]
mod cache;
#[cfg(feature = "credential-providers")]
mod exec;
#[cfg(feature = "credential-providers")]
mod go_duration;
#[cfg(feature = "credential-providers")]
mod plugin;
#[cfg(test)]
#[cfg(feature = "credential-providers")]
mod tests;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

#[cfg(feature = "credential-providers")]
use self::plugin::Plugin;
use crate::images::Keyring;

/// A program that is asked for credentials when an image is pulled: of `CredentialProviderConfig` one of the
/// `providers`. Its `tokenAttributes` are not supported: a program gets no service account token.
///
/// It speaks the versions `v1`, `v1beta1` and `v1alpha1` of `credentialprovider.kubelet.k8s.io`, and has a minute to answer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CredentialProvider {
    /// `name`; metrics and logs name it.
    pub name: String,
    /// The file to run: `name` in the folder of `--image-credential-provider-bin-dir`.
    pub program: PathBuf,
    /// `matchImages`: the images it is asked about. A host with `*` for parts of its parts, a port and the
    /// beginning of a path if they are given.
    pub match_images: Vec<String>,
    /// `defaultCacheDuration`: how long its credentials hold when it does not say; zero is not at all.
    pub default_cache_duration: Duration,
    /// `apiVersion`: `credentialprovider.kubelet.k8s.io/v1` by default.
    pub api_version: String,
    /// `args`
    pub args: Vec<String>,
    /// `env`: variables besides the agent's own.
    pub env: BTreeMap<String, String>,
}

impl CredentialProvider {
    /// The versions of the protocol.
    const API_VERSIONS: [&str; 3] = [
        "credentialprovider.kubelet.k8s.io/v1",
        "credentialprovider.kubelet.k8s.io/v1beta1",
        "credentialprovider.kubelet.k8s.io/v1alpha1",
    ];

    /// The program, asked about images that match one of `match_images`. It speaks `v1` and its answers are not kept unless
    /// it says so itself.
    pub fn new(name: impl Into<String>, program: impl Into<PathBuf>, match_images: Vec<String>) -> Self {
        Self {
            name: name.into(),
            program: program.into(),
            match_images,
            default_cache_duration: Duration::ZERO,
            api_version: Self::API_VERSIONS[0].to_owned(),
            args: Vec::new(),
            env: BTreeMap::new(),
        }
    }

    /// What is wrong with it.
    pub(crate) fn problem(&self) -> Option<String> {
        let Self { name, program, .. } = self;
        let of = |problem: String| Some(format!("credential provider {name}: {problem}"));
        if !cfg!(feature = "credential-providers") {
            return of("this build has no feature credential-providers".to_owned());
        }
        if !Self::API_VERSIONS.contains(&self.api_version.as_str()) {
            return of(format!("api_version {:?} is not known", self.api_version));
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
    #[cfg(feature = "credential-providers")]
    plugins: Vec<Plugin>,
}

#[cfg(feature = "credential-providers")]
impl CredentialProviders {
    pub(crate) fn new(providers: Vec<CredentialProvider>) -> Self {
        Self {
            plugins: providers.into_iter().map(Plugin::new).collect(),
        }
    }

    /// What they have for an image; each that matches it is asked, one after the other.
    pub(crate) async fn keyring(&self, repository: &str) -> Keyring {
        let mut keyring = Keyring::default();
        for plugin in &self.plugins {
            keyring.add(None, plugin.provide(repository).await);
        }
        keyring
    }
}

#[cfg(not(feature = "credential-providers"))]
impl CredentialProviders {
    /// There are none: [`CredentialProvider::problem`] refused them.
    pub(crate) fn new(_: Vec<CredentialProvider>) -> Self {
        Self {}
    }

    pub(crate) async fn keyring(&self, _: &str) -> Keyring {
        Keyring::default()
    }
}
