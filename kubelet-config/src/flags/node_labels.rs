//! `--node-labels`: which labels a node may give itself (`ValidateKubeletFlags`, `k8s.io/kubelet/pkg/apis`).

use std::collections::BTreeMap;

use crate::{Error, Result, names};

/// `KubeletLabels`
pub(super) const KUBELET_LABELS: [&str; 11] = [
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/instance-type",
    "beta.kubernetes.io/os",
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "kubernetes.io/arch",
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
];
/// `KubeletLabelNamespaces`
pub(super) const KUBELET_LABEL_NAMESPACES: [&str; 2] = ["kubelet.kubernetes.io", "node.kubernetes.io"];
/// What is under these belongs to Kubernetes.
const KUBERNETES_NAMESPACES: [&str; 2] = ["kubernetes.io", "k8s.io"];

/// # Errors
///
/// [`Error::NodeLabels`] with all labels that may not be set or are none.
pub(super) fn validate(labels: &BTreeMap<String, String>) -> Result<()> {
    let mut problems = Vec::new();
    for (key, value) in labels {
        if is_under(key, &KUBERNETES_NAMESPACES) && !is_kubelet_label(key) {
            problems.push(format!(
                "unknown label {key:?}: in the 'kubernetes.io' and 'k8s.io' namespaces it must begin with an \
                 allowed prefix ({}) or be one of the allowed labels ({})",
                KUBELET_LABEL_NAMESPACES.join(", "),
                KUBELET_LABELS.join(", ")
            ));
        }
        if let Err(why) = names::qualified_name(key) {
            problems.push(format!("invalid label {key:?}: {why}"));
        }
        if let Err(why) = names::label_value(value) {
            problems.push(format!("invalid value {value:?} of label {key:?}: {why}"));
        }
    }
    if problems.is_empty() {
        Ok(())
    } else {
        Err(Error::NodeLabels { problems })
    }
}

fn is_kubelet_label(key: &str) -> bool {
    KUBELET_LABELS.contains(&key) || is_under(key, &KUBELET_LABEL_NAMESPACES)
}

/// Whether the key's namespace is one of these or below one.
fn is_under(key: &str, namespaces: &[&str]) -> bool {
    let Some((namespace, _)) = key.split_once('/') else {
        return false;
    };
    let below = |parent: &str| {
        let prefix = namespace.strip_suffix(parent);
        prefix.is_some_and(|prefix| prefix.is_empty() || prefix.ends_with('.'))
    };
    namespaces.iter().any(|parent| below(parent))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels() {
        let count =
            |key: &str, value: &str| match validate(&BTreeMap::from([(key.to_owned(), value.to_owned())])) {
                Ok(()) => 0,
                Err(Error::NodeLabels { problems }) => problems.len(),
                Err(other) => panic!("{other}"),
            };
        for key in KUBELET_LABELS {
            assert_eq!(count(key, "x"), 0, "{key}");
        }
        let cases = [
            ("a", "b", 0),
            ("a", "", 0),
            ("example.com/a", "B_c.d", 0),
            ("kubelet.kubernetes.io/x", "y", 0),
            ("a.kubelet.kubernetes.io/x", "y", 0),
            ("foo.node.kubernetes.io/x", "y", 0),
            ("mykubernetes.io/x", "y", 0),
            ("kubernetes.io/x", "y", 1),
            ("x.k8s.io/x", "y", 1),
            ("k8s.io/x", "y", 1),
            ("node-restriction.kubernetes.io/x", "y", 1),
            ("node-role.kubernetes.io/worker", "", 1),
            ("mynode.kubernetes.io/x", "y", 1),
            ("a", "b c", 1),
            ("", "b", 1),
            ("a b", "c d", 2),
            ("kubernetes.io/a b", "c d", 3),
        ];
        for (key, value, problems) in cases {
            assert_eq!(count(key, value), problems, "{key}={value}");
        }
    }
}
