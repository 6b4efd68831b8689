//! Annotations that the API gives a meaning.

use k8s_openapi::api::core::v1::{AppArmorProfile, Pod, PodSpec, SeccompProfile, Toleration};
use kubelet_core::PodExt;

use super::visit::visit_containers;
use super::{Field, Problems, names, toleration};

const TOLERATIONS: &str = "scheduler.alpha.kubernetes.io/tolerations";
const SECCOMP_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
const SECCOMP_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";
const LOCALHOST: &str = "localhost/";
const RUNTIME_DEFAULT: &str = "runtime/default";
const DOCKER_DEFAULT: &str = "docker/default";
const UNCONFINED: &str = "unconfined";

/// What annotations say must be well-formed.
pub(super) fn validate(pod: &Pod, field: &Field, problems: &mut Problems) {
    let containers: Vec<_> = pod.all_containers().collect();
    for (key, value) in pod.metadata.annotations.iter().flatten() {
        if key == TOLERATIONS && !value.is_empty() {
            match serde_json::from_str::<Vec<Toleration>>(value) {
                Ok(tolerations) => {
                    for (index, tolerated) in tolerations.iter().enumerate() {
                        toleration::validate(tolerated, &field.child(key).index(index), problems);
                    }
                }
                Err(error) => problems.invalid(field, TOLERATIONS, &error.to_string()),
            }
        }
        if key == SECCOMP_POD || key.starts_with(SECCOMP_CONTAINER) {
            validate_seccomp(value, &field.child(key), problems);
        }
        if let Some(name) = key.strip_prefix(APP_ARMOR) {
            let field = field.key(key);
            if !containers.iter().any(|container| container.name == name) {
                problems.invalid(&field, name, "container not found");
            }
            let known = matches!(value.as_str(), "" | RUNTIME_DEFAULT | UNCONFINED);
            if !known && !value.starts_with(LOCALHOST) {
                problems.invalid(
                    &field,
                    value,
                    &format!("invalid AppArmor profile name: {value:?}"),
                );
            }
        }
    }
}

fn validate_seccomp(profile: &str, field: &Field, problems: &mut Problems) {
    match profile.strip_prefix(LOCALHOST) {
        Some(path) => problems.unless_formed(field, path, names::local_path),
        None if matches!(profile, RUNTIME_DEFAULT | DOCKER_DEFAULT | UNCONFINED) => {}
        None => problems.invalid(field, profile, "must be a valid seccomp profile"),
    }
}

/// Where an annotation and a field say one thing, they must say the same.
pub(super) fn validate_agreement(pod: &Pod, spec: &PodSpec, field: &Field, problems: &mut Problems) {
    let windows = spec.os.as_ref().is_some_and(|os| os.name == "windows");
    let context = spec.security_context.as_ref();
    if let Some(profile) = context.and_then(|context| context.seccomp_profile.as_ref())
        && let Some(annotation) = pod.annotation(SECCOMP_POD)
    {
        let field = field.child("securityContext").child("seccompProfile");
        agree_on_seccomp(profile, annotation, &field, problems);
    }
    let of_pod = context.and_then(|context| context.app_armor_profile.as_ref());
    visit_containers(spec, field, |container, field| {
        let context = container.security_context.as_ref();
        let field = field.child("securityContext");
        if let Some(profile) = context.and_then(|context| context.seccomp_profile.as_ref())
            && let Some(annotation) = pod.annotation(&format!("{SECCOMP_CONTAINER}{}", container.name))
        {
            agree_on_seccomp(profile, annotation, &field.child("seccompProfile"), problems);
        }
        let profile = context
            .and_then(|context| context.app_armor_profile.as_ref())
            .or(of_pod);
        if let Some(profile) = profile
            && !windows
            && let Some(annotation) = pod.annotation(&format!("{APP_ARMOR}{}", container.name))
        {
            agree_on_app_armor(profile, annotation, &field.child("appArmorProfile"), problems);
        }
    });
}

fn agree_on_seccomp(profile: &SeccompProfile, annotation: &str, field: &Field, problems: &mut Problems) {
    let same_type = match profile.type_.as_str() {
        "Unconfined" => annotation == UNCONFINED,
        "RuntimeDefault" => matches!(annotation, RUNTIME_DEFAULT | DOCKER_DEFAULT),
        "Localhost" => annotation.starts_with(LOCALHOST),
        _ => true,
    };
    if !same_type {
        let why = "seccomp type in annotation and field must match";
        problems.forbidden(&field.child("type"), why);
    } else if profile.type_ == "Localhost"
        && profile.localhost_profile.as_deref() != annotation.strip_prefix(LOCALHOST)
    {
        let why = "seccomp profile in annotation and field must match";
        problems.forbidden(&field.child("localhostProfile"), why);
    }
}

fn agree_on_app_armor(profile: &AppArmorProfile, annotation: &str, field: &Field, problems: &mut Problems) {
    let same_type = match profile.type_.as_str() {
        "Unconfined" => annotation == UNCONFINED,
        "RuntimeDefault" => annotation == RUNTIME_DEFAULT,
        "Localhost" => annotation.starts_with(LOCALHOST),
        _ => true,
    };
    if !same_type {
        let why = "apparmor type in annotation and field must match";
        problems.forbidden(&field.child("type"), why);
    } else if profile.type_ == "Localhost"
        && profile.localhost_profile.as_deref() != annotation.strip_prefix(LOCALHOST)
    {
        let why = "apparmor profile in annotation and field must match";
        problems.forbidden(&field.child("localhostProfile"), why);
    }
}
