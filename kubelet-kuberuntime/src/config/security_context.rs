//! The security context of a container, merged with its pod's (`kuberuntime/security_context.go`,
//! `pkg/securitycontext`).

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{
    AppArmorProfile, Capabilities, Container, Pod, PodSecurityContext, PodSpec, SELinuxOptions,
    SeccompProfile, SecurityContext,
};
use kubelet_core::{MountedVolume, PodExt};

use super::namespaces::namespaces_for_pod;
use super::{ConfigError, ImageUser, NodeSettings, Result};
use kubelet_cri::v1::security_profile::ProfileType;
use kubelet_cri::v1::{
    Capability, Int64Value, LinuxContainerSecurityContext, SeLinuxOption, SecurityProfile,
    SupplementalGroupsPolicy, UserNamespace,
};

/// The masked paths of all containers, unless `procMount` is `Unmasked` (`defaultMaskedPaths`). The node adds more.
const MASKED_PATHS: [&str; 12] = [
    "/proc/asound",
    "/proc/acpi",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
];

/// The read-only paths of all containers, unless `procMount` is `Unmasked` (`defaultReadonlyPaths`).
const READONLY_PATHS: [&str; 5] = [
    "/proc/bus",
    "/proc/fs",
    "/proc/irq",
    "/proc/sys",
    "/proc/sysrq-trigger",
];

/// Prefix of the old annotation with a container's AppArmor profile, followed by the container's name
/// (`DeprecatedAppArmorBetaContainerAnnotationKeyPrefix`).
const APPARMOR_ANNOTATION_PREFIX: &str = "container.apparmor.security.beta.kubernetes.io/";

/// The security context of a container (`determineEffectiveSecurityContext`).
pub(super) fn container_security_context(
    node: &NodeSettings,
    pod: &Pod,
    container: &Container,
    image_user: &ImageUser,
    user_namespace: &UserNamespace,
) -> Result<LinuxContainerSecurityContext> {
    let pod_context = pod_security_context(pod);
    let effective = Effective::of(pod_context, container.security_context.as_ref());
    let (apparmor, apparmor_profile) = apparmor_profile(pod, pod_context, container)?;
    let (masked_paths, readonly_paths) = masked_and_readonly_paths(node, effective.proc_mount);

    let mut run_as_user = effective.run_as_user;
    let mut run_as_username = String::new();
    if run_as_user.is_none() {
        run_as_user = image_user.uid;
        run_as_username.clone_from(&image_user.username);
        if run_as_username.is_empty() {
            // An image without a user runs as root.
            run_as_user.get_or_insert(0);
        }
    }

    // The field for older runtimes stays empty, because `seccomp` has the profile.
    #[allow(deprecated)]
    Ok(LinuxContainerSecurityContext {
        capabilities: effective.capabilities.map(capability),
        privileged: effective.privileged,
        namespace_options: Some(namespaces_for_pod(pod, user_namespace.clone())),
        selinux_options: effective.selinux_options.map(selinux_option),
        run_as_user: run_as_user.map(|value| Int64Value { value }),
        run_as_group: effective.run_as_group.map(|value| Int64Value { value }),
        run_as_username,
        readonly_rootfs: effective.read_only_root_filesystem,
        supplemental_groups: supplemental_groups(pod_context),
        supplemental_groups_policy: supplemental_groups_policy(pod_context)?,
        no_new_privs: effective.allow_privilege_escalation == Some(false),
        masked_paths,
        readonly_paths,
        seccomp: Some(seccomp_profile(node, pod_context, container)?),
        apparmor,
        apparmor_profile,
        ..Default::default()
    })
}

/// Refuses a container with `runAsNonRoot` that would or could run as root (`verifyRunAsNonRoot`).
pub(super) fn verify_run_as_non_root(pod: &Pod, container: &Container, image_user: &ImageUser) -> Result<()> {
    let effective = Effective::of(pod_security_context(pod), container.security_context.as_ref());
    if !effective.run_as_non_root {
        return Ok(());
    }
    let problem = match (effective.run_as_user, image_user.uid) {
        (Some(0), _) => "container's runAsUser breaks non-root policy".to_owned(),
        (Some(_), _) => return Ok(()),
        (None, None) if !image_user.username.is_empty() => format!(
            "container has runAsNonRoot and image has non-numeric user ({}), cannot verify user is non-root",
            image_user.username
        ),
        (None, None | Some(0)) => "container has runAsNonRoot and image will run as root".to_owned(),
        (None, Some(uid)) if !(0..=i64::from(i32::MAX)).contains(&uid) => {
            format!(
                "container has runAsNonRoot and image has an invalid user id ({uid}). (Must be 1-({max})): \
                 must be between 0 and {max}, inclusive",
                max = i32::MAX
            )
        }
        (None, Some(_)) => return Ok(()),
    };
    Err(ConfigError::Spec(format!(
        "{problem} (pod: \"{}({})\", container: {})",
        pod.key().full_name(),
        pod.uid_str(),
        container.name
    )))
}

