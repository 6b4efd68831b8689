//! Containers: the rules for all of them, and those for each kind.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::super::super::names;
use super::super::super::problems::{Field, Problems};
use super::super::super::value::Fields;
use super::{env, handler, resources, security};

/// The volumes that containers may mount, by name.
pub(super) type Volumes<'a> = HashMap<&'a str, &'a Value>;

/// The fields that an ephemeral container may not have.
const NOT_EPHEMERAL: [(&str, &str); 8] = [
    ("ports", "ports"),
    ("resources", "resources"),
    ("livenessProbe", "livenessProbe"),
    ("readinessProbe", "readinessProbe"),
    ("startupProbe", "startupProbe"),
    ("lifecycle", "lifecycle"),
    ("restartPolicy", "restartPolicy"),
    ("resizePolicy", "resizePolicy"),
];

pub(super) fn validate_all(spec: &Value, volumes: &Volumes<'_>, field: &Field, problems: &mut Problems) {
    let mut taken = HashSet::new();
    validate_regular(spec, volumes, &field.child("containers"), &mut taken, problems);
    validate_init(
        spec,
        volumes,
        &field.child("initContainers"),
        &mut taken,
        problems,
    );
    validate_ephemeral(
        spec,
        volumes,
        &field.child("ephemeralContainers"),
        &mut taken,
        problems,
    );
}

/// `validateContainerOnlyForPod`.
pub(super) fn validate_image_of_pod(container: &Value, field: &Field, problems: &mut Problems) {
    let image = container.text("image");
    if image.trim() != image {
        let why = "must not have leading or trailing whitespace";
        problems.invalid(&field.child("image"), image, why);
    }
}

fn validate_regular<'a>(
    spec: &'a Value,
    volumes: &Volumes<'_>,
    field: &Field,
    taken: &mut HashSet<&'a str>,
    problems: &mut Problems,
) {
    let containers = spec.list("containers");
    if containers.is_empty() {
        problems.required(field, "");
    }
    for (index, container) in containers.iter().enumerate() {
        let field = field.index(index);
        validate(container, spec, volumes, &field, problems);
        if !taken.insert(container.text("name")) {
            problems.duplicate(&field.child("name"), container.text("name"));
        }
        handler::validate(container, spec, &field, problems);
        validate_restart_policy(container, &["Always", "Never", "OnFailure"], &field, problems);
    }
    validate_host_ports(containers, field, problems);
}

fn validate_init<'a>(
    spec: &'a Value,
    volumes: &Volumes<'_>,
    field: &Field,
    taken: &mut HashSet<&'a str>,
    problems: &mut Problems,
) {
    for (index, container) in spec.list("initContainers").iter().enumerate() {
        let at = field.index(index);
        validate(container, spec, volumes, &at, problems);
        validate_restart_policy(container, &["Always", "Never", "OnFailure"], &at, problems);
        let name = container.text("name");
        if taken.contains(name) {
            problems.duplicate(&at.child("name"), name);
        } else if !name.is_empty() {
            taken.insert(name);
        }
        // They run one after the other, so ports clash only within one container. The reference reports it with the
        // index 0.
        validate_host_ports(std::slice::from_ref(container), field, problems);
        if container.text("restartPolicy") == "Always" {
            handler::validate(container, spec, &at, problems);
            continue;
        }
        for key in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
            if container.has(key) {
                let why = "may not be set for init containers without restartPolicy=Always";
                problems.forbidden(&at.child(key), why);
            }
        }
        for (index, policy) in container.list("resizePolicy").iter().enumerate() {
            if policy.text("restartPolicy") == "RestartContainer" {
                let at = at.child("resizePolicy").index(index).child("restartPolicy");
                let why = "must not be set to 'RestartContainer' for non-sidecar initContainers";
                problems.invalid(&at, "RestartContainer", why);
            }
        }
    }
}

