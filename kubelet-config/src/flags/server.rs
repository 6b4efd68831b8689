//! From the command line to the configuration in force.

use std::path::{Path, PathBuf};

use super::{CommandLine, KubeletFlags};
use crate::credential_provider::{CredentialProvider, CredentialProviderConfig};
use crate::kubelet_configuration::validation::{FieldError, Host, ValidationErrors};
use crate::kubelet_configuration::{ConfigurationLoader, Decoding, Origins};
use crate::{FeatureGates, KubeletConfiguration, Result};

/// All that a kubelet starts with (`options.KubeletServer`).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct KubeletServer {
    /// The flags that are no fields of the configuration.
    pub flags: KubeletFlags,
    /// The configuration in force.
    pub configuration: KubeletConfiguration,
    /// The feature gates in force.
    pub feature_gates: FeatureGates,
    /// What was ignored in the files, one line each.
    pub ignored: Vec<String>,
    /// The files of the folder `--config-dir` that are no drop-ins, as they do not end in `.conf`.
    pub skipped_drop_ins: Vec<PathBuf>,
    /// Where the fields of the configuration were set.
    pub origins: Origins,
    /// All problems that the validation found; none if it was [loaded](CommandLine::load) and not only
    /// [examined](CommandLine::examine).
    pub invalid: Vec<FieldError>,
}

impl KubeletServer {
    /// The plugins that give credentials for images, each with its program: those of `--image-credential-provider-config`, whose
    /// programs lie in `--image-credential-provider-bin-dir`; none without both flags. Blocks while it reads the file.
    ///
    /// # Errors
    ///
    /// What [`CredentialProviderConfig::read`] and [`validate`](CredentialProviderConfig::validate) fail with.
    pub fn credential_providers(&self) -> Result<Vec<(PathBuf, CredentialProvider)>> {
        let KubeletFlags {
            image_credential_provider_config_path: config,
            image_credential_provider_bin_dir: programs,
            ..
        } = &self.flags;
        if config.is_empty() || programs.is_empty() {
            return Ok(Vec::new());
        }
        let config = CredentialProviderConfig::read(Path::new(config))?;
        config.validate(&self.feature_gates)?;
        let providers = config.providers.into_iter();
        let with_program = |it: CredentialProvider| (Path::new(programs).join(&it.name), it);
        Ok(providers.map(with_program).collect())
    }
}

impl CommandLine {
    /// Loads the configuration: defaults, the file of `--config`, the drop-ins of `--config-dir` and the flags,
    /// each over the one before it. Feature gates of the files and the flags add up. Then it validates the
    /// configuration. Blocks while it reads the files.
    ///
    /// Without a file and drop-ins it is [`KubeletConfiguration::without_file`] that flags are applied to. Files are
    /// read [leniently](Decoding::LenientFallback), as the kubelet does; use [`apply`](Self::apply) with a
    /// [`ConfigurationLoader`] of your own for another way.
    ///
    /// # Errors
    ///
    /// [`Error::NodeLabels`](crate::Error::NodeLabels) for labels that a node may not give itself, and what
    /// [`ConfigurationLoader::load_with_flags`] fails with.
    pub fn load(&self, host: &Host) -> Result<KubeletServer> {
        let server = self.examine(host, Decoding::LenientFallback)?;
        match server.invalid.is_empty() {
            true => Ok(server),
            false => Err(ValidationErrors::new(server.invalid).into()),
        }
    }

    /// As [`load`](Self::load), for whoever looks for problems: a configuration that is read but not valid is returned with its
    /// problems, [`invalid`](KubeletServer::invalid), so that others can look for more.
    ///
    /// # Errors
    ///
    /// If the flags, a file or the feature gates cannot be read.
    pub fn examine(&self, host: &Host, decoding: Decoding) -> Result<KubeletServer> {
        let mut of_flags = KubeletConfiguration::without_file();
        self.apply(&mut of_flags)?;
        FeatureGates::new().with(&of_flags.feature_gates)?;
        self.check()?;

        let mut loader = ConfigurationLoader::new().decoding(decoding).host(*host);
        if !self.flags.kubelet_config_file.is_empty() {
            loader = loader.config(&self.flags.kubelet_config_file);
        }
        if !self.flags.kubelet_dropin_config_directory.is_empty() {
            loader = loader.config_dir(&self.flags.kubelet_dropin_config_directory);
        }
        let loaded = loader.examine_with_flags(|configuration| self.apply(configuration))?;
        Ok(KubeletServer {
            flags: self.flags.clone(),
            configuration: loaded.config,
            feature_gates: loaded.gates,
            ignored: loaded.ignored,
            skipped_drop_ins: loaded.skipped_drop_ins,
            origins: loaded.origins,
            invalid: loaded.invalid,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credential_providers_lie_in_their_folder() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("providers.yaml");
        let load = |args: &[&str]| {
            let line = CommandLine::parse(args.iter().copied()).unwrap();
            let cgroup_v2 = Host::default();
            line.load(&cgroup_v2).unwrap().credential_providers()
        };
        let (config, programs) = (
            "--image-credential-provider-config",
            "--image-credential-provider-bin-dir",
        );
        let config = format!("{config}={}", file.display());
        assert!(load(&[]).unwrap().is_empty());
        assert!(
            load(&[&config]).unwrap().is_empty(),
            "without a folder there are none"
        );
        let error = load(&[&config, &format!("{programs}=/bin")])
            .unwrap_err()
            .to_string();
        assert!(error.contains("providers.yaml"), "{error}");
        let text = "apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\nproviders:\n\
            - name: of-a-cloud\n  apiVersion: credentialprovider.kubelet.k8s.io/v1\n  defaultCacheDuration: 1m\n  \
            matchImages: [r.io]\n";
        std::fs::write(&file, text).unwrap();
        let found = load(&[&config, &format!("{programs}=/bin")]).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].0, Path::new("/bin/of-a-cloud"));
        assert_eq!(found[0].1.match_images, ["r.io"]);
    }
}