/// `fsGroup`, then `supplementalGroups`.
pub(super) fn supplemental_groups(context: Option<&PodSecurityContext>) -> Vec<i64> {
    let Some(context) = context else {
        return Vec::new();
    };
    let groups = context.supplemental_groups.iter().flatten().copied();
    context.fs_group.into_iter().chain(groups).collect()
}

/// The groups of the pod's persistent volumes that the pod itself does not ask for (`GetExtraSupplementalGroupsForPod`).
pub(super) fn groups_of_volumes(pod: &Pod, volumes: &BTreeMap<String, MountedVolume>) -> Vec<i64> {
    let asked = pod_security_context(pod).and_then(|context| context.supplemental_groups.as_deref());
    let asked = asked.unwrap_or_default();
    let groups = volumes.values().filter_map(|volume| volume.group);
    let groups: BTreeSet<i64> = groups.filter(|group| !asked.contains(group)).collect();
    groups.into_iter().collect()
}

pub(super) fn supplemental_groups_policy(context: Option<&PodSecurityContext>) -> Result<i32> {
    let policy = context.and_then(|context| context.supplemental_groups_policy.as_deref());
    match policy {
        None => Ok(0),
        Some(policy) => SupplementalGroupsPolicy::from_str_name(policy)
            .map(|policy| policy as i32)
            .ok_or_else(|| ConfigError::Spec(format!("unsupported supplementalGroupsPolicy: {policy}"))),
    }
}

pub(super) fn selinux_option(options: &SELinuxOptions) -> SeLinuxOption {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    SeLinuxOption {
        user: text(&options.user),
        role: text(&options.role),
        r#type: text(&options.type_),
        level: text(&options.level),
    }
}

pub(super) fn pod_security_context(pod: &Pod) -> Option<&PodSecurityContext> {
    pod.spec.as_ref()?.security_context.as_ref()
}

/// The container's value, or else the pod's (`DetermineEffectiveSecurityContext`).
struct Effective<'a> {
    capabilities: Option<&'a Capabilities>,
    privileged: bool,
    selinux_options: Option<&'a SELinuxOptions>,
    run_as_user: Option<i64>,
    run_as_group: Option<i64>,
    run_as_non_root: bool,
    read_only_root_filesystem: bool,
    allow_privilege_escalation: Option<bool>,
    proc_mount: Option<&'a str>,
}

impl<'a> Effective<'a> {
    fn of(pod: Option<&'a PodSecurityContext>, container: Option<&'a SecurityContext>) -> Self {
        Self {
            capabilities: container.and_then(|c| c.capabilities.as_ref()),
            privileged: container.and_then(|c| c.privileged).unwrap_or(false),
            selinux_options: container
                .and_then(|c| c.se_linux_options.as_ref())
                .or_else(|| pod?.se_linux_options.as_ref()),
            run_as_user: container.and_then(|c| c.run_as_user).or_else(|| pod?.run_as_user),
            run_as_group: container
                .and_then(|c| c.run_as_group)
                .or_else(|| pod?.run_as_group),
            run_as_non_root: container
                .and_then(|c| c.run_as_non_root)
                .or_else(|| pod?.run_as_non_root)
                .unwrap_or(false),
            read_only_root_filesystem: container
                .and_then(|c| c.read_only_root_filesystem)
                .unwrap_or(false),
            allow_privilege_escalation: container.and_then(|c| c.allow_privilege_escalation),
            proc_mount: container.and_then(|c| c.proc_mount.as_deref()),
        }
    }
}

fn capability(capabilities: &Capabilities) -> Capability {
    Capability {
        add_capabilities: capabilities.add.clone().unwrap_or_default(),
        drop_capabilities: capabilities.drop.clone().unwrap_or_default(),
        ..Default::default()
    }
}

fn masked_and_readonly_paths(node: &NodeSettings, proc_mount: Option<&str>) -> (Vec<String>, Vec<String>) {
    if proc_mount == Some("Unmasked") {
        return (Vec::new(), Vec::new());
    }
    let masked = MASKED_PATHS.iter().map(|path| (*path).to_owned());
    let readonly = READONLY_PATHS.iter().map(|path| (*path).to_owned());
    (
        masked.chain(node.masked_paths.iter().cloned()).collect(),
        readonly.collect(),
    )
}

