//! Security contexts, and namespaces shared with the host.

use std::collections::HashSet;

use serde_json::Value;

use super::super::super::names;
use super::super::super::problems::{Field, Problems};
use super::super::super::value::Fields;

/// The highest user or group ID.
const MAX_ID: i64 = i32::MAX as i64;

/// `validatePodSpecSecurityContext`.
pub(super) fn validate_pod(spec: &Value, field: &Field, problems: &mut Problems) {
    let Some(context) = spec.field("securityContext") else {
        return;
    };
    let field = field.child("securityContext");
    validate_ids(context, &["fsGroup", "runAsUser", "runAsGroup"], &field, problems);
    for (index, group) in context.list("supplementalGroups").iter().enumerate() {
        let field = field.child("supplementalGroups").index(index);
        problems.unless_within(&field, group.as_i64().unwrap_or(0), 0, MAX_ID);
    }
    if spec.flag("shareProcessNamespace") && spec.flag("hostPID") {
        let why = "ShareProcessNamespace and HostPID cannot both be enabled";
        problems.invalid(&field.child("shareProcessNamespace"), true, why);
    }
    validate_sysctls(spec, &field.child("sysctls"), problems);
    let policies = [("fsGroupChangePolicy", ["Always", "OnRootMismatch"])];
    unless_supported(context, &policies, &field, problems);
    validate_seccomp(
        &context["seccompProfile"],
        &field.child("seccompProfile"),
        problems,
    );
    validate_app_armor(
        &context["appArmorProfile"],
        &field.child("appArmorProfile"),
        problems,
    );
    let policies = [
        ("supplementalGroupsPolicy", ["Merge", "Strict"]),
        ("seLinuxChangePolicy", ["MountOption", "Recursive"]),
    ];
    unless_supported(context, &policies, &field, problems);
}

/// `ValidateSecurityContext`.
pub(super) fn validate_container(container: &Value, spec: &Value, field: &Field, problems: &mut Problems) {
    let Some(context) = container.field("securityContext") else {
        return;
    };
    validate_ids(context, &["runAsUser", "runAsGroup"], field, problems);
    if context.has("procMount") {
        let (field, mount) = (field.child("procMount"), context.text("procMount"));
        problems.unless_one_of(&field, mount, &["Default", "Unmasked"]);
        if mount == "Unmasked" && spec["hostUsers"] != false {
            problems.invalid(&field, mount, "`hostUsers` must be false to use `Unmasked`");
        }
    }
    validate_seccomp(
        &context["seccompProfile"],
        &field.child("seccompProfile"),
        problems,
    );
    if context["allowPrivilegeEscalation"] == false {
        if context.flag("privileged") {
            let why = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true";
            problems.invalid(field, context.clone(), why);
        }
        let capabilities = context["capabilities"].list("add");
        if capabilities
            .iter()
            .any(|capability| capability == "CAP_SYS_ADMIN")
        {
            let why = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN";
            problems.invalid(field, context.clone(), why);
        }
    }
    validate_app_armor(
        &context["appArmorProfile"],
        &field.child("appArmorProfile"),
        problems,
    );
}

/// A user namespace excludes the other namespaces of the host.
pub(super) fn validate_host_users(spec: &Value, field: &Field, problems: &mut Problems) {
    if spec["hostUsers"] != false {
        return;
    }
    for (key, name) in [
        ("hostNetwork", "hostNetwork"),
        ("hostPID", "HostPID"),
        ("hostIPC", "HostIPC"),
    ] {
        if spec.flag(key) {
            problems.forbidden(&field.child(name), "when `hostUsers` is false");
        }
    }
}

/// `validatePodHostName`.
pub(super) fn validate_hostname_override(spec: &Value, field: &Field, problems: &mut Problems) {
    if !spec.has("hostnameOverride") {
        return;
    }
    let (field, name) = (field.child("hostnameOverride"), spec.text("hostnameOverride"));
    if spec.flag("setHostnameAsFQDN") {
        problems.forbidden(&field, "may not be specified when setHostnameAsFQDN is true");
    }
    if spec.flag("hostNetwork") {
        problems.forbidden(&field, "may not be specified when hostNetwork is true");
    }
    if name.len() > 64 {
        problems.too_long(&field, 64);
    }
    problems.unless_formed(&field, name, names::dns_subdomain);
}

