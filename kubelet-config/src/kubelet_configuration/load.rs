//! Loads the configuration of a node from its files.

use std::fs;
use std::path::{Component, Path, PathBuf};

use super::decode::{Decoding, Read, decode};
use super::drop_in;
use super::fields::KubeletConfiguration;
use super::origins::Origins;
use super::validation::{FieldError, Host, ValidationErrors, validate};
use crate::{ConfigurationStage, Error, FeatureGates, Result};

/// Loads a node's configuration as the kubelet does: defaults, the file (`--config`), the drop-ins (`--config-dir`)
/// and the command line, each over the one before it; then the feature gates are set and the whole is validated.
///
/// ```
/// use kubelet_config::kubelet_configuration::ConfigurationLoader;
/// use kubelet_config::kubelet_configuration::validation::Host;
/// # let folder = tempfile::tempdir()?;
/// # let file = folder.path().join("config.yaml");
///
/// std::fs::write(
///     &file,
///     "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nstaticPodPath: manifests\n",
/// )?;
/// let loaded = ConfigurationLoader::new().config(&file).host(Host::default()).load()?;
/// assert_eq!(loaded.config.static_pod_path, folder.path().join("manifests").to_string_lossy());
/// assert!(loaded.gates.enabled("GracefulNodeShutdown"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct ConfigurationLoader {
    config: Option<PathBuf>,
    config_dir: Option<PathBuf>,
    decoding: Decoding,
    host: Option<Host>,
}

/// A configuration that was loaded.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LoadedConfiguration {
    /// The whole.
    pub config: KubeletConfiguration,
    /// The feature gates that it sets.
    pub gates: FeatureGates,
    /// What was ignored in the files, one line each.
    pub ignored: Vec<String>,
    /// The files of the drop-in folder that were skipped, since they do not end in `.conf`.
    pub skipped_drop_ins: Vec<PathBuf>,
    /// Where the fields were set.
    pub origins: Origins,
    /// All problems that the validation found; none if it was [loaded](ConfigurationLoader::load) and not only
    /// [examined](ConfigurationLoader::examine_with_flags).
    pub invalid: Vec<FieldError>,
}

impl ConfigurationLoader {
    /// Without any file.
    pub fn new() -> Self {
        Self::default()
    }

    /// The configuration file (`--config`). Relative paths in it start at its folder.
    pub fn config(mut self, path: impl Into<PathBuf>) -> Self {
        self.config = Some(path.into());
        self
    }

    /// The folder of drop-ins (`--config-dir`): all files that end in `.conf`, in its folders too, by name.
    pub fn config_dir(mut self, path: impl Into<PathBuf>) -> Self {
        self.config_dir = Some(path.into());
        self
    }

    /// How to treat unknown and duplicate fields. Default: as errors. The kubelet is
    /// [lenient](Decoding::LenientFallback). In a drop-in a duplicate field is always an error.
    pub fn decoding(mut self, decoding: Decoding) -> Self {
        self.decoding = decoding;
        self
    }

    /// The host that the configuration is validated for. Default: this host.
    pub fn host(mut self, host: Host) -> Self {
        self.host = Some(host);
        self
    }

    /// Loads the configuration. Blocks while it reads the files.
    ///
    /// Without a file and without drop-ins it is [`KubeletConfiguration::without_file`].
    ///
    /// # Errors
    ///
    /// [`Error::Configuration`] with the file and all problems of the stage at which it was rejected, or
    /// [`Error::Validation`]; [`Error::stage`] returns the stage.
    pub fn load(&self) -> Result<LoadedConfiguration> {
        self.load_with_flags(|_| Ok(()))
    }

    /// As [`load`](Self::load), with a command line. `apply` sets the fields that the command line has a flag for;
    /// of feature gates only the flag's, the others are kept. It is called on the configuration before the file is
    /// read, as its gates have a say in defaults, and again on what was read.
    ///
    /// # Errors
    ///
    /// As [`load`](Self::load), and what `apply` fails with.
    pub fn load_with_flags(
        &self,
        apply: impl FnMut(&mut KubeletConfiguration) -> Result<()>,
    ) -> Result<LoadedConfiguration> {
        let loaded = self.examine_with_flags(apply)?;
        match loaded.invalid.is_empty() {
            true => Ok(loaded),
            false => Err(ValidationErrors::new(loaded.invalid).into()),
        }
    }