/// The container's profile, or the pod's, or the node's default (`getSeccompProfile`).
fn seccomp_profile(
    node: &NodeSettings,
    pod: Option<&PodSecurityContext>,
    container: &Container,
) -> Result<SecurityProfile> {
    let profile = container
        .security_context
        .as_ref()
        .and_then(|context| context.seccomp_profile.as_ref())
        .or_else(|| pod?.seccomp_profile.as_ref());
    let Some(SeccompProfile {
        localhost_profile,
        type_,
    }) = profile
    else {
        let default = if node.seccomp_default {
            ProfileType::RuntimeDefault
        } else {
            ProfileType::Unconfined
        };
        return Ok(security_profile(default));
    };
    match type_.as_str() {
        "RuntimeDefault" => Ok(security_profile(ProfileType::RuntimeDefault)),
        "Localhost" => match localhost_profile.as_deref().filter(|name| !name.is_empty()) {
            Some(name) => Ok(SecurityProfile {
                profile_type: ProfileType::Localhost as i32,
                localhost_ref: node
                    .root_dir
                    .path()
                    .join("seccomp")
                    .join(name.trim_start_matches('/'))
                    .display()
                    .to_string(),
            }),
            None => Err(ConfigError::Spec(
                "localhostProfile must be set if seccompProfile type is Localhost.".to_owned(),
            )),
        },
        _ => Ok(security_profile(ProfileType::Unconfined)),
    }
}

/// The container's profile, or the annotation's, or the pod's (`getAppArmorProfile`): in CRI's present form, and in the
/// form for older runtimes.
fn apparmor_profile(
    pod: &Pod,
    pod_context: Option<&PodSecurityContext>,
    container: &Container,
) -> Result<(Option<SecurityProfile>, String)> {
    let annotation = pod.annotation(&format!("{APPARMOR_ANNOTATION_PREFIX}{}", container.name));
    let profile = container
        .security_context
        .as_ref()
        .and_then(|context| context.app_armor_profile.clone())
        .or_else(|| annotated_apparmor_profile(annotation?))
        .or_else(|| pod_context?.app_armor_profile.clone());
    let Some(AppArmorProfile {
        localhost_profile,
        type_,
    }) = profile
    else {
        return Ok((None, String::new()));
    };
    match (type_.as_str(), localhost_profile) {
        ("RuntimeDefault", _) => Ok((
            Some(security_profile(ProfileType::RuntimeDefault)),
            "runtime/default".to_owned(),
        )),
        ("Unconfined", _) => Ok((
            Some(security_profile(ProfileType::Unconfined)),
            "unconfined".to_owned(),
        )),
        ("Localhost", Some(name)) => {
            let old_form = format!("localhost/{name}");
            let profile = SecurityProfile {
                profile_type: ProfileType::Localhost as i32,
                localhost_ref: name,
            };
            Ok((Some(profile), old_form))
        }
        ("Localhost", None) => Err(ConfigError::Spec(
            "missing localhost apparmor profile name".to_owned(),
        )),
        (other, _) => Err(ConfigError::Spec(format!(
            "unknown apparmor profile type: {other:?}"
        ))),
    }
}

/// `getProfileFromPodAnnotations`
fn annotated_apparmor_profile(value: &str) -> Option<AppArmorProfile> {
    let profile = |type_: &str, name: Option<&str>| AppArmorProfile {
        type_: type_.to_owned(),
        localhost_profile: name.map(str::to_owned),
    };
    match value {
        "runtime/default" => Some(profile("RuntimeDefault", None)),
        "unconfined" => Some(profile("Unconfined", None)),
        other => Some(profile("Localhost", Some(other.strip_prefix("localhost/")?))),
    }
}

fn security_profile(profile_type: ProfileType) -> SecurityProfile {
    SecurityProfile {
        profile_type: profile_type as i32,
        localhost_ref: String::new(),
    }
}

