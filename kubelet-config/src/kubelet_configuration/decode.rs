//! Decodes a configuration file.

use super::defaults::default_eviction_hard;
use super::fields::KubeletConfiguration;
use crate::document::{Content, Decoded, Document, Node, Rules};
use crate::{ConfigurationStage, Error, FeatureGates, Result};

/// Durations that are no pointers in the API: it reads their `null` as a duration, and fails.
const PLAIN_DURATIONS: [&str; 17] = [
    "syncFrequency",
    "fileCheckFrequency",
    "httpCheckFrequency",
    "cacheTTL",
    "cacheAuthorizedTTL",
    "cacheUnauthorizedTTL",
    "streamingConnectionIdleTimeout",
    "nodeStatusUpdateFrequency",
    "nodeStatusReportFrequency",
    "imageMinimumGCAge",
    "imageMaximumGCAge",
    "volumeStatsAggPeriod",
    "cpuManagerReconcilePeriod",
    "runtimeRequestTimeout",
    "evictionPressureTransitionPeriod",
    "shutdownGracePeriod",
    "shutdownGracePeriodCriticalPods",
];

pub(super) const RULES: Rules = Rules {
    not_null: &PLAIN_DURATIONS,
    missing: &[],
    fold_case: false,
};

pub(super) const API_VERSION: &str = "kubelet.config.k8s.io/v1beta1";
pub(super) const KIND: &str = "KubeletConfiguration";

/// How to treat unknown and duplicate fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Decoding {
    /// They are errors.
    #[default]
    Strict,
    /// They are ignored and reported, as in the kubelet. The last duplicate counts.
    LenientFallback,
}

impl KubeletConfiguration {
    /// Reads a configuration from YAML, or from JSON if the text starts with `{`. Unknown and duplicate fields are
    /// errors. Unset fields get their [defaults](Self::default).
    ///
    /// It is not [validated](super::validation::validate), and relative paths stay relative. Use a
    /// [`ConfigurationLoader`](super::ConfigurationLoader) for both.
    ///
    /// ```
    /// use kubelet_config::KubeletConfiguration;
    ///
    /// let config = KubeletConfiguration::from_yaml(
    ///     "apiVersion: kubelet.config.k8s.io/v1beta1
    /// kind: KubeletConfiguration
    /// syncFrequency: 90s",
    /// )?;
    /// assert_eq!(config.sync_frequency.to_string(), "1m30s");
    /// assert_eq!(config.max_pods, 110);
    /// # Ok::<(), kubelet_config::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Configuration`] of the stage [`Load`](ConfigurationStage::Load) with the line and the field, if the
    /// text is not a configuration or has unknown or duplicate fields; of the stage
    /// [`FeatureGates`](ConfigurationStage::FeatureGates) for invalid gates.
    pub fn from_yaml(text: &str) -> Result<Self> {
        Ok(decode(text.as_bytes(), Decoding::Strict, &FeatureGates::new())?.config)
    }

    /// As [`from_yaml`](Self::from_yaml), but it ignores unknown and duplicate fields and returns one line for
    /// each.
    ///
    /// # Errors
    ///
    /// As [`from_yaml`](Self::from_yaml), except for unknown and duplicate fields.
    pub fn from_yaml_lenient(text: &str) -> Result<(Self, Vec<String>)> {
        let read = decode(text.as_bytes(), Decoding::LenientFallback, &FeatureGates::new())?;
        Ok((read.config, read.ignored))
    }
}

/// A configuration file that was read.
pub(super) struct Read {
    pub(super) config: KubeletConfiguration,
    /// What was ignored, one line each.
    pub(super) ignored: Vec<String>,
    /// The fields that the file sets.
    pub(super) root: Node,
}

/// Reads a configuration file.
pub(super) fn decode(text: &[u8], decoding: Decoding, gates: &FeatureGates) -> Result<Read> {
    let load = |problem: String| Error::configuration(ConfigurationStage::Load, vec![problem]);
    if text.is_empty() {
        return Err(load("the file is empty".into()));
    }
    let document = Document::read(text).map_err(load)?;
    check_kind(&document).map_err(load)?;
    let Decoded { value, unknown } = document.decode(RULES).map_err(load)?;
    let mut ignored = document.duplicates;
    ignored.extend(unknown);
    if decoding == Decoding::Strict && !ignored.is_empty() {
        return Err(Error::configuration(ConfigurationStage::Load, ignored));
    }
    ignored.extend(document.passed_over);
    let mut config = complete(value, &document.root.content, gates)?;
    if !document.root.content.sets("evictionHard") {
        config.eviction_hard = default_eviction_hard();
    } else if config.merge_default_eviction_settings {
        for (signal, threshold) in default_eviction_hard() {
            config.eviction_hard.entry(signal).or_insert(threshold);
        }
    }
    Ok(Read {
        config,
        ignored,
        root: document.root,
    })
}

/// Refuses all but `KubeletConfiguration` of `kubelet.config.k8s.io/v1beta1`.
pub(super) fn check_kind(document: &Document) -> Result<(), String> {
    match document.kind()? {
        (API_VERSION, KIND) => Ok(()),
        (version, kind) => Err(format!("not a {KIND} of {API_VERSION} but a {kind} of {version}")),
    }
}

/// Fills in the defaults of what is unset, by the document that `config` was read from.
pub(super) fn complete(
    mut config: KubeletConfiguration,
    given: &Content,
    gates: &FeatureGates,
) -> Result<KubeletConfiguration> {
    let mut gates = gates.clone();
    gates
        .set_from_map(&config.feature_gates)
        .map_err(|error| error.at_stage(ConfigurationStage::FeatureGates))?;
    config.set_defaults(given, &gates);
    Ok(config)
}
