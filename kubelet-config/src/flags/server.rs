//! From the command line to the configuration in force.

use std::path::PathBuf;

use super::{CommandLine, KubeletFlags};
use crate::kubelet_configuration::validation::Host;
use crate::kubelet_configuration::{ConfigurationLoader, Decoding};
use crate::{FeatureGates, KubeletConfiguration, Result};

/// All that a kubelet starts with (`options.KubeletServer`).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct KubeletServer {
    /// The flags that are no fields of the configuration.
    pub flags: KubeletFlags,
    /// The configuration in force, validated.
    pub configuration: KubeletConfiguration,
    /// The feature gates in force.
    pub feature_gates: FeatureGates,
    /// What was ignored of the files, one line each.
    pub ignored: Vec<String>,
    /// The files of the folder `--config-dir` that are no drop-ins, as they do not end in `.conf`.
    pub skipped_drop_ins: Vec<PathBuf>,
}

impl CommandLine {
    /// Loads the configuration that the command line tells of: defaults, the file of `--config`, the drop-ins of
    /// `--config-dir` and the flags, each over the one before it, and of feature gates all that are set; then all is
    /// validated. Blocks while it reads the files.
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
        let mut of_flags = KubeletConfiguration::without_file();
        self.apply(&mut of_flags)?;
        FeatureGates::new().with(&of_flags.feature_gates)?;
        self.check()?;

        let mut loader = ConfigurationLoader::new()
            .decoding(Decoding::LenientFallback)
            .host(*host);
        if !self.flags.kubelet_config_file.is_empty() {
            loader = loader.config(&self.flags.kubelet_config_file);
        }
        if !self.flags.kubelet_dropin_config_directory.is_empty() {
            loader = loader.config_dir(&self.flags.kubelet_dropin_config_directory);
        }
        let loaded = loader.load_with_flags(|configuration| self.apply(configuration))?;
        Ok(KubeletServer {
            flags: self.flags.clone(),
            configuration: loaded.config,
            feature_gates: loaded.gates,
            ignored: loaded.ignored,
            skipped_drop_ins: loaded.skipped_drop_ins,
        })
    }
}
