//! Whether a kubelet would run with a configuration: every rule of the kubelet v1.36
//! (`pkg/kubelet/apis/config/validation`).
//!
//! ```
//! use kubelet_config::FeatureGates;
//! use kubelet_config::kubelet_configuration::KubeletConfiguration;
//! use kubelet_config::kubelet_configuration::validation::{Host, validate};
//!
//! let mut config = KubeletConfiguration::default();
//! validate(&config, &FeatureGates::new(), &Host::default())?;
//!
//! config.max_pods = -1;
//! config.hairpin_mode = "bogus".into();
//! let errors = validate(&config, &FeatureGates::new(), &Host::default()).unwrap_err();
//! let fields: Vec<_> = errors.errors().iter().map(|error| error.field.as_str()).collect();
//! assert_eq!(fields, ["maxPods", "hairpinMode"]);
//! assert_eq!(errors.errors()[0].value, "-1");
//! # Ok::<(), kubelet_config::Error>(())
//! ```

mod errors;
mod host;
mod images;
mod limits;
mod logging;
mod node;
mod reservations;
mod shutdown;
mod tracing;

pub use errors::{FieldError, ValidationErrors};
pub use host::Host;

use super::KubeletConfiguration;
use crate::FeatureGates;
pub(crate) use errors::Problems;

/// Checks a configuration, under these gates and those that it sets itself (`ValidateKubeletConfiguration`).
///
/// # Errors
///
/// All problems together. If the gates of the configuration are invalid, only they are reported, since other rules
/// depend on them.
pub fn validate(
    config: &KubeletConfiguration,
    gates: &FeatureGates,
    host: &Host,
) -> Result<(), ValidationErrors> {
    let mut problems = Problems::default();
    let gates = match gates.with(&config.feature_gates) {
        Ok(gates) => gates,
        Err(refused) => {
            for gate in refused {
                problems.invalid(
                    format!("featureGates.{}", gate.gate),
                    gate.value,
                    gate.to_string(),
                );
            }
            return problems.into_result();
        }
    };
    limits::validate(config, &gates, &mut problems);
    node::validate(config, &gates, host, &mut problems);
    reservations::validate(config, &mut problems);
    images::validate(config, &gates, &mut problems);
    shutdown::validate(config, &gates, &mut problems);
    logging::validate(config, &gates, host, &mut problems);
    tracing::validate(config.tracing.as_ref(), &mut problems);
    problems.into_result()
}