/// Whether a regular or init container of the pod is privileged (`HasPrivilegedContainer`).
pub(super) fn has_privileged_container(spec: &PodSpec) -> bool {
    let containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    let mut contexts = containers.filter_map(|container| container.security_context.as_ref());
    contexts.any(|context| context.privileged == Some(true))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(context: SecurityContext) -> Container {
        Container {
            name: "main".into(),
            security_context: Some(context),
            ..Default::default()
        }
    }

    fn pod(context: PodSecurityContext) -> Pod {
        let mut pod = Pod::default();
        pod.metadata.name = Some("web".into());
        pod.metadata.namespace = Some("ns".into());
        pod.metadata.uid = Some("u".into());
        pod.spec = Some(PodSpec {
            security_context: Some(context),
            ..Default::default()
        });
        pod
    }

    fn user(uid: Option<i64>, username: &str) -> ImageUser {
        ImageUser {
            uid,
            username: username.into(),
        }
    }

    #[test]
    fn non_root_is_verified() {
        let non_root = || PodSecurityContext {
            run_as_non_root: Some(true),
            ..Default::default()
        };
        let as_user = |uid: i64| SecurityContext {
            run_as_user: Some(uid),
            ..Default::default()
        };
        let none = SecurityContext::default;
        let cases = [
            (none(), user(Some(1000), ""), None),
            (as_user(1), user(Some(0), ""), None),
            (
                none(),
                user(Some(0), ""),
                Some("container has runAsNonRoot and image will run as root"),
            ),
            (
                none(),
                user(None, ""),
                Some("container has runAsNonRoot and image will run as root"),
            ),
            (
                as_user(0),
                user(Some(1), ""),
                Some("container's runAsUser breaks non-root policy"),
            ),
            (
                none(),
                user(None, "joe"),
                Some(
                    "container has runAsNonRoot and image has non-numeric user (joe), cannot verify user is non-root",
                ),
            ),
            (
                none(),
                user(Some(-1), ""),
                Some(
                    "container has runAsNonRoot and image has an invalid user id (-1). (Must be 1-(2147483647)): \
                     must be between 0 and 2147483647, inclusive",
                ),
            ),
            (
                SecurityContext {
                    run_as_non_root: Some(false),
                    ..Default::default()
                },
                user(Some(0), ""),
                None,
            ),
        ];
        for (context, image_user, problem) in cases {
            let verified = verify_run_as_non_root(&pod(non_root()), &container(context), &image_user);
            let problem = problem.map(|text| format!("{text} (pod: \"web_ns(u)\", container: main)"));
            assert_eq!(verified.err().map(|error| error.to_string()), problem);
        }
    }

    #[test]
    fn profiles_come_from_the_nearest_who_names_one() {
        let profile = |type_: &str, name: Option<&str>| SeccompProfile {
            type_: type_.into(),
            localhost_profile: name.map(str::to_owned),
        };
        let mut node = NodeSettings::default();
        let of_pod = PodSecurityContext {
            seccomp_profile: Some(profile("RuntimeDefault", None)),
            ..Default::default()
        };
        let local = container(SecurityContext {
            seccomp_profile: Some(profile("Localhost", Some("p.json"))),
            ..Default::default()
        });
        let bare = container(SecurityContext::default());
        let found = seccomp_profile(&node, Some(&of_pod), &local).unwrap();
        assert_eq!(found.localhost_ref, "/var/lib/kubelet/seccomp/p.json");
        let found = seccomp_profile(&node, Some(&of_pod), &bare).unwrap();
        assert_eq!(found.profile_type(), ProfileType::RuntimeDefault);
        let found = seccomp_profile(&node, None, &bare).unwrap();
        assert_eq!(found.profile_type(), ProfileType::Unconfined);
        node.seccomp_default = true;
        let found = seccomp_profile(&node, None, &bare).unwrap();
        assert_eq!(found.profile_type(), ProfileType::RuntimeDefault);
    }

    #[test]
    fn apparmor_is_read_from_field_annotation_and_pod() {
        let of_pod = PodSecurityContext {
            app_armor_profile: Some(AppArmorProfile {
                type_: "RuntimeDefault".into(),
                localhost_profile: None,
            }),
            ..Default::default()
        };
        let mut pod = pod(of_pod);
        let main = container(SecurityContext::default());
        let old_form = |pod: &Pod, container: &Container| {
            apparmor_profile(pod, pod_security_context(pod), container)
                .unwrap()
                .1
        };
        assert_eq!(old_form(&pod, &main), "runtime/default");
        let key = format!("{APPARMOR_ANNOTATION_PREFIX}main");
        pod.metadata.annotations = Some([(key, "localhost/mine".to_owned())].into());
        assert_eq!(old_form(&pod, &main), "localhost/mine");
        let own = container(SecurityContext {
            app_armor_profile: Some(AppArmorProfile {
                type_: "Unconfined".into(),
                localhost_profile: None,
            }),
            ..Default::default()
        });
        assert_eq!(old_form(&pod, &own), "unconfined");
    }

    #[test]
    fn groups_of_volumes_are_added_once() {
        let volume = |group| {
            let mut volume = MountedVolume::new("/v");
            volume.group = group;
            volume
        };
        let groups = [
            ("a", Some(7)),
            ("b", Some(7)),
            ("c", Some(5)),
            ("d", Some(3)),
            ("e", None),
        ];
        let volumes = groups.map(|(name, group)| (name.to_owned(), volume(group)));
        let volumes = BTreeMap::from(volumes);
        for (context, expected) in [
            (serde_json::json!(null), vec![3, 5, 7]),
            (
                serde_json::json!({"fsGroup": 1, "supplementalGroups": [5]}),
                vec![3, 7],
            ),
        ] {
            let pod = serde_json::json!({"spec": {"containers": [], "securityContext": context}});
            let pod: Pod = serde_json::from_value(pod).unwrap();
            assert_eq!(groups_of_volumes(&pod, &volumes), expected);
        }
    }
}
