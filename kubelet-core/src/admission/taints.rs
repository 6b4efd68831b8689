//! Taints of the node.

use k8s_openapi::api::core::v1::{Node, Pod, Taint, Toleration};

/// Whether the pod tolerates all taints with the effect `NoExecute`; the other taints concern only the scheduler
/// (`FindMatchingUntoleratedTaint`).
pub(super) fn are_tolerated(pod: &Pod, node: &Node) -> bool {
    let spec = pod.spec.as_ref();
    let tolerations = spec
        .and_then(|spec| spec.tolerations.as_deref())
        .unwrap_or_default();
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    let mut hard = taints.filter(|taint| taint.effect == "NoExecute");
    hard.all(|taint| tolerations.iter().any(|toleration| tolerates(toleration, taint)))
}

/// Whether a pod with this toleration may be where this taint is (`Toleration.ToleratesTaint`). The operators `Lt` and `Gt`
/// tolerate nothing: their feature gate is off by default.
pub fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let unset_or = |given: &Option<String>, wanted: &str| {
        given
            .as_deref()
            .is_none_or(|given| given.is_empty() || given == wanted)
    };
    let value = |value: &Option<String>| value.clone().unwrap_or_default();
    unset_or(&toleration.effect, &taint.effect)
        && unset_or(&toleration.key, &taint.key)
        && match toleration.operator.as_deref().unwrap_or_default() {
            "" | "Equal" => value(&toleration.value) == value(&taint.value),
            "Exists" => true,
            _ => false,
        }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn only_what_ends_pods_must_be_tolerated() {
        let hard = json!({"key": "k", "value": "v", "effect": "NoExecute"});
        let cases: [(Value, Value, bool); 10] = [
            (json!([]), hard.clone(), false),
            (json!([]), json!({"key": "k", "effect": "NoSchedule"}), true),
            (json!([]), json!({"key": "k", "effect": "PreferNoSchedule"}), true),
            (json!([{"key": "k", "value": "v"}]), hard.clone(), true),
            (
                json!([{"key": "k", "operator": "Equal", "value": "w"}]),
                hard.clone(),
                false,
            ),
            (json!([{"key": "k", "operator": "Exists"}]), hard.clone(), true),
            (json!([{"operator": "Exists"}]), hard.clone(), true),
            (
                json!([{"operator": "Exists", "effect": "NoSchedule"}]),
                hard.clone(),
                false,
            ),
            (json!([{"key": "l", "operator": "Exists"}]), hard.clone(), false),
            // A gate that is off by default.
            (json!([{"key": "k", "operator": "Gt", "value": "1"}]), hard, false),
        ];
        for (tolerations, taint, expected) in cases {
            let pod = json!({"spec": {"containers": [], "tolerations": tolerations}});
            let pod: Pod = serde_json::from_value(pod).unwrap();
            let node: Node = serde_json::from_value(json!({"spec": {"taints": [taint]}})).unwrap();
            assert_eq!(
                are_tolerated(&pod, &node),
                expected,
                "{:?} {:?}",
                pod.spec,
                node.spec
            );
        }
    }
}
