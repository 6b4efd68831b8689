//! The configuration as it is shown.

use serde::Serialize;

use super::decode::{API_VERSION, KIND};
use super::fields::KubeletConfiguration;

/// Stands in for what is secret.
const MASKED: &str = "<masked>";

/// What the node's server answers to `/configz`, written as JSON: `{"kubeletconfig": {…}}`.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Configz<'a> {
    kubeletconfig: Typed<'a>,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct Typed<'a> {
    #[serde(rename = "apiVersion")]
    api_version: &'static str,
    kind: &'static str,
    #[serde(flatten)]
    configuration: &'a KubeletConfiguration,
}

impl KubeletConfiguration {
    /// The answer to `/configz`: the configuration in force, field by field as the kubelet shows it. The values of
    /// [`static_pod_url_header`](Self::static_pod_url_header) are in it.
    pub fn configz(&self) -> Configz<'_> {
        Configz {
            kubeletconfig: Typed {
                api_version: API_VERSION,
                kind: KIND,
                configuration: self,
            },
        }
    }

    /// The configuration for a log: without the values of
    /// [`static_pod_url_header`](Self::static_pod_url_header).
    #[must_use]
    pub fn masked(&self) -> Self {
        let mut masked = self.clone();
        for values in masked.static_pod_url_header.values_mut() {
            *values = vec![MASKED.to_owned()];
        }
        masked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_header_values_are_masked() {
        let mut config = KubeletConfiguration::default();
        let header = (
            "Authorization".to_owned(),
            vec!["secret".to_owned(), "too".to_owned()],
        );
        config.static_pod_url_header.extend([header]);
        let masked = config.masked();
        assert_eq!(masked.static_pod_url_header["Authorization"], ["<masked>"]);
        config.static_pod_url_header.clear();
        let rest = KubeletConfiguration {
            static_pod_url_header: config.static_pod_url_header.clone(),
            ..masked
        };
        assert_eq!(rest, config);
    }
}
