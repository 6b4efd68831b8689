//! Security contexts, and what shares what with the host.

use std::collections::HashSet;

use k8s_openapi::api::core::v1::{AppArmorProfile, Container, PodSpec, SeccompProfile};

use super::{Field, Problems, names};

/// The highest user or group ID.
const MAX_ID: i64 = i32::MAX as i64;

/// The security context of the pod.
pub(super) fn validate_pod(spec: &PodSpec, field: &Field, problems: &mut Problems) {
    validate_host_users(spec, field, problems);
    validate_hostname_override(spec, field, problems);
    let Some(context) = &spec.security_context else {
        return;
    };
    let field = field.child("securityContext");
    for (name, id) in [
        ("fsGroup", context.fs_group),
        ("runAsUser", context.run_as_user),
        ("runAsGroup", context.run_as_group),
    ] {
        if let Some(id) = id {
            problems.unless_within(&field.child(name), id, 0, MAX_ID);
        }
    }
    for (index, group) in context.supplemental_groups.iter().flatten().enumerate() {
        problems.unless_within(&field.child("supplementalGroups").index(index), *group, 0, MAX_ID);
    }
    if spec.share_process_namespace == Some(true) && spec.host_pid == Some(true) {
        let why = "ShareProcessNamespace and HostPID cannot both be enabled";
        problems.invalid(&field.child("shareProcessNamespace"), true, why);
    }
    validate_sysctls(spec, &field.child("sysctls"), problems);
    for (name, value, supported) in [
        (
            "fsGroupChangePolicy",
            &context.fs_group_change_policy,
            ["Always", "OnRootMismatch"],
        ),
        (
            "supplementalGroupsPolicy",
            &context.supplemental_groups_policy,
            ["Merge", "Strict"],
        ),
        (
            "seLinuxChangePolicy",
            &context.se_linux_change_policy,
            ["MountOption", "Recursive"],
        ),
    ] {
        if let Some(value) = value {
            problems.unless_one_of(&field.child(name), value, &supported);
        }
    }
    validate_seccomp(
        context.seccomp_profile.as_ref(),
        &field.child("seccompProfile"),
        problems,
    );
    validate_app_armor(
        context.app_armor_profile.as_ref(),
        &field.child("appArmorProfile"),
        problems,
    );
}

/// The security context of a container.
pub(super) fn validate_container(
    container: &Container,
    spec: &PodSpec,
    field: &Field,
    problems: &mut Problems,
) {
    let Some(context) = &container.security_context else {
        return;
    };
    for (name, id) in [
        ("runAsUser", context.run_as_user),
        ("runAsGroup", context.run_as_group),
    ] {
        if let Some(id) = id {
            problems.unless_within(&field.child(name), id, 0, MAX_ID);
        }
    }
    if let Some(mount) = &context.proc_mount {
        let field = field.child("procMount");
        problems.unless_one_of(&field, mount, &["Default", "Unmasked"]);
        if mount == "Unmasked" && spec.host_users != Some(false) {
            problems.invalid(&field, mount, "`hostUsers` must be false to use `Unmasked`");
        }
    }
    if context.allow_privilege_escalation == Some(false) {
        if context.privileged == Some(true) {
            let why = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true";
            problems.invalid(field, true, why);
        }
        let capabilities = context
            .capabilities
            .as_ref()
            .and_then(|capabilities| capabilities.add.as_ref());
        if capabilities.is_some_and(|add| add.iter().any(|capability| capability == "CAP_SYS_ADMIN")) {
            let why = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN";
            problems.invalid(field, "CAP_SYS_ADMIN", why);
        }
    }
    validate_seccomp(
        context.seccomp_profile.as_ref(),
        &field.child("seccompProfile"),
        problems,
    );
    validate_app_armor(
        context.app_armor_profile.as_ref(),
        &field.child("appArmorProfile"),
        problems,
    );
}

/// Users of its own go with no other namespace of the host.
fn validate_host_users(spec: &PodSpec, field: &Field, problems: &mut Problems) {
    if spec.host_users != Some(false) {
        return;
    }
    for (name, set) in [
        ("hostNetwork", spec.host_network),
        ("HostPID", spec.host_pid),
        ("HostIPC", spec.host_ipc),
    ] {
        if set == Some(true) {
            problems.forbidden(&field.child(name), "when `hostUsers` is false");
        }
    }
}

fn validate_hostname_override(spec: &PodSpec, field: &Field, problems: &mut Problems) {
    let Some(name) = &spec.hostname_override else {
        return;
    };
    let field = field.child("hostnameOverride");
    if spec.set_hostname_as_fqdn == Some(true) {
        problems.forbidden(&field, "may not be specified when setHostnameAsFQDN is true");
    }
    if spec.host_network == Some(true) {
        problems.forbidden(&field, "may not be specified when hostNetwork is true");
    }
    if name.len() > 64 {
        problems.invalid(&field, name, "may not be more than 64 bytes");
    }
    problems.unless_formed(&field, name, names::dns_subdomain);
}

fn validate_sysctls(spec: &PodSpec, field: &Field, problems: &mut Problems) {
    let sysctls = spec
        .security_context
        .as_ref()
        .and_then(|context| context.sysctls.as_ref());
    let mut seen = HashSet::new();
    for (index, sysctl) in sysctls.into_iter().flatten().enumerate() {
        let field = field.index(index).child("name");
        let name = sysctl.name.replace('/', ".");
        if sysctl.name.is_empty() {
            problems.required(&field, "");
        } else {
            problems.unless_formed(&field, &sysctl.name, names::sysctl);
        }
        if !seen.insert(&sysctl.name) {
            problems.duplicate(&field, &sysctl.name);
        }
        if spec.host_network == Some(true) && name.starts_with("net.") {
            problems.invalid(
                &field,
                &sysctl.name,
                "may not be specified when 'hostNetwork' is true",
            );
        }
        if spec.host_ipc == Some(true) && is_ipc(&name) {
            problems.invalid(
                &field,
                &sysctl.name,
                "may not be specified when 'hostIPC' is true",
            );
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

fn validate_seccomp(profile: Option<&SeccompProfile>, field: &Field, problems: &mut Problems) {
    let Some(profile) = profile else { return };
    problems.unless_one_of(&field.child("type"), &profile.type_, &PROFILE_TYPES);
    let field = field.child("localhostProfile");
    match &profile.localhost_profile {
        None if profile.type_ == "Localhost" => {
            problems.required(&field, "must be set when seccomp type is Localhost");
        }
        Some(path) if profile.type_ == "Localhost" => problems.unless_formed(&field, path, names::local_path),
        Some(path) => problems.invalid(&field, path, "can only be set when seccomp type is Localhost"),
        None => {}
    }
}

fn validate_app_armor(profile: Option<&AppArmorProfile>, field: &Field, problems: &mut Problems) {
    let Some(profile) = profile else { return };
    problems.unless_one_of(&field.child("type"), &profile.type_, &PROFILE_TYPES);
    let field = field.child("localhostProfile");
    match profile.localhost_profile.as_deref() {
        None | Some("") if profile.type_ == "Localhost" => {
            problems.required(&field, "must be set when AppArmor type is Localhost");
        }
        Some(name) if profile.type_ != "Localhost" => {
            problems.invalid(&field, name, "can only be set when AppArmor type is Localhost");
        }
        Some(name) if name.trim() != name => {
            problems.invalid(&field, name, "must not be padded with whitespace")
        }
        Some(name) if name.len() > 4095 => problems.invalid(&field, name, "may not be more than 4095 bytes"),
        _ => {}
    }
}
