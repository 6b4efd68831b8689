//! A runtime's answers about a resize in place.

use serde::{Deserialize, Serialize};

use super::AppliedResources;
use crate::cgroups::{binary, decimal_milli};

/// Why a runtime cannot resize a running pod, whatever the node's capacity: the resize is `Infeasible`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResizeRefusal {
    /// The message of the condition `PodResizePending`.
    pub message: String,
    /// The label `reason_detail` of `kubelet_pod_infeasible_resizes_total`.
    pub reason_detail: &'static str,
}

impl ResizeRefusal {
    /// A refusal with this message, counted under this detail.
    pub fn new(message: impl Into<String>, reason_detail: &'static str) -> Self {
        Self {
            message: message.into(),
            reason_detail,
        }
    }

    /// Nothing on this node can be resized (`IsInPlacePodVerticalScalingAllowed`).
    pub fn unsupported() -> Self {
        Self::new(
            "In-place pod resize is not supported on this node",
            "unsupported_platform",
        )
    }
}

/// The CPU and memory that a container, or its pod as a whole, was given last, 0 for unset. Kept over a restart of the
/// agent (the kubelet's `actuated_pods_state`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ActuatedResources {
    /// The container's name; empty for the pod as a whole.
    pub container: String,
    /// In thousandths of a CPU.
    pub cpu_request: i64,
    /// In thousandths of a CPU.
    pub cpu_limit: i64,
    /// In bytes.
    pub memory_request: i64,
    /// In bytes.
    pub memory_limit: i64,
}

impl ActuatedResources {
    /// Adds to `reported` what a runtime does not report: the memory request, or all of it if the runtime reports nothing
    /// (`toKubeContainerStatus`).
    pub fn complete(&self, reported: Option<AppliedResources>) -> Option<AppliedResources> {
        let is_set = |amount: &i64| *amount > 0;
        let memory_request = Some(self.memory_request).filter(is_set).map(binary);
        let completed = match reported {
            Some(reported) => AppliedResources {
                memory_request: reported.memory_request.or(memory_request),
                ..reported
            },
            None => AppliedResources {
                cpu_request: Some(self.cpu_request).filter(is_set).map(decimal_milli),
                cpu_limit: Some(self.cpu_limit).filter(is_set).map(decimal_milli),
                memory_request,
                memory_limit: Some(self.memory_limit).filter(is_set).map(binary),
            },
        };
        (completed != AppliedResources::default()).then_some(completed)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

    use super::*;

    #[test]
    fn what_a_runtime_does_not_report_is_what_it_was_given() {
        let given = ActuatedResources {
            container: "a".to_owned(),
            cpu_request: 100,
            cpu_limit: 0,
            memory_request: 64 << 20,
            memory_limit: 128 << 20,
        };
        let resources = |cpu_request: &str, cpu_limit: &str, memory_request: &str, memory_limit: &str| {
            let quantity = |text: &str| (!text.is_empty()).then(|| Quantity(text.to_owned()));
            AppliedResources {
                cpu_request: quantity(cpu_request),
                cpu_limit: quantity(cpu_limit),
                memory_request: quantity(memory_request),
                memory_limit: quantity(memory_limit),
            }
        };
        let cases = [
            (None, resources("100m", "", "64Mi", "128Mi")),
            (
                Some(resources("2", "3", "", "1Gi")),
                resources("2", "3", "64Mi", "1Gi"),
            ),
            // A limit that the runtime does not report is not in force.
            (Some(resources("2", "", "", "")), resources("2", "", "64Mi", "")),
            (Some(resources("2", "", "1Mi", "")), resources("2", "", "1Mi", "")),
        ];
        for (reported, completed) in cases {
            assert_eq!(given.complete(reported.clone()), Some(completed), "{reported:?}");
        }
        let nothing = ActuatedResources {
            cpu_request: 0,
            memory_request: 0,
            memory_limit: 0,
            ..given
        };
        assert_eq!(nothing.complete(None), None);
    }
}
