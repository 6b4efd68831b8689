//! What a scheduler looks at: affinity, topology spread, and the selectors in them.

use std::collections::HashSet;

use k8s_openapi::api::core::v1::{
    Affinity, NodeSelectorRequirement, NodeSelectorTerm, PodAffinityTerm, PodSpec, TopologySpreadConstraint,
    WeightedPodAffinityTerm,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::{Field, Problems, names};

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
const NOT_AN_OPERATOR: &str = "not a valid selector operator";
const WEIGHTS: &str = "must be in the range 1-100";

pub(super) fn validate(spec: &PodSpec, field: &Field, problems: &mut Problems) {
    if let Some(affinity) = &spec.affinity {
        validate_affinity(affinity, &field.child("affinity"), problems);
    }
    let constraints = spec.topology_spread_constraints.as_deref().unwrap_or_default();
    for (index, constraint) in constraints.iter().enumerate() {
        let field = field.child("topologySpreadConstraints").index(index);
        validate_spread(constraint, &constraints[index + 1..], &field, problems);
    }
    if let Some(group) = &spec.scheduling_group {
        let field = field.child("schedulingGroup").child("podGroupName");
        match &group.pod_group_name {
            Some(name) => problems.unless_formed(&field, name, names::dns_subdomain),
            None => problems.invalid(&field, "", "must specify one of: `podGroupName`"),
        }
    }
}

fn validate_affinity(affinity: &Affinity, field: &Field, problems: &mut Problems) {
    if let Some(node) = &affinity.node_affinity {
        let field = field.child("nodeAffinity");
        if let Some(selector) = &node.required_during_scheduling_ignored_during_execution {
            let field = field.child(REQUIRED).child("nodeSelectorTerms");
            if selector.node_selector_terms.is_empty() {
                problems.required(&field, "must have at least one node selector term");
            }
            for (index, term) in selector.node_selector_terms.iter().enumerate() {
                validate_node_term(term, true, &field.index(index), problems);
            }
        }
        let preferred = &node.preferred_during_scheduling_ignored_during_execution;
        for (index, term) in preferred.iter().flatten().enumerate() {
            let field = field.child(PREFERRED).index(index);
            validate_weight(term.weight, &field, problems);
            validate_node_term(&term.preference, false, &field.child("preference"), problems);
        }
    }
    if let Some(pod) = &affinity.pod_affinity {
        validate_pod_terms(
            pod.required_during_scheduling_ignored_during_execution.as_deref(),
            pod.preferred_during_scheduling_ignored_during_execution
                .as_deref(),
            &field.child("podAffinity"),
            problems,
        );
    }
    if let Some(pod) = &affinity.pod_anti_affinity {
        validate_pod_terms(
            pod.required_during_scheduling_ignored_during_execution.as_deref(),
            pod.preferred_during_scheduling_ignored_during_execution
                .as_deref(),
            &field.child("podAntiAffinity"),
            problems,
        );
    }
}

fn validate_weight(weight: i32, field: &Field, problems: &mut Problems) {
    if !(1..=100).contains(&weight) {
        problems.invalid(&field.child("weight"), weight, WEIGHTS);
    }
}

/// In what is only preferred a value may be one that no label can have.
fn validate_node_term(term: &NodeSelectorTerm, strict: bool, field: &Field, problems: &mut Problems) {
    for (index, requirement) in term.match_expressions.iter().flatten().enumerate() {
        let field = field.child("matchExpressions").index(index);
        validate_node_labels(requirement, strict, &field, problems);
    }
    for (index, requirement) in term.match_fields.iter().flatten().enumerate() {
        validate_node_fields(requirement, &field.child("matchFields").index(index), problems);
    }
}

fn validate_node_labels(
    requirement: &NodeSelectorRequirement,
    strict: bool,
    field: &Field,
    problems: &mut Problems,
) {
    let values = requirement.values.as_deref().unwrap_or_default();
    let at = field.child("values");
    match requirement.operator.as_str() {
        "In" | "NotIn" if values.is_empty() => {
            problems.required(&at, "must be specified when `operator` is 'In' or 'NotIn'");
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            let why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            problems.forbidden(&at, why);
        }
        "Gt" | "Lt" if values.len() != 1 => {
            let why = "must be specified single value when `operator` is 'Lt' or 'Gt'";
            problems.required(&at, why);
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
        other => problems.invalid(&field.child("operator"), other, NOT_AN_OPERATOR),
    }
    problems.unless_formed(&field.child("key"), &requirement.key, names::qualified_name);
    if strict {
        for (index, value) in values.iter().enumerate() {
            problems.unless_formed(&at.index(index), value, names::label_value);
        }
    }
}

fn validate_node_fields(requirement: &NodeSelectorRequirement, field: &Field, problems: &mut Problems) {
    let values = requirement.values.as_deref().unwrap_or_default();
    match requirement.operator.as_str() {
        "In" | "NotIn" if values.len() == 1 => {}
        "In" | "NotIn" => {
            let why = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
            problems.required(&field.child("values"), why);
        }
        other => problems.invalid(&field.child("operator"), other, NOT_AN_OPERATOR),
    }
    if requirement.key != "metadata.name" {
        let why = "not a valid field selector key";
        problems.invalid(&field.child("key"), &requirement.key, why);
        return;
    }
    for (index, value) in values.iter().enumerate() {
        problems.unless_formed(&field.child("values").index(index), value, names::dns_subdomain);
    }
}

fn validate_pod_terms(
    required: Option<&[PodAffinityTerm]>,
    preferred: Option<&[WeightedPodAffinityTerm]>,
    field: &Field,
    problems: &mut Problems,
) {
    for (index, term) in required.unwrap_or_default().iter().enumerate() {
        validate_pod_term(term, &field.child(REQUIRED).index(index), problems);
    }
    for (index, weighted) in preferred.unwrap_or_default().iter().enumerate() {
        let field = field.child(PREFERRED).index(index);
        validate_weight(weighted.weight, &field, problems);
        validate_pod_term(
            &weighted.pod_affinity_term,
            &field.child("podAffinityTerm"),
            problems,
        );
    }
}

fn validate_pod_term(term: &PodAffinityTerm, field: &Field, problems: &mut Problems) {
    for (name, selector) in [
        ("labelSelector", &term.label_selector),
        ("namespaceSelector", &term.namespace_selector),
    ] {
        if let Some(selector) = selector {
            validate_selector(selector, &field.child(name), problems);
        }
    }
    for namespace in term.namespaces.iter().flatten() {
        problems.unless_formed(&field.child("namespace"), namespace, names::dns_label);
    }
    validate_label_keys(
        term.match_label_keys.as_deref().unwrap_or_default(),
        term.mismatch_label_keys.as_deref().unwrap_or_default(),
        term.label_selector.as_ref(),
        field,
        problems,
    );
    let at = field.child("topologyKey");
    if term.topology_key.is_empty() {
        problems.required(&at, "can not be empty");
    }
    problems.unless_formed(&at, &term.topology_key, names::qualified_name);
}

fn validate_spread(
    constraint: &TopologySpreadConstraint,
    others: &[TopologySpreadConstraint],
    field: &Field,
    problems: &mut Problems,
) {
    let positive = |number: i32, name: &str, problems: &mut Problems| {
        if number <= 0 {
            problems.invalid(&field.child(name), number, "must be greater than 0");
        }
    };
    positive(constraint.max_skew, "maxSkew", problems);
    if constraint.topology_key.is_empty() {
        problems.required(&field.child("topologyKey"), "can not be empty");
    }
    let action = constraint.when_unsatisfiable.as_str();
    let supported = ["DoNotSchedule", "ScheduleAnyway"];
    problems.unless_one_of(&field.child("whenUnsatisfiable"), action, &supported);
    let again = |other: &TopologySpreadConstraint| {
        other.topology_key == constraint.topology_key && other.when_unsatisfiable == action
    };
    if others.iter().any(again) {
        let pair = format!("{{{}, {action}}}", constraint.topology_key);
        problems.duplicate(&field.child("{topologyKey, whenUnsatisfiable}"), &pair);
    }
    if let Some(domains) = constraint.min_domains {
        positive(domains, "minDomains", problems);
        if action != "DoNotSchedule" {
            let why = format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}");
            problems.invalid(&field.child("minDomains"), domains, &why);
        }
    }
    for (name, policy) in [
        ("nodeAffinityPolicy", &constraint.node_affinity_policy),
        ("nodeTaintsPolicy", &constraint.node_taints_policy),
    ] {
        if let Some(policy) = policy {
            problems.unless_one_of(&field.child(name), policy, &["Honor", "Ignore"]);
        }
    }
    let selector = constraint.label_selector.as_ref();
    let keys = constraint.match_label_keys.as_deref().unwrap_or_default();
    validate_label_keys(keys, &[], selector, field, problems);
    if let Some(selector) = selector {
        validate_selector(selector, &field.child("labelSelector"), problems);
    }
}

fn validate_label_keys(
    matching: &[String],
    mismatching: &[String],
    selector: Option<&LabelSelector>,
    field: &Field,
    problems: &mut Problems,
) {
    for (name, keys) in [("matchLabelKeys", matching), ("mismatchLabelKeys", mismatching)] {
        let field = field.child(name);
        if !keys.is_empty() && selector.is_none() {
            problems.forbidden(&field, "must not be specified when labelSelector is not set");
            continue;
        }
        for (index, key) in keys.iter().enumerate() {
            problems.unless_formed(&field.index(index), key, names::qualified_name);
        }
    }
    if let Some(selector) = selector {
        // An API server adds an expression for each of these keys: what is wrong is to have it twice.
        let mut selected: HashSet<&str> = selector
            .match_labels
            .iter()
            .flatten()
            .map(|(key, _)| key.as_str())
            .collect();
        for expression in selector.match_expressions.iter().flatten() {
            let index = matching.iter().rposition(|key| *key == expression.key);
            if let Some(index) = index
                && selected.contains(expression.key.as_str())
            {
                let why = "exists in both matchLabelKeys and labelSelector";
                problems.invalid(&field.index(index), &expression.key, why);
            }
            selected.insert(&expression.key);
        }
    }
    for (index, key) in matching.iter().enumerate() {
        if mismatching.contains(key) {
            let why = "exists in both matchLabelKeys and mismatchLabelKeys";
            problems.invalid(&field.child("matchLabelKeys").index(index), key, why);
        }
    }
}

/// A selector of labels (`ValidateLabelSelector`).
fn validate_selector(selector: &LabelSelector, field: &Field, problems: &mut Problems) {
    let labels = field.child("matchLabels");
    for (key, value) in selector.match_labels.iter().flatten() {
        problems.unless_formed(&labels, key, names::qualified_name);
        problems.unless_formed(&labels, value, names::label_value);
    }
    for (index, expression) in selector.match_expressions.iter().flatten().enumerate() {
        let field = field.child("matchExpressions").index(index);
        let values = expression.values.as_deref().unwrap_or_default();
        let at = field.child("values");
        match expression.operator.as_str() {
            "In" | "NotIn" if values.is_empty() => {
                problems.required(&at, "must be specified when `operator` is 'In' or 'NotIn'");
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                let why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                problems.forbidden(&at, why);
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => problems.invalid(&field.child("operator"), other, NOT_AN_OPERATOR),
        }
        problems.unless_formed(&field.child("key"), &expression.key, names::qualified_name);
        for (index, value) in values.iter().enumerate() {
            problems.unless_formed(&at.index(index), value, names::label_value);
        }
    }
}
