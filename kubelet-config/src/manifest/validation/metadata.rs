//! A pod's metadata.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{Field, Problems, names};

/// The most that keys and values of annotations have together, in bytes (`TotalAnnotationSizeLimitB`).
const TOTAL_ANNOTATION_SIZE_LIMIT: usize = 256 << 10;
const STANDARD_FINALIZERS: [&str; 3] = ["kubernetes", "orphan", "foregroundDeletion"];

pub(super) fn validate(metadata: &ObjectMeta, field: &Field, problems: &mut Problems) {
    let name = metadata.name.as_deref().unwrap_or_default();
    problems.unless_formed(&field.child("name"), name, names::dns_subdomain);
    let namespace = metadata.namespace.as_deref().unwrap_or_default();
    problems.unless_formed(&field.child("namespace"), namespace, names::dns_label);
    if let Some(prefix) = &metadata.generate_name {
        // Something follows it, so it may end with a dash.
        let stem = prefix.strip_suffix('-').unwrap_or(prefix);
        problems.unless_formed(&field.child("generateName"), stem, names::dns_subdomain);
    }
    if metadata.generation.is_some_and(|generation| generation < 0) {
        problems.invalid(
            &field.child("generation"),
            metadata.generation,
            "must be greater than or equal to 0",
        );
    }
    let labels = field.child("labels");
    for (key, value) in metadata.labels.iter().flatten() {
        problems.unless_formed(&labels, key, names::qualified_name);
        problems.unless_formed(&labels, value, names::label_value);
    }
    validate_annotations(metadata, &field.child("annotations"), problems);
    for (index, finalizer) in metadata.finalizers.iter().flatten().enumerate() {
        let field = field.child("finalizers").index(index);
        problems.unless_formed(&field, finalizer, names::qualified_name);
        if !finalizer.contains('/') && !STANDARD_FINALIZERS.contains(&finalizer.as_str()) {
            problems.invalid(
                &field,
                finalizer,
                "name is neither a standard finalizer name nor is it fully qualified",
            );
        }
    }
    validate_owners(metadata, &field.child("ownerReferences"), problems);
}

fn validate_annotations(metadata: &ObjectMeta, field: &Field, problems: &mut Problems) {
    let mut size = 0;
    for (key, value) in metadata.annotations.iter().flatten() {
        if let Err(why) = names::qualified_name(&key.to_lowercase()) {
            problems.invalid(field, key, why);
        }
        size += key.len() + value.len();
    }
    if size > TOTAL_ANNOTATION_SIZE_LIMIT {
        problems.invalid(
            field,
            size,
            &format!("may not be more than {TOTAL_ANNOTATION_SIZE_LIMIT} bytes"),
        );
    }
    for (key, value) in metadata.annotations.iter().flatten() {
        let field = field.key(key);
        if key == "controller.kubernetes.io/pod-deletion-cost" && !is_deletion_cost(value) {
            problems.invalid(&field, value, "must be a 32bit integer");
        }
    }
}

fn is_deletion_cost(text: &str) -> bool {
    let canonical = text == "0" || !text.trim_start_matches('-').starts_with('0') && !text.starts_with('+');
    text.parse::<i32>().is_ok() && canonical
}

fn validate_owners(metadata: &ObjectMeta, field: &Field, problems: &mut Problems) {
    let mut controllers = 0;
    for (index, owner) in metadata.owner_references.iter().flatten().enumerate() {
        let field = field.index(index);
        for (name, value) in [
            ("apiVersion", &owner.api_version),
            ("kind", &owner.kind),
            ("name", &owner.name),
            ("uid", &owner.uid),
        ] {
            if value.is_empty() {
                problems.invalid(&field.child(name), value, "must not be empty");
            }
        }
        controllers += usize::from(owner.controller == Some(true));
    }
    if controllers > 1 {
        problems.invalid(
            field,
            controllers,
            "only one reference can have controller set to true",
        );
    }
}
