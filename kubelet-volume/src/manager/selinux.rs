//! The SELinux contexts that volumes are mounted with (`pkg/volume/util/selinux.go`): then the container runtime need not
//! label all their files.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::Path;

use k8s_openapi::api::core::v1::{Pod, SELinuxOptions};

use super::metrics;
use crate::{VolumePlugin, VolumeSpec};

/// Where the host has its default contexts, below its root folder (`contextFile`).
const CONTEXTS: &str = "usr/share/containers/selinux/contexts";

/// The contexts that this host gives containers and their files, as its file `lxc_contexts` has them.
///
/// ```
/// use kubelet_volume::SelinuxContexts;
///
/// let contexts = SelinuxContexts::parse(
///     "process = \"system_u:system_r:container_t:s0\"\nfile = \"system_u:object_r:container_file_t:s0\"",
/// );
/// assert_ne!(contexts, SelinuxContexts::default());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SelinuxContexts {
    file: Option<Context>,
    /// The runtime gives each container a level of its own, unless the pod has one.
    has_levels: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Context {
    user: String,
    role: String,
    kind: String,
    level: Option<String>,
}

impl Context {
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(4, ':').map(str::to_owned);
        Some(Self {
            user: parts.next()?,
            role: parts.next()?,
            kind: parts.next()?,
            level: parts.next().filter(|level| !level.is_empty()),
        })
    }
}

impl fmt::Display for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.user, self.role, self.kind)?;
        match &self.level {
            Some(level) => write!(f, ":{level}"),
            None => Ok(()),
        }
    }
}

impl SelinuxContexts {
    /// The contexts of this host; `None` if SELinux is off. It reads some small files.
    pub fn of_host() -> Option<Self> {
        Self::below(Path::new("/"))
    }

    fn below(root: &Path) -> Option<Self> {
        if !root.join("sys/fs/selinux/enforce").exists() {
            return None;
        }
        let of_policy = || {
            let config = fs::read_to_string(root.join("etc/selinux/config")).ok()?;
            let policy = value_of(&config, "SELINUXTYPE").unwrap_or_default();
            let dir = root.join("etc/selinux").join(policy);
            fs::read_to_string(dir.join("contexts/lxc_contexts")).ok()
        };
        let text = fs::read_to_string(root.join(CONTEXTS)).ok().or_else(of_policy);
        if text.is_none() {
            tracing::warn!("The host has no default SELinux contexts: volumes are mounted without a context");
        }
        Some(Self::parse(&text.unwrap_or_default()))
    }

    /// Reads the lines `process` and `file` of the file `lxc_contexts`. Without them no volume is mounted with a context.
    pub fn parse(text: &str) -> Self {
        let context = |key| Context::parse(value_of(text, key)?);
        let Some(process) = context("process") else {
            return Self::default();
        };
        Self {
            file: context("file"),
            has_levels: process.level.is_some(),
        }
    }

    /// The context of the files of a container with these options; empty if only the runtime knows it
    /// (`SELinuxOptionsToFileLabel`). The role and the type of a process are not those of its files.
    fn label(&self, options: &SELinuxOptions) -> String {
        let given = |option: &Option<String>| option.clone().filter(|option| !option.is_empty());
        let (user, level) = (given(&options.user), given(&options.level));
        let is_empty = user.is_none() && level.is_none();
        if is_empty && given(&options.role).is_none() && given(&options.type_).is_none() {
            return String::new();
        }
        // The runtime chooses the level.
        if level.is_none() && self.has_levels {
            return String::new();
        }
        let Some(mut context) = self.file.clone() else {
            return String::new();
        };
        context.user = user.unwrap_or(context.user);
        context.level = level.or(context.level);
        context.to_string()
    }
}

/// The value of a line `key = "value"`.
fn value_of<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let lines = text.lines().map(str::trim);
    let lines = lines.filter(|line| !line.starts_with(['#', ';']));
    let values = lines.filter_map(|line| line.split_once('='));
    let mut values = values.filter(|(found, _)| found.trim() == key);
    values
        .next_back()
        .map(|(_, value)| value.trim().trim_matches('"'))
}

/// The context that a pod wants a volume to be mounted with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MountContext {
    /// Empty: none.
    label: String,
    /// Volumes of this plugin can be mounted with a context.
    is_supported: bool,
    /// Volumes with these access modes are (`SELinuxMountReadWriteOncePod`). A conflict of others is only counted.
    is_applied: bool,
    access_mode: &'static str,
}