    /// As [`load_with_flags`](Self::load_with_flags), for whoever looks for problems: a configuration that is read but not valid is
    /// returned with its problems, [`invalid`](LoadedConfiguration::invalid), so that others can look for more.
    ///
    /// # Errors
    ///
    /// If a file cannot be read or decoded or if feature gates cannot be set, and what `apply` fails with.
    pub fn examine_with_flags(
        &self,
        mut apply: impl FnMut(&mut KubeletConfiguration) -> Result<()>,
    ) -> Result<LoadedConfiguration> {
        let mut gates = FeatureGates::new();
        let mut set_gates = |config: &KubeletConfiguration| {
            gates
                .set_from_map(&config.feature_gates)
                .map_err(|error| error.at_stage(ConfigurationStage::FeatureGates))?;
            Ok::<_, Error>(gates.clone())
        };
        let mut config = KubeletConfiguration::without_file();
        apply(&mut config)?;
        let mut in_force = set_gates(&config)?;

        let (mut ignored, mut skipped_drop_ins) = (Vec::new(), Vec::new());
        let mut origins = Origins::default();
        origins.add_flags(&as_json(&KubeletConfiguration::without_file()), &as_json(&config));
        if let Some(path) = &self.config {
            let read = read(path, self.decoding, &in_force)?;
            origins = Origins::default();
            origins.add_file(path, &read.root);
            (config, ignored) = (read.config, read.ignored);
        }
        if let Some(folder) = &self.config_dir {
            let merged = drop_in::merge(&config, folder, self.decoding, &in_force, &mut origins)?;
            config = merged.config;
            ignored.extend(merged.ignored);
            skipped_drop_ins = merged.skipped;
        }
        if self.config.is_some() || self.config_dir.is_some() {
            let of_files = std::mem::take(&mut config.feature_gates);
            let before = as_json(&config);
            apply(&mut config)?;
            origins.add_flags(&before, &as_json(&config));
            for (name, value) in of_files {
                config.feature_gates.entry(name).or_insert(value);
            }
            in_force = set_gates(&config)?;
        }
        let valid = validate(&config, &in_force, &self.host.unwrap_or_else(Host::detect));
        let invalid = valid.err().map(|errors| errors.into_iter().collect());
        Ok(LoadedConfiguration {
            config,
            gates: in_force,
            ignored,
            skipped_drop_ins,
            origins,
            invalid: invalid.unwrap_or_default(),
        })
    }
}

/// To see what changes. A configuration is always JSON.
fn as_json(config: &KubeletConfiguration) -> serde_json::Value {
    serde_json::to_value(config).unwrap_or_default()
}

/// Reads the configuration file.
fn read(path: &Path, decoding: Decoding, gates: &FeatureGates) -> Result<Read> {
    let rejected = |error: std::io::Error| {
        Error::configuration(ConfigurationStage::Load, vec![error.to_string()]).in_file(path)
    };
    let text = fs::read(path).map_err(rejected)?;
    let mut read = decode(&text, decoding, gates).map_err(|error| error.in_file(path))?;
    let absolute = std::path::absolute(path).map_err(rejected)?;
    if let Some(folder) = absolute.parent() {
        resolve_relative_paths(&mut read.config, folder);
    }
    Ok(read)
}

/// Makes the fields that are paths start at `folder`. An empty path stays one.
fn resolve_relative_paths(config: &mut KubeletConfiguration, folder: &Path) {
    let paths = [
        &mut config.static_pod_path,
        &mut config.authentication.x509.client_ca_file,
        &mut config.tls_cert_file,
        &mut config.tls_private_key_file,
        &mut config.resolv_conf,
        &mut config.volume_plugin_dir,
        &mut config.pod_logs_dir,
    ];
    for path in paths {
        if !path.is_empty() && !path.starts_with('/') {
            *path = cleaned(&folder.join(&*path)).to_string_lossy().into_owned();
        }
    }
}

/// Without `.` and `..`, by the letters of an absolute path alone (`filepath.Clean`).
fn cleaned(path: &Path) -> PathBuf {
    let mut clean = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => _ = clean.pop(),
            Component::CurDir => {}
            part => clean.push(part),
        }
    }
    clean
}
