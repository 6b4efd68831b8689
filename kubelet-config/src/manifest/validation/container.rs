//! Containers: what they have in common, and what only one kind may have.

use std::collections::HashSet;

use k8s_openapi::api::core::v1::{Container, PodSpec, VolumeMount};

use super::volume::Volumes;
use super::{Field, Problems, env, handler, names, resources, security};

pub(super) fn validate_all(spec: &PodSpec, volumes: &Volumes<'_>, field: &Field, problems: &mut Problems) {
    let containers = field.child("containers");
    if spec.containers.is_empty() {
        problems.required(&containers, "");
    }
    let mut taken = HashSet::new();
    let mut host_ports = HashSet::new();
    for (index, container) in spec.containers.iter().enumerate() {
        let field = containers.index(index);
        validate(container, spec, volumes, &field, problems);
        if !taken.insert(container.name.as_str()) {
            problems.duplicate(&field.child("name"), &container.name);
        }
        handler::validate(container, spec, &field, problems);
        validate_restart_rules(container, &field, problems);
        validate_host_ports(container, &mut host_ports, &field, problems);
        if spec.host_network == Some(true) {
            validate_ports_on_host(container, &field, problems);
        }
    }
    for (index, container) in spec.init_containers.iter().flatten().enumerate() {
        let field = field.child("initContainers").index(index);
        validate(container, spec, volumes, &field, problems);
        if !taken.insert(container.name.as_str()) {
            problems.duplicate(&field.child("name"), &container.name);
        }
        validate_restart_rules(container, &field, problems);
        // They run one after the other: ports clash only within one.
        validate_host_ports(container, &mut HashSet::new(), &field, problems);
        if container.restart_policy.as_deref() == Some("Always") {
            handler::validate(container, spec, &field, problems);
        } else {
            refuse_handlers(container, &field, problems);
            refuse_restarting_resize(container, &field, problems);
        }
    }
}

fn validate(
    container: &Container,
    spec: &PodSpec,
    volumes: &Volumes<'_>,
    field: &Field,
    problems: &mut Problems,
) {
    if container.name.is_empty() {
        problems.required(&field.child("name"), "");
    } else {
        problems.unless_formed(&field.child("name"), &container.name, names::dns_label);
    }
    let image = container.image.as_deref().unwrap_or_default();
    if image.is_empty() {
        problems.required(&field.child("image"), "");
    } else if image.trim() != image {
        problems.invalid(
            &field.child("image"),
            image,
            "must not have leading or trailing whitespace",
        );
    }
    let policy = container
        .termination_message_policy
        .as_deref()
        .unwrap_or_default();
    let supported = ["File", "FallbackToLogsOnError"];
    problems.unless_one_of(&field.child("terminationMessagePolicy"), policy, &supported);
    let policy = container.image_pull_policy.as_deref().unwrap_or_default();
    problems.unless_one_of(
        &field.child("imagePullPolicy"),
        policy,
        &["Always", "IfNotPresent", "Never"],
    );
    validate_ports(container, field, problems);
    env::validate(container, volumes, field, problems);
    validate_mounts(container, volumes, &field.child("volumeMounts"), problems);
    validate_devices(container, volumes, &field.child("volumeDevices"), problems);
    if let Some(resources) = &container.resources {
        resources::validate(resources, &field.child("resources"), problems);
    }
    resources::validate_resize_policy(container, spec, &field.child("resizePolicy"), problems);
    security::validate_container(container, spec, &field.child("securityContext"), problems);
}

fn validate_ports(container: &Container, field: &Field, problems: &mut Problems) {
    let mut taken = HashSet::new();
    for (index, port) in container.ports.iter().flatten().enumerate() {
        let field = field.child("ports").index(index);
        if let Some(name) = &port.name {
            problems.unless_formed(&field.child("name"), name, names::port_name);
            if !taken.insert(name) {
                problems.duplicate(&field.child("name"), name);
            }
        }
        match port.container_port {
            0 => problems.required(&field.child("containerPort"), ""),
            number => problems.unless_within(&field.child("containerPort"), number.into(), 1, 65535),
        }
        if let Some(number) = port.host_port {
            problems.unless_within(&field.child("hostPort"), number.into(), 1, 65535);
        }
        let protocol = port.protocol.as_deref().unwrap_or_default();
        problems.unless_one_of(&field.child("protocol"), protocol, &["SCTP", "TCP", "UDP"]);
    }
}

fn validate_host_ports(
    container: &Container,
    taken: &mut HashSet<String>,
    field: &Field,
    problems: &mut Problems,
) {
    for (index, port) in container.ports.iter().flatten().enumerate() {
        let Some(number) = port.host_port else { continue };
        let protocol = port.protocol.as_deref().unwrap_or_default();
        let claim = format!(
            "{protocol}/{}/{number}",
            port.host_ip.as_deref().unwrap_or_default()
        );
        if taken.contains(&claim) {
            problems.duplicate(&field.child("ports").index(index).child("hostPort"), &claim);
        }
        taken.insert(claim);
    }
}

fn validate_ports_on_host(container: &Container, field: &Field, problems: &mut Problems) {
    for (index, port) in container.ports.iter().flatten().enumerate() {
        if port.host_port.is_some_and(|number| number != port.container_port) {
            let field = field.child("ports").index(index).child("hostPort");
            problems.invalid(
                &field,
                port.host_port,
                "must match `containerPort` when `hostNetwork` is true",
            );
        }
    }
}