fn validate_ids(context: &Value, keys: &[&str], field: &Field, problems: &mut Problems) {
    for key in keys {
        if let Some(id) = context.number(key) {
            problems.unless_within(&field.child(key), id, 0, MAX_ID);
        }
    }
}

fn unless_supported(context: &Value, policies: &[(&str, [&str; 2])], field: &Field, problems: &mut Problems) {
    for (key, supported) in policies {
        if context.has(key) {
            problems.unless_one_of(&field.child(key), context.text(key), supported);
        }
    }
}

fn validate_sysctls(spec: &Value, field: &Field, problems: &mut Problems) {
    let mut seen = HashSet::new();
    for (index, sysctl) in spec["securityContext"].list("sysctls").iter().enumerate() {
        let (field, name) = (field.index(index).child("name"), sysctl.text("name"));
        if name.is_empty() {
            problems.required(&field, "");
        } else if !names::sysctl(name).is_empty() {
            problems.unless_formed(&field, name, names::sysctl);
        } else if seen.contains(name) {
            problems.duplicate(&field, name);
        }
        seen.insert(name);
        let dotted = name.replace('/', ".");
        if spec.flag("hostNetwork") && dotted.starts_with("net.") {
            problems.invalid(&field, name, "may not be specified when 'hostNetwork' is true");
        }
        if spec.flag("hostIPC") && is_ipc(&dotted) {
            problems.invalid(&field, name, "may not be specified when 'hostIPC' is true");
        }
    }
}

fn is_ipc(sysctl: &str) -> bool {
    sysctl == "kernel.sem"
        || ["kernel.shm", "kernel.msg", "fs.mqueue."]
            .iter()
            .any(|prefix| sysctl.starts_with(prefix))
}

const PROFILE_TYPES: [&str; 3] = ["Localhost", "RuntimeDefault", "Unconfined"];

fn validate_seccomp(profile: &Value, field: &Field, problems: &mut Problems) {
    if profile.is_null() {
        return;
    }
    match profile.text("type") {
        "" => {
            let why = "type is required when seccompProfile is set";
            problems.required(&field.child("type"), why);
        }
        kind => problems.unless_one_of(&field.child("type"), kind, &PROFILE_TYPES),
    }
    let (field, path) = (
        field.child("localhostProfile"),
        profile["localhostProfile"].as_str(),
    );
    match path {
        None if profile.text("type") == "Localhost" => {
            problems.required(&field, "must be set when seccomp type is Localhost");
        }
        Some(path) if profile.text("type") == "Localhost" => {
            problems.unless_formed(&field, path, names::local_path)
        }
        Some(_) => problems.invalid(
            &field,
            profile.clone(),
            "can only be set when seccomp type is Localhost",
        ),
        None => {}
    }
}

fn validate_app_armor(profile: &Value, field: &Field, problems: &mut Problems) {
    if profile.is_null() {
        return;
    }
    let at = field.child("localhostProfile");
    match (profile.text("type"), profile["localhostProfile"].as_str()) {
        ("", _) => {
            let why = "type is required when appArmorProfile is set";
            problems.required(&field.child("type"), why);
        }
        ("Localhost", None | Some("")) => {
            problems.required(&at, "must be set when AppArmor type is Localhost");
        }
        ("Localhost", Some(name)) => {
            if name.trim() != name {
                problems.invalid(&at, name, "must not be padded with whitespace");
            }
            if name.len() > 4095 {
                problems.too_long(&at, 4095);
            }
        }
        ("RuntimeDefault" | "Unconfined", Some(name)) => {
            problems.invalid(&at, name, "can only be set when AppArmor type is Localhost");
        }
        ("RuntimeDefault" | "Unconfined", None) => {}
        (kind, _) => problems.not_supported(&field.child("type"), kind, &PROFILE_TYPES),
    }
}