fn validate_ephemeral<'a>(
    spec: &'a Value,
    volumes: &Volumes<'_>,
    field: &Field,
    taken: &mut HashSet<&'a str>,
    problems: &mut Problems,
) {
    let others = taken.clone();
    for (index, container) in spec.list("ephemeralContainers").iter().enumerate() {
        let field = field.index(index);
        validate(container, spec, volumes, &field, problems);
        validate_image_of_pod(container, &field, problems);
        if !taken.insert(container.text("name")) {
            problems.duplicate(&field.child("name"), container.text("name"));
        }
        let target = container.text("targetContainerName");
        if !target.is_empty() && !others.contains(target) {
            problems.not_found(&field.child("targetContainerName"), target);
        }
        let why = "cannot be set for an Ephemeral Container";
        for (key, name) in NOT_EPHEMERAL {
            let set = match &container[key] {
                Value::Null => false,
                Value::Array(list) => !list.is_empty(),
                Value::Object(fields) => !fields.is_empty(),
                _ => true,
            };
            if set {
                problems.forbidden(&field.child(name), why);
            }
        }
        for (index, mount) in container.list("volumeMounts").iter().enumerate() {
            let field = field.child("volumeMounts").index(index);
            for key in ["subPath", "subPathExpr"] {
                if !mount.text(key).is_empty() {
                    problems.forbidden(&field.child(key), why);
                }
            }
        }
    }
}

/// `validateContainerCommon`.
fn validate(container: &Value, spec: &Value, volumes: &Volumes<'_>, field: &Field, problems: &mut Problems) {
    match container.text("name") {
        "" => problems.required(&field.child("name"), ""),
        name => problems.unless_formed(&field.child("name"), name, names::dns_label),
    }
    if container.text("image").is_empty() {
        problems.required(&field.child("image"), "");
    }
    problems.unless_one_of(
        &field.child("terminationMessagePolicy"),
        container.text("terminationMessagePolicy"),
        &["File", "FallbackToLogsOnError"],
    );
    validate_ports(container, &field.child("ports"), problems);
    env::validate(container, field, problems);
    validate_mounts(container, volumes, &field.child("volumeMounts"), problems);
    validate_devices(container, volumes, &field.child("volumeDevices"), problems);
    problems.unless_one_of(
        &field.child("imagePullPolicy"),
        container.text("imagePullPolicy"),
        &["Always", "IfNotPresent", "Never"],
    );
    resources::validate(&container["resources"], &field.child("resources"), problems);
    resources::validate_resize_policy(container, spec, &field.child("resizePolicy"), problems);
    security::validate_container(container, spec, &field.child("securityContext"), problems);
}

fn validate_ports(container: &Value, field: &Field, problems: &mut Problems) {
    let mut taken = HashSet::new();
    for (index, port) in container.list("ports").iter().enumerate() {
        let field = field.index(index);
        let name = port.text("name");
        if !name.is_empty() {
            if !names::port_name(name).is_empty() {
                problems.unless_formed(&field.child("name"), name, names::port_name);
            } else if !taken.insert(name) {
                problems.duplicate(&field.child("name"), name);
            }
        }
        match port.number("containerPort").unwrap_or(0) {
            0 => problems.required(&field.child("containerPort"), ""),
            number => problems.unless_within(&field.child("containerPort"), number, 1, 65535),
        }
        if let Some(number) = port.number("hostPort").filter(|number| *number != 0) {
            problems.unless_within(&field.child("hostPort"), number, 1, 65535);
        }
        let protocol = port.text("protocol");
        problems.unless_one_of(&field.child("protocol"), protocol, &["SCTP", "TCP", "UDP"]);
    }
}

/// `checkHostPortConflicts`.
fn validate_host_ports(containers: &[Value], field: &Field, problems: &mut Problems) {
    let mut taken = HashSet::new();
    for (index, container) in containers.iter().enumerate() {
        let field = field.index(index).child("ports");
        for (index, port) in container.list("ports").iter().enumerate() {
            let Some(number) = port.number("hostPort").filter(|number| *number != 0) else {
                continue;
            };
            let claim = format!("{}/{}/{number}", port.text("protocol"), port.text("hostIP"));
            if taken.contains(&claim) {
                problems.duplicate(&field.index(index).child("hostPort"), claim);
            } else {
                taken.insert(claim);
            }
        }
    }
}

