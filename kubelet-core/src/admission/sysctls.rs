//! The sysctls that pods may set.

use std::collections::BTreeMap;

use async_trait::async_trait;

use super::{PodAdmitAttributes, PodAdmitHandler, Rejection};
use crate::PodExt;

/// Rejects pods with a sysctl that is not allowed (`SysctlForbidden`). Answers to the kubelet's `sysctl.NewAllowlist`.
///
/// ```
/// use kubelet_core::admission::{SysctlAllowlist, safe_sysctls};
///
/// // `allowedUnsafeSysctls` of the configuration, beside the safe ones.
/// assert!(SysctlAllowlist::linux_host(["kernel.msg*", "net.core.somaxconn"]).is_ok());
/// // The same, on a kernel that is known.
/// let mut patterns = safe_sysctls(Some((6, 1)));
/// patterns.extend(["kernel.msg*", "net.core.somaxconn"]);
/// assert!(SysctlAllowlist::new(patterns).is_ok());
/// assert!(SysctlAllowlist::new(["vm.swappiness"]).is_err(), "not of one pod alone");
/// ```
#[derive(Clone, Debug, Default)]
pub struct SysctlAllowlist {
    names: BTreeMap<String, Namespace>,
    prefixes: BTreeMap<String, Namespace>,
}

/// A pattern that is not allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SysctlPatternError {
    /// Not a sysctl name with at most one `*` at its end.
    #[error(
        "sysctl {0:?} must have at most 253 characters, be made of segments of lower case letters, digits, '-' and '_', and have no '*' but at its end"
    )]
    Malformed(String),
    /// The kernel does not isolate this sysctl per pod.
    #[error("the sysctls {0:?} are not known to be namespaced")]
    NotNamespaced(String),
}

/// The kernel namespace of a sysctl.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Namespace {
    Ipc,
    Net,
}

/// The safe sysctls of this kernel version (major, minor): they belong to one pod and do not affect others. For an
/// unknown version, those that every kernel supports (`SafeSysctlAllowlist`).
pub fn safe_sysctls(kernel: Option<(u32, u32)>) -> Vec<&'static str> {
    let known = SAFE_SYSCTLS.into_iter();
    let known =
        known.filter(|(_, since)| since.is_none() || kernel.is_some_and(|kernel| Some(kernel) >= *since));
    known.map(|(name, _)| name).collect()
}

/// Each with the first kernel version that isolates it.
const SAFE_SYSCTLS: [(&str, Option<(u32, u32)>); 12] = [
    ("kernel.shm_rmid_forced", None),
    ("net.ipv4.ip_local_port_range", None),
    ("net.ipv4.tcp_syncookies", None),
    ("net.ipv4.ping_group_range", None),
    ("net.ipv4.ip_unprivileged_port_start", None),
    ("net.ipv4.ip_local_reserved_ports", Some((3, 16))),
    ("net.ipv4.tcp_keepalive_time", Some((4, 5))),
    ("net.ipv4.tcp_fin_timeout", Some((4, 6))),
    ("net.ipv4.tcp_keepalive_intvl", Some((4, 5))),
    ("net.ipv4.tcp_keepalive_probes", Some((4, 5))),
    ("net.ipv4.tcp_rmem", Some((4, 15))),
    ("net.ipv4.tcp_wmem", Some((4, 15))),
];

/// `SysctlMaxLength`
const MAX_LENGTH: usize = 253;

impl SysctlAllowlist {
    /// Allows these names. A pattern with `*` at its end allows all names with that prefix.
    ///
    /// # Errors
    ///
    /// The first pattern that is invalid or would affect more than the pod.
    pub fn new(patterns: impl IntoIterator<Item = impl AsRef<str>>) -> Result<Self, SysctlPatternError> {
        let mut allowed = Self::default();
        for pattern in patterns {
            let pattern = pattern.as_ref();
            if !is_pattern(pattern) {
                return Err(SysctlPatternError::Malformed(pattern.to_owned()));
            }
            let name = normalize_sysctl_name(pattern);
            let (list, name) = match name.strip_suffix('*') {
                Some(prefix) => (&mut allowed.prefixes, prefix.to_owned()),
                None => (&mut allowed.names, name),
            };
            match namespace_of(&name) {
                Some(namespace) => list.insert(name, namespace),
                None => return Err(SysctlPatternError::NotNamespaced(name)),
            };
        }
        Ok(allowed)
    }

