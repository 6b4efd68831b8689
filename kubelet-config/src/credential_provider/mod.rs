//! Where the kubelet gets credentials for registries from: [`CredentialProviderConfig`] of
//! `kubelet.config.k8s.io`, the file or folder of `--image-credential-provider-config`.
//!
//! ```
//! use kubelet_config::FeatureGates;
//! use kubelet_config::credential_provider::CredentialProviderConfig;
//!
//! let config = CredentialProviderConfig::from_yaml(
//!     "
//! apiVersion: kubelet.config.k8s.io/v1
//! kind: CredentialProviderConfig
//! providers:
//! - name: ecr
//!   matchImages: ['*.dkr.ecr.*.amazonaws.com']
//!   defaultCacheDuration: 12h
//!   apiVersion: credentialprovider.kubelet.k8s.io/v1
//! ",
//! )?;
//! config.validate(&FeatureGates::new())?;
//! assert_eq!(config.providers[0].name, "ecr");
//! # Ok::<(), kubelet_config::Error>(())
//! ```

mod match_image;
mod validation;

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::document::{Document, Rules};
use crate::kubelet_configuration::GoDuration;
use crate::{ConfigurationStage, Error, Result};

/// The API group of configurations.
const GROUP: &str = "kubelet.config.k8s.io/";
const KIND: &str = "CredentialProviderConfig";
/// The ends of file names that a folder is read for.
const EXTENSIONS: [&str; 3] = ["json", "yaml", "yml"];

/// The programs that are asked for credentials, whichever version of the API it was written in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CredentialProviderConfig {
    /// All of them that match an image are asked.
    pub providers: Vec<CredentialProvider>,
}

/// A program that is asked for credentials.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CredentialProvider {
    /// The program, a file in the folder of `--image-credential-provider-bin-dir`.
    pub name: String,
    /// The images it is asked about: a host with `*` for parts of its parts, and a port and a path if given.
    pub match_images: Vec<String>,
    /// How long credentials hold when the program does not say; zero is not at all. It must be given.
    pub default_cache_duration: Option<GoDuration>,
    /// The version of the API that is spoken with it, e.g. `credentialprovider.kubelet.k8s.io/v1`.
    pub api_version: String,
    /// Its arguments.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// Its environment besides the agent's own.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<ExecEnvVar>,
    /// The service account token that it gets of the pod. Only in `kubelet.config.k8s.io/v1`. Unset: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_attributes: Option<ServiceAccountTokenAttributes>,
}

/// A variable of a program's environment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ExecEnvVar {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
}

/// The service account token that a program gets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ServiceAccountTokenAttributes {
    /// The audience of the token.
    pub service_account_token_audience: String,
    /// `Token` or `ServiceAccount`: whether credentials hold for that token or for all of its service account.
    pub cache_type: String,
    /// Whether the program is asked only about pods that have a service account. It must be given.
    pub require_service_account: Option<bool>,
    /// Annotations of the service account that it gets and is not asked without.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub required_service_account_annotation_keys: Vec<String>,
    /// Annotations of the service account that it gets if they are there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub optional_service_account_annotation_keys: Vec<String>,
}

impl CredentialProviderConfig {
    /// Reads a configuration of `v1`, `v1beta1` or `v1alpha1` from YAML, or from JSON if the text starts with `{`.
    /// It is not [validated](Self::validate).
    ///
    /// # Errors
    ///
    /// [`Error::Configuration`] with the line and the field, for what is not such a configuration or has fields
    /// that its version does not know or that are there twice. The kubelet is not lenient with these.
    pub fn from_yaml(text: &str) -> Result<Self> {
        decode(text.as_bytes())
    }

    /// Reads a file, or all files of a folder that end in `.json`, `.yaml` or `.yml`, in the order of their names,
    /// as one. Blocks meanwhile.
    ///
    /// # Errors
    ///
    /// [`Error::Configuration`] with the file, also if it cannot be read, if a folder has none, or if two providers
    /// have one name.
    pub fn read(path: &Path) -> Result<Self> {
        let mut whole = Self::default();
        for file in files(path)? {
            let text = fs::read(&file).map_err(|error| unreadable(&error, &file))?;
            for provider in decode(&text).map_err(|error| error.in_file(&file))?.providers {
                if whole
                    .providers
                    .iter()
                    .any(|earlier| earlier.name == provider.name)
                {
                    let problem = format!("providers: there are two by the name {:?}", provider.name);
                    return Err(rejected(vec![problem]).in_file(&file));
                }
                whole.providers.push(provider);
            }
        }
        Ok(whole)
    }
}

fn rejected(problems: Vec<String>) -> Error {
    Error::configuration(ConfigurationStage::Load, problems)
}

fn unreadable(error: &std::io::Error, path: &Path) -> Error {
    rejected(vec![error.to_string()]).in_file(path)
}

fn files(path: &Path) -> Result<Vec<PathBuf>> {
    let unreadable = |error: std::io::Error| unreadable(&error, path);
    if !fs::metadata(path).map_err(unreadable)?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(path).map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        let name = entry.file_name();
        // What starts with a dot may have no name but an end.
        let end = name
            .to_str()
            .and_then(|name| name.rsplit_once('.'))
            .map(|(_, end)| end);
        let is_ours = end.is_some_and(|end| EXTENSIONS.contains(&end));
        if is_ours && !entry.file_type().map_err(unreadable)?.is_dir() {
            files.push(entry.path());
        }
    }
    if files.is_empty() {
        return Err(rejected(vec!["the folder holds no configuration".into()]).in_file(path));
    }
    files.sort();
    Ok(files)
}

fn decode(text: &[u8]) -> Result<CredentialProviderConfig> {
    let one = |problem: String| rejected(vec![problem]);
    let document = Document::read(text).map_err(one)?;
    let (version, kind) = document.kind().map_err(one)?;
    let missing: &[&str] = match version.strip_prefix(GROUP) {
        Some("v1") if kind == KIND => &[],
        Some("v1beta1" | "v1alpha1") if kind == KIND => &["tokenAttributes"],
        _ => {
            let problem = format!("not a {KIND} of {GROUP}v1, v1beta1 or v1alpha1 but a {kind} of {version}");
            return Err(one(problem));
        }
    };
    let rules = Rules {
        missing,
        ..Rules::default()
    };
    let decoded = document.decode(rules).map_err(one)?;
    let mut problems = document.duplicates;
    problems.extend(decoded.unknown);
    if problems.is_empty() {
        Ok(decoded.value)
    } else {
        Err(rejected(problems))
    }
}