fn validate_mounts(container: &Value, volumes: &Volumes<'_>, field: &Field, problems: &mut Problems) {
    let mut taken = HashSet::new();
    for (index, mount) in container.list("volumeMounts").iter().enumerate() {
        let at = field.index(index);
        let (name, path) = (mount.text("name"), mount.text("mountPath"));
        if name.is_empty() {
            problems.required(&at.child("name"), "");
        }
        if !volumes.contains_key(name) {
            problems.not_found(&at.child("name"), name);
        }
        if path.is_empty() {
            problems.required(&at.child("mountPath"), "");
        }
        if !taken.insert(path) {
            problems.invalid(&at.child("mountPath"), path, "must be unique");
        }
        for device in container.list("volumeDevices") {
            if device.text("name") == name {
                problems.invalid(&at.child("name"), name, "must not already exist in volumeDevices");
            }
            if device.text("devicePath") == path {
                let why = "must not already exist as a path in volumeDevices";
                problems.invalid(&at.child("mountPath"), path, why);
            }
        }
        // The reference reports these without an index, too.
        let (sub_path, expression) = (mount.text("subPath"), mount.text("subPathExpr"));
        problems.unless_formed(&field.child("subPath"), sub_path, names::local_path);
        if !expression.is_empty() && !sub_path.is_empty() {
            let why = "subPathExpr and subPath are mutually exclusive";
            problems.invalid(&at.child("subPathExpr"), expression, why);
        }
        problems.unless_formed(&field.child("subPathExpr"), expression, names::local_path);
        validate_propagation(mount, container, field, problems);
    }
}

fn validate_propagation(mount: &Value, container: &Value, field: &Field, problems: &mut Problems) {
    let propagation = mount.text("mountPropagation");
    if mount.has("mountPropagation") {
        let field = field.child("mountPropagation");
        let supported = ["Bidirectional", "HostToContainer", "None"];
        problems.unless_one_of(&field, propagation, &supported);
        if propagation == "Bidirectional" && !container["securityContext"].flag("privileged") {
            let why = "Bidirectional mount propagation is available only to privileged containers";
            problems.forbidden(&field, why);
        }
    }
    if mount.has("recursiveReadOnly") {
        let (field, recursive) = (field.child("recursiveReadOnly"), mount.text("recursiveReadOnly"));
        problems.unless_one_of(&field, recursive, &["Disabled", "Enabled", "IfPossible"]);
        if matches!(recursive, "Enabled" | "IfPossible") {
            if !mount.flag("readOnly") {
                problems.forbidden(&field, "may only be specified when readOnly is true");
            }
            if !matches!(propagation, "" | "None") {
                let why = "may only be specified when mountPropagation is None or not specified";
                problems.forbidden(&field, why);
            }
        }
    }
}

fn validate_devices(container: &Value, volumes: &Volumes<'_>, field: &Field, problems: &mut Problems) {
    for (index, device) in container.list("volumeDevices").iter().enumerate() {
        let (at, name) = (field.index(index), device.text("name"));
        match volumes.get(name) {
            _ if name.is_empty() => problems.required(&at.child("name"), ""),
            None => problems.not_found(&at.child("name"), name),
            Some(volume) if !volume.has("persistentVolumeClaim") && !volume.has("ephemeral") => {
                let why =
                    "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
                problems.invalid(&at.child("name"), name, why);
            }
            Some(_) => {}
        }
        if device.text("devicePath").is_empty() {
            problems.required(&at.child("devicePath"), "");
        }
    }
}

/// `validateContainerRestartPolicy`.
fn validate_restart_policy(container: &Value, supported: &[&str], field: &Field, problems: &mut Problems) {
    let rules = container.list("restartPolicyRules");
    if container.has("restartPolicy") {
        let policy = container.text("restartPolicy");
        problems.unless_one_of(&field.child("restartPolicy"), policy, supported);
    } else if !rules.is_empty() {
        let why = "must specify restartPolicy when restart rules are used";
        problems.required(&field.child("restartPolicy"), why);
    }
    if rules.len() > 20 {
        problems.too_many(&field.child("restartPolicyRules"), rules.len(), 20);
    }
    for (index, rule) in rules.iter().enumerate() {
        let field = field.child("restartPolicyRules").index(index);
        let actions = ["Restart", "RestartAllContainers"];
        problems.unless_one_of(&field.child("action"), rule.text("action"), &actions);
        let field = field.child("exitCodes");
        let Some(codes) = rule.field("exitCodes") else {
            problems.required(&field, "must be specified");
            continue;
        };
        problems.unless_one_of(&field.child("operator"), codes.text("operator"), &["In", "NotIn"]);
        let count = codes.list("values").len();
        if count > 255 {
            problems.too_many(&field.child("values"), count, 255);
        }
    }
}
