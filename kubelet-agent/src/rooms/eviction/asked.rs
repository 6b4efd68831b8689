//! Whether the settings ask for eviction.

use std::collections::BTreeMap;

use kubelet_config::KubeletConfiguration;

use crate::error::{Result, invalid};
use crate::settings::Settings;

/// Reports that thresholds have no effect: as an error, or in the log if they are the defaults of the kubelet.
///
/// # Errors
///
/// If the settings have thresholds other than the defaults.
pub(super) fn impossible(settings: &Settings, why: &str) -> Result<()> {
    let (config, defaults) = (&settings.configuration, KubeletConfiguration::default());
    for (field, thresholds, default) in [
        ("evictionHard", &config.eviction_hard, &defaults.eviction_hard),
        ("evictionSoft", &config.eviction_soft, &defaults.eviction_soft),
    ] {
        if !has_any(thresholds) {
            continue;
        }
        if thresholds != default {
            let thresholds: Vec<String> = thresholds
                .iter()
                .map(|(signal, value)| format!("{signal}<{value}"))
                .collect();
            return Err(invalid(field, &thresholds.join(","), why));
        }
        tracing::warn!("{field} {why}; no pods are evicted by its defaults");
    }
    Ok(())
}

/// `parseThresholdStatement` ignores 0 % and 100 %.
fn has_any(thresholds: &BTreeMap<String, String>) -> bool {
    thresholds
        .values()
        .any(|value| !matches!(value.as_str(), "0%" | "100%"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_thresholds_that_somebody_set_are_an_error() {
        let mut settings = Settings::new("/agent");
        impossible(&settings, "cannot be").unwrap();
        settings.configuration.eviction_hard = KubeletConfiguration::default().eviction_hard;
        assert!(!settings.configuration.eviction_hard.is_empty());
        impossible(&settings, "cannot be").unwrap();
        let one = |value: &str| BTreeMap::from([("memory.available".to_owned(), value.to_owned())]);
        settings.configuration.eviction_hard = one("0%");
        impossible(&settings, "cannot be").unwrap();
        settings.configuration.eviction_hard = one("1Gi");
        let error = impossible(&settings, "cannot be").unwrap_err().to_string();
        assert!(
            error.ends_with("evictionHard \"memory.available<1Gi\": cannot be"),
            "{error}"
        );
        settings.configuration.eviction_hard.clear();
        settings.configuration.eviction_soft = one("10%");
        let error = impossible(&settings, "cannot be").unwrap_err().to_string();
        assert!(error.contains("evictionSoft"), "{error}");
    }
}