impl MountContext {
    /// Of a volume of a pod. The error has the kubelet's text (`GetMountSELinuxLabel`).
    pub(crate) async fn of(
        contexts: &SelinuxContexts,
        plugin: &dyn VolumePlugin,
        spec: &VolumeSpec,
        pod: &Pod,
        outer_name: &str,
    ) -> Result<Self, String> {
        let is_supported = plugin.supports_selinux_mount(spec).await;
        let mut context = Self {
            label: String::new(),
            is_supported: is_supported.map_err(|error| error.to_string())?,
            is_applied: is_applied(spec),
            access_mode: access_mode(spec),
        };
        let mut labels = labels(contexts, pod, outer_name);
        if labels.len() > 1 {
            metrics::selinux_pod_mismatch(context.is_applied, context.access_mode);
            if context.is_applied {
                let labels: Vec<String> = labels.into_iter().collect();
                return Err(format!("multiple SELinux labels found: {}", labels.join(",")));
            }
            context.is_supported = false;
            return Ok(context);
        }
        if context.is_supported && !is_recursive(pod) {
            context.label = labels.pop_first().unwrap_or_default();
        }
        Ok(context)
    }

    /// The label to mount the volume with.
    pub(crate) fn mounted_with(&self) -> Option<&str> {
        let label = Some(self.label.as_str());
        label.filter(|label| self.is_applied && !label.is_empty())
    }

    /// Whether the context of a mount matters: one with another context, or with an unknown one, cannot be used.
    pub(crate) fn matters(&self) -> bool {
        self.is_supported && self.is_applied
    }

    /// Another pod uses the volume with the context `self`. The error has the kubelet's text (`AddPodToVolume`).
    pub(crate) fn admit(&self, other: &Self, volume: &str, plugin: &str) -> Result<(), String> {
        if !other.is_supported || other.label == self.label {
            return Ok(());
        }
        metrics::selinux_volume_mismatch(other.is_applied, plugin, other.access_mode);
        if !other.is_applied {
            return Ok(());
        }
        let (used, wanted) = (&self.label, &other.label);
        Err(format!(
            "conflicting SELinux labels of volume {volume}: {used:?} and {wanted:?}"
        ))
    }

    /// Counts a volume that no other pod uses.
    pub(crate) fn count(&self, plugin: &str) {
        if !self.label.is_empty() {
            metrics::selinux_admitted(plugin, self.access_mode);
        }
    }
}

/// The contexts of the files of all containers that mount a volume (`GetPodVolumeNames`). A container without options of
/// its own has those of the pod; without any, it has no say.
fn labels(contexts: &SelinuxContexts, pod: &Pod, outer_name: &str) -> BTreeSet<String> {
    let Some(spec) = &pod.spec else {
        return BTreeSet::new();
    };
    let of_pod = spec.security_context.as_ref();
    let of_pod = of_pod.and_then(|context| context.se_linux_options.as_ref());
    let containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    let regular = containers.map(|container| (&container.volume_mounts, &container.security_context));
    let ephemeral = spec.ephemeral_containers.iter().flatten();
    let all =
        regular.chain(ephemeral.map(|container| (&container.volume_mounts, &container.security_context)));
    let users = all.filter(|(mounts, _)| mounts.iter().flatten().any(|mount| mount.name == outer_name));
    let options = users.filter_map(|(_, context)| {
        let own = context
            .as_ref()
            .and_then(|context| context.se_linux_options.as_ref());
        own.or(of_pod)
    });
    options.map(|options| contexts.label(options)).collect()
}

/// `seLinuxChangePolicy: Recursive`: the runtime is to label the files.
fn is_recursive(pod: &Pod) -> bool {
    let context = pod.spec.as_ref().and_then(|spec| spec.security_context.as_ref());
    let policy = context.and_then(|context| context.se_linux_change_policy.as_deref());
    policy == Some("Recursive")
}

/// (`VolumeSupportsSELinuxMount`)
fn is_applied(spec: &VolumeSpec) -> bool {
    matches!(access_modes(spec), [mode] if mode == "ReadWriteOncePod")
}

fn access_modes(spec: &VolumeSpec) -> &[String] {
    let modes = spec
        .persistent_volume()
        .and_then(|spec| spec.access_modes.as_deref());
    modes.unwrap_or_default()
}

/// The widest access mode, for metrics (`getVolumeAccessMode`).
fn access_mode(spec: &VolumeSpec) -> &'static str {
    if spec.persistent_volume().is_none() {
        return "inline";
    }
    let modes = access_modes(spec);
    let widest_first = [
        ("ReadWriteMany", "RWX"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteOnce", "RWO"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let mut known = widest_first.iter();
    let widest = known.find(|(mode, _)| modes.iter().any(|found| found == mode));
    widest.map_or("", |(_, short)| *short)
}

#[cfg(test)]
mod tests;