    /// Allows these in addition to the [safe](safe_sysctls) ones of this host's kernel; reads one file in `/proc`.
    ///
    /// # Errors
    ///
    /// Like [`new`](Self::new).
    pub fn linux_host(
        allowed_unsafe: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Result<Self, SysctlPatternError> {
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease");
        let mut allowed = Self::new(allowed_unsafe)?;
        let safe = Self::new(safe_sysctls(release.ok().as_deref().and_then(kernel_version)))?;
        allowed.names.extend(safe.names);
        Ok(allowed)
    }

    fn check(&self, sysctl: &str, host_network: bool, host_ipc: bool) -> Result<(), String> {
        let sysctl = normalize_sysctl_name(sysctl);
        let by_prefix = || {
            let mut prefixes = self.prefixes.iter();
            prefixes
                .find(|(prefix, _)| sysctl.starts_with(&***prefix))
                .map(|(_, namespace)| namespace)
        };
        match self.names.get(&sysctl).or_else(by_prefix) {
            None => Err(format!("{sysctl:?} not allowlisted")),
            Some(Namespace::Ipc) if host_ipc => Err(format!("{sysctl:?} not allowed with host IPC enabled")),
            Some(Namespace::Net) if host_network => {
                Err(format!("{sysctl:?} not allowed with host Net enabled"))
            }
            Some(_) => Ok(()),
        }
    }
}

#[async_trait]
impl PodAdmitHandler for SysctlAllowlist {
    async fn admit(&self, attributes: &PodAdmitAttributes<'_>) -> Result<(), Rejection> {
        let Some(spec) = &attributes.pod.spec else {
            return Ok(());
        };
        let context = spec.security_context.iter();
        let host_ipc = spec.host_ipc.unwrap_or(false);
        for sysctl in context.flat_map(|context| context.sysctls.iter().flatten()) {
            self.check(&sysctl.name, attributes.pod.host_network(), host_ipc)
                .map_err(|error| Rejection::new("SysctlForbidden", format!("forbidden sysctl: {error}")))?;
        }
        Ok(())
    }
}

/// `IsValidSysctlPattern`
fn is_pattern(pattern: &str) -> bool {
    let segments: Vec<&str> = pattern.split(['.', '/']).collect();
    let plain = |text: &str| {
        let letter = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        text.starts_with(letter) && text.chars().all(|c| letter(c) || matches!(c, '-' | '_'))
    };
    let whole = |segment: &str| plain(segment) && !segment.ends_with(['-', '_']);
    let Some((last, before)) = segments.split_last() else {
        return false;
    };
    let last_is_good = match last.strip_suffix('*') {
        Some(prefix) => prefix.is_empty() || plain(prefix),
        None => whole(last),
    };
    pattern.len() <= MAX_LENGTH && before.iter().all(|segment| whole(segment)) && last_is_good
}

/// The major and minor version of a kernel release such as `6.1.0-18-amd64`.
fn kernel_version(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.trim().split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// The name of a sysctl with dots between its parts, as runtimes expect it. In a name with slashes as separators, dots
/// and slashes are exchanged (`NormalizeName`).
pub fn normalize_sysctl_name(name: &str) -> String {
    match name.find(['.', '/']).map(|at| name.as_bytes().get(at)) {
        Some(Some(b'/')) => name
            .chars()
            .map(|c| match c {
                '.' => '/',
                '/' => '.',
                other => other,
            })
            .collect(),
        _ => name.to_owned(),
    }
}

/// `namespaceOf`
fn namespace_of(name: &str) -> Option<Namespace> {
    const IPC: [&str; 10] = [
        "kernel.sem",
        "kernel.shmall",
        "kernel.shmmax",
        "kernel.shmmni",
        "kernel.shm_rmid_forced",
        "kernel.shm",
        "kernel.msgmax",
        "kernel.msgmnb",
        "kernel.msgmni",
        "kernel.msg",
    ];
    if IPC.contains(&name) || name.starts_with("fs.mqueue.") {
        Some(Namespace::Ipc)
    } else if name.starts_with("net.") {
        Some(Namespace::Net)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::json;
    use std::sync::Arc;

    #[test]
    fn patterns_are_names_of_one_pod_alone() {
        use SysctlPatternError::*;
        for pattern in [
            "kernel.msg*",
            "kernel.sem",
            "kernel/msg*",
            "kernel/sem",
            "net.*",
            "fs.mqueue.*",
        ] {
            assert!(SysctlAllowlist::new([pattern]).is_ok(), "{pattern}");
        }
        let long = format!("net.{}", "a".repeat(250));
        for pattern in [
            " kernel.msg*",
            "kernel.msg* ",
            "net.-",
            "net.*.foo",
            "net.*/foo",
            "",
            "net..a",
            "Net.a",
            &long,
        ] {
            let refused = SysctlAllowlist::new([pattern]).unwrap_err();
            assert_eq!(refused, Malformed(pattern.to_owned()));
        }
        for pattern in ["foo", "foo*", "vm.swappiness", "*", "network.a"] {
            let refused = SysctlAllowlist::new([pattern]).unwrap_err();
            assert!(matches!(refused, NotNamespaced(_)), "{refused}");
        }
    }

    #[test]
    fn old_kernels_have_fewer() {
        assert_eq!(safe_sysctls(None).len(), 5);
        assert_eq!(safe_sysctls(Some((4, 5))).len(), 9);
        assert_eq!(safe_sysctls(Some((6, 1))).len(), 12);
    }

    #[test]
    fn the_kernel_of_this_host_has_what_all_have() {
        let allowed = SysctlAllowlist::linux_host(["kernel.msg*"]).unwrap();
        for name in safe_sysctls(None).into_iter().chain(["kernel.msgmax"]) {
            assert_eq!(allowed.check(name, false, false), Ok(()));
        }
        assert!(allowed.check("kernel.sem", false, false).is_err());
        let releases = [
            ("6.1.0-18-amd64\n", Some((6, 1))),
            ("5.10-rc1", Some((5, 10))),
            ("4", None),
            ("", None),
            ("linux", None),
        ];
        for (release, version) in releases {
            assert_eq!(kernel_version(release), version, "{release:?}");
        }
    }

    #[tokio::test]
    async fn what_is_not_allowed_or_the_hosts_is_forbidden() {
        let mut patterns = safe_sysctls(Some((6, 1)));
        patterns.extend(["kernel.msg*", "kernel.sem", "net.b.*"]);
        let allowed = SysctlAllowlist::new(patterns).unwrap();
        let cases = [
            ("kernel.shm_rmid_forced", false, false, true),
            ("kernel/shm_rmid_forced", false, false, true),
            ("net.ipv4.ip_local_port_range", false, false, true),
            ("kernel.msgmax", false, false, true),
            ("kernel/sem", false, false, true),
            ("kernel.sem", true, false, true),
            ("kernel.shm_rmid_forced", false, true, false),
            ("net.ipv4.ip_local_port_range", true, false, false),
            ("foo", false, false, false),
            ("net.a.b.c", false, false, false),
            ("net.ipv4.ip_local_port_range.a.b.c", false, false, false),
            ("kernel.msgmax", false, true, false),
            ("kernel.sem", false, true, false),
            ("net.b.c", true, false, false),
        ];
        for case @ (name, host_network, host_ipc, admitted) in cases {
            let sysctls = json!({"sysctls": [{"name": name, "value": "1"}]});
            let spec = json!({"containers": [], "hostNetwork": host_network, "hostIPC": host_ipc,
                "securityContext": sysctls});
            let pod: Arc<Pod> = Arc::new(serde_json::from_value(json!({"spec": spec})).unwrap());
            let answer = allowed.admit(&PodAdmitAttributes::new(&pod, &[])).await;
            assert_eq!(answer.is_ok(), admitted, "{case:?}");
        }
    }

    #[tokio::test]
    async fn the_message_is_the_kubelets() {
        let sysctls = json!({"sysctls": [{"name": "kernel.msgmax", "value": "1"}]});
        let pod = json!({"spec": {"containers": [], "securityContext": sysctls}});
        let pod: Arc<Pod> = Arc::new(serde_json::from_value(pod).unwrap());
        let allowed = SysctlAllowlist::new(safe_sysctls(None)).unwrap();
        let rejection = allowed
            .admit(&PodAdmitAttributes::new(&pod, &[]))
            .await
            .unwrap_err();
        let expected = Rejection::new(
            "SysctlForbidden",
            "forbidden sysctl: \"kernel.msgmax\" not allowlisted",
        );
        assert_eq!(rejection, expected);
    }
}
