//! The pod's node selector and required node affinity.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, NodeSelectorRequirement, NodeSelectorTerm, Pod};

/// Whether the node's labels and name match the pod's requirements (`GetRequiredNodeAffinity`, `Match`).
pub(super) fn matches(pod: &Pod, node: &Node) -> bool {
    let Some(spec) = &pod.spec else { return true };
    let none = BTreeMap::new();
    let labels = node.metadata.labels.as_ref().unwrap_or(&none);
    let mut selector = spec.node_selector.iter().flatten();
    if !selector.all(|(key, value)| labels.get(key) == Some(value)) {
        return false;
    }
    let affinity = spec
        .affinity
        .as_ref()
        .and_then(|affinity| affinity.node_affinity.as_ref());
    let required = affinity.and_then(|affinity| {
        affinity
            .required_during_scheduling_ignored_during_execution
            .as_ref()
    });
    // An invalid term matches nothing; the other terms still count.
    required.is_none_or(|required| {
        let mut terms = required.node_selector_terms.iter();
        terms.any(|term| term_matches(term, labels, node).unwrap_or(false))
    })
}

/// `None` if the term is invalid. An empty term matches no node.
fn term_matches(term: &NodeSelectorTerm, labels: &BTreeMap<String, String>, node: &Node) -> Option<bool> {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    let mut all = !(expressions.is_empty() && fields.is_empty());
    for expression in expressions {
        all &= label_matches(expression, labels)?;
    }
    let name = node.metadata.name.as_deref().unwrap_or_default();
    for field in fields {
        // A node without a name has no fields; match-fields are not evaluated then.
        all &= field_matches(field, name)? || name.is_empty();
    }
    Some(all)
}

/// `labels.Requirement.Matches`
fn label_matches(required: &NodeSelectorRequirement, labels: &BTreeMap<String, String>) -> Option<bool> {
    let values = required.values.as_deref().unwrap_or_default();
    let found = labels.get(&required.key);
    match (required.operator.as_str(), values) {
        ("In", [_, ..]) => Some(found.is_some_and(|found| values.contains(found))),
        ("NotIn", [_, ..]) => Some(found.is_none_or(|found| !values.contains(found))),
        ("Exists", []) => Some(found.is_some()),
        ("DoesNotExist", []) => Some(found.is_none()),
        (operator @ ("Gt" | "Lt"), [bound]) => {
            let bound: i64 = bound.parse().ok()?;
            let Some(found) = found.and_then(|found| found.parse::<i64>().ok()) else {
                return Some(false);
            };
            Some(if operator == "Gt" {
                found > bound
            } else {
                found < bound
            })
        }
        _ => None,
    }
}

/// The only field is the node's name.
fn field_matches(required: &NodeSelectorRequirement, name: &str) -> Option<bool> {
    let found = if required.key == "metadata.name" { name } else { "" };
    match (required.operator.as_str(), required.values.as_deref()) {
        ("In", Some([value])) => Some(found == value),
        ("NotIn", Some([value])) => Some(found != value),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn expression(operator: &str, key: &str, values: &[&str]) -> Value {
        json!({"key": key, "operator": operator, "values": values})
    }

    fn with_terms(terms: Value) -> Value {
        let required =
            json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}});
        json!({"containers": [], "affinity": {"nodeAffinity": required}})
    }

    fn fits(spec: Value) -> bool {
        let pod: Pod = serde_json::from_value(json!({"spec": spec})).unwrap();
        let labels = json!({"zone": "a", "cores": "8", "word": "eight"});
        let node = json!({"metadata": {"name": "node-1", "labels": labels}});
        matches(&pod, &serde_json::from_value(node).unwrap())
    }

    #[test]
    fn the_selector_must_match_as_a_whole() {
        for (selector, expected) in [
            (json!({}), true),
            (json!({"zone": "a"}), true),
            (json!({"zone": "b"}), false),
            (json!({"zone": "a", "other": ""}), false),
        ] {
            assert_eq!(
                fits(json!({"containers": [], "nodeSelector": selector})),
                expected,
                "{selector}"
            );
        }
    }

    #[test]
    fn each_operator() {
        let cases: [(&str, &str, &[&str], bool); 19] = [
            ("In", "zone", &["b", "a"], true),
            ("In", "zone", &["b"], false),
            ("In", "other", &["a"], false),
            ("In", "zone", &[], false),
            ("NotIn", "zone", &["b"], true),
            ("NotIn", "zone", &["a"], false),
            ("NotIn", "other", &["a"], true),
            ("Exists", "zone", &[], true),
            ("Exists", "other", &[], false),
            ("Exists", "zone", &["a"], false),
            ("DoesNotExist", "zone", &[], false),
            ("DoesNotExist", "other", &[], true),
            ("Gt", "cores", &["7"], true),
            ("Gt", "cores", &["8"], false),
            ("Lt", "cores", &["9"], true),
            ("Lt", "word", &["9"], false),
            ("Gt", "cores", &["few"], false),
            ("Gt", "cores", &["1", "2"], false),
            ("Like", "zone", &["a"], false),
        ];
        for case @ (operator, key, values, expected) in cases {
            let term = json!([{"matchExpressions": [expression(operator, key, values)]}]);
            assert_eq!(fits(with_terms(term)), expected, "{case:?}");
        }
    }

    #[test]
    fn terms_are_alternatives_and_what_is_in_one_must_hold_together() {
        let good = expression("In", "zone", &["a"]);
        let bad = expression("In", "zone", &["b"]);
        let nonsense = expression("Like", "zone", &["a"]);
        let named = |operator: &str, name: &str| expression(operator, "metadata.name", &[name]);
        let cases = [
            (json!([]), false),
            (json!([{}]), false),
            (json!([{"matchExpressions": [good, bad]}]), false),
            (
                json!([{"matchExpressions": [bad]}, {"matchExpressions": [good]}]),
                true,
            ),
            (
                json!([{"matchExpressions": [nonsense]}, {"matchExpressions": [good]}]),
                true,
            ),
            (json!([{"matchExpressions": [good, nonsense]}]), false),
            (json!([{"matchFields": [named("In", "node-1")]}]), true),
            (json!([{"matchFields": [named("In", "node-2")]}]), false),
            (json!([{"matchFields": [named("NotIn", "node-2")]}]), true),
            (
                json!([{"matchExpressions": [good], "matchFields": [named("In", "node-2")]}]),
                false,
            ),
        ];
        for (terms, expected) in cases {
            assert_eq!(fits(with_terms(terms.clone())), expected, "{terms}");
        }
    }
}