fn validate_mounts(container: &Container, volumes: &Volumes<'_>, field: &Field, problems: &mut Problems) {
    let mut taken = HashSet::new();
    for (index, mount) in container.volume_mounts.iter().flatten().enumerate() {
        let at = field.index(index);
        if mount.name.is_empty() {
            problems.required(&at.child("name"), "");
        }
        if !volumes.contains_key(mount.name.as_str()) {
            problems.not_found(&at.child("name"), &mount.name);
        }
        if mount.mount_path.is_empty() {
            problems.required(&at.child("mountPath"), "");
        }
        if !taken.insert(&mount.mount_path) {
            problems.invalid(&at.child("mountPath"), &mount.mount_path, "must be unique");
        }
        for device in container.volume_devices.iter().flatten() {
            if device.name == mount.name {
                problems.invalid(
                    &at.child("name"),
                    &mount.name,
                    "must not already exist in volumeDevices",
                );
            }
            if device.device_path == mount.mount_path {
                let why = "must not already exist as a path in volumeDevices";
                problems.invalid(&at.child("mountPath"), &mount.mount_path, why);
            }
        }
        // These two have no index in the reference either.
        for (name, path) in [
            ("subPath", &mount.sub_path),
            ("subPathExpr", &mount.sub_path_expr),
        ] {
            if let Some(path) = path {
                problems.unless_formed(&field.child(name), path, names::local_path);
            }
        }
        if let (Some(_), Some(expression)) = (&mount.sub_path, &mount.sub_path_expr) {
            let why = "subPathExpr and subPath are mutually exclusive";
            problems.invalid(&at.child("subPathExpr"), expression, why);
        }
        validate_propagation(mount, container, field, problems);
    }
}

fn validate_propagation(mount: &VolumeMount, container: &Container, field: &Field, problems: &mut Problems) {
    if let Some(propagation) = &mount.mount_propagation {
        let field = field.child("mountPropagation");
        problems.unless_one_of(&field, propagation, &["Bidirectional", "HostToContainer", "None"]);
        let context = container.security_context.as_ref();
        let privileged = context.and_then(|context| context.privileged) == Some(true);
        if propagation == "Bidirectional" && !privileged {
            let why = "Bidirectional mount propagation is available only to privileged containers";
            problems.forbidden(&field, why);
        }
    }
    if let Some(recursive) = &mount.recursive_read_only {
        let field = field.child("recursiveReadOnly");
        problems.unless_one_of(&field, recursive, &["Disabled", "Enabled", "IfPossible"]);
        if matches!(recursive.as_str(), "Enabled" | "IfPossible") {
            if mount.read_only != Some(true) {
                problems.forbidden(&field, "may only be specified when readOnly is true");
            }
            if mount
                .mount_propagation
                .as_deref()
                .is_some_and(|propagation| propagation != "None")
            {
                problems.forbidden(
                    &field,
                    "may only be specified when mountPropagation is None or not specified",
                );
            }
        }
    }
}

/// A device is a claim's, and a static pod has no claims: whatever it names is wrong.
fn validate_devices(container: &Container, volumes: &Volumes<'_>, field: &Field, problems: &mut Problems) {
    for (index, device) in container.volume_devices.iter().flatten().enumerate() {
        let field = field.index(index).child("name");
        match volumes.get(device.name.as_str()) {
            None => problems.not_found(&field, &device.name),
            Some(volume) if volume.persistent_volume_claim.is_none() && volume.ephemeral.is_none() => {
                let why =
                    "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
                problems.invalid(&field, &device.name, why);
            }
            Some(_) => {}
        }
    }
}

fn refuse_handlers(container: &Container, field: &Field, problems: &mut Problems) {
    for (name, set) in [
        ("lifecycle", container.lifecycle.is_some()),
        ("livenessProbe", container.liveness_probe.is_some()),
        ("readinessProbe", container.readiness_probe.is_some()),
        ("startupProbe", container.startup_probe.is_some()),
    ] {
        if set {
            let why = "may not be set for init containers without restartPolicy=Always";
            problems.forbidden(&field.child(name), why);
        }
    }
}

fn refuse_restarting_resize(container: &Container, field: &Field, problems: &mut Problems) {
    for (index, policy) in container.resize_policy.iter().flatten().enumerate() {
        if policy.restart_policy == "RestartContainer" {
            let field = field.child("resizePolicy").index(index).child("restartPolicy");
            let why = "must not be set to 'RestartContainer' for non-sidecar initContainers";
            problems.invalid(&field, &policy.restart_policy, why);
        }
    }
}

fn validate_restart_rules(container: &Container, field: &Field, problems: &mut Problems) {
    let rules = container.restart_policy_rules.as_deref().unwrap_or_default();
    match &container.restart_policy {
        Some(policy) => {
            let field = field.child("restartPolicy");
            problems.unless_one_of(&field, policy, &["Always", "Never", "OnFailure"]);
        }
        None if !rules.is_empty() => {
            let why = "must specify restartPolicy when restart rules are used";
            problems.required(&field.child("restartPolicy"), why);
        }
        None => {}
    }
    if rules.len() > 20 {
        problems.invalid(
            &field.child("restartPolicyRules"),
            rules.len(),
            "must have at most 20 items",
        );
    }
    for (index, rule) in rules.iter().enumerate() {
        let field = field.child("restartPolicyRules").index(index);
        problems.unless_one_of(
            &field.child("action"),
            &rule.action,
            &["Restart", "RestartAllContainers"],
        );
        let Some(codes) = &rule.exit_codes else {
            problems.required(&field.child("exitCodes"), "must be specified");
            continue;
        };
        let field = field.child("exitCodes");
        problems.unless_one_of(&field.child("operator"), &codes.operator, &["In", "NotIn"]);
        let count = codes.values.as_ref().map_or(0, Vec::len);
        if count > 255 {
            problems.invalid(&field.child("values"), count, "must have at most 255 items");
        }
    }
}
