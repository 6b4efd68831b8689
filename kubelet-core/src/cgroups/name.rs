//! Names of cgroups, independent of the driver (`CgroupName`).

use std::fmt::{self, Write as _};

/// The ending of a slice's name (`systemdSuffix`).
const SLICE: &str = ".slice";

/// The name of a cgroup: its parts from the root, e.g. `kubepods`, `burstable`, `pod1234-abcd`. The root has none.
///
/// With the driver cgroupfs this is the path; with systemd, the name of a slice contains the names of all its parents.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CgroupName(Vec<String>);

impl CgroupName {
    /// The name of this path (`ParseCgroupfsToCgroupName`).
    pub fn from_cgroupfs(path: &str) -> Self {
        let parts = path.split('/').filter(|part| !part.is_empty());
        Self(parts.map(str::to_owned).collect())
    }

    /// The name of the slice at the end of this path (`ParseSystemdToCgroupName`). Underscores become dashes.
    pub fn from_systemd(path: &str) -> Self {
        let slice = path.rsplit('/').next().unwrap_or_default();
        let slice = slice.strip_suffix(SLICE).unwrap_or(slice);
        let parts = slice.split('-').filter(|part| !part.is_empty());
        Self(parts.map(|part| part.replace('_', "-")).collect())
    }

    /// A cgroup below this one (`NewCgroupName`).
    #[must_use]
    pub fn join(mut self, part: impl Into<String>) -> Self {
        self.0.push(part.into());
        self
    }

    /// The parts of the name.
    pub fn parts(&self) -> &[String] {
        &self.0
    }

    /// The cgroup above this one; the root is above itself.
    #[must_use]
    pub fn parent(&self) -> Self {
        let above = self.0.len().saturating_sub(1);
        Self(self.0.iter().take(above).cloned().collect())
    }

    /// The path: `/kubepods/burstable/pod1234-abcd` (`ToCgroupfs`).
    pub fn to_cgroupfs(&self) -> String {
        format!("/{}", self.0.join("/"))
    }

    /// The path of slices: `/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1234_abcd.slice` (`ToSystemd`).
    pub fn to_systemd(&self) -> String {
        if self.0.is_empty() {
            return "/".to_owned();
        }
        let (mut path, mut slice) = (String::new(), String::new());
        // Dashes part names, so those within a name become underscores.
        let parts = self.0.iter().map(|part| part.replace('-', "_"));
        for part in parts {
            if !slice.is_empty() {
                slice.push('-');
            }
            slice.push_str(&part);
            // Writing to a String cannot fail.
            let _ = write!(path, "/{slice}{SLICE}");
        }
        path
    }

    /// The slice: `kubepods-burstable-pod1234_abcd.slice`; that of the root is `-.slice`.
    pub fn slice(&self) -> String {
        let path = self.to_systemd();
        match path.rsplit('/').next() {
            Some(slice) if !slice.is_empty() => slice.to_owned(),
            _ => format!("-{SLICE}"),
        }
    }
}

/// As the kubelet's messages show it: `["kubepods" "burstable"]`.
impl fmt::Display for CgroupName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (index, part) in self.0.iter().enumerate() {
            let space = if index > 0 { " " } else { "" };
            write!(f, "{space}{part:?}")?;
        }
        f.write_str("]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(parts: &[&str]) -> CgroupName {
        parts
            .iter()
            .fold(CgroupName::default(), |name, part| name.join(*part))
    }

    #[test]
    fn names_in_both_forms() {
        let of_pod = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod12_ab.slice";
        let cases: [(&[&str], &str, &str, &str); 5] = [
            (&[], "/", "/", "-.slice"),
            (&["system"], "/system", "/system.slice", "system.slice"),
            (
                &["system", "Burstable"],
                "/system/Burstable",
                "/system.slice/system-Burstable.slice",
                "system-Burstable.slice",
            ),
            (
                &["test-a", "b"],
                "/test-a/b",
                "/test_a.slice/test_a-b.slice",
                "test_a-b.slice",
            ),
            (
                &["kubepods", "burstable", "pod12-ab"],
                "/kubepods/burstable/pod12-ab",
                of_pod,
                "kubepods-burstable-pod12_ab.slice",
            ),
        ];
        for (parts, cgroupfs, systemd, slice) in cases {
            let name = name(parts);
            assert_eq!(name.to_cgroupfs(), cgroupfs);
            assert_eq!(
                (name.to_systemd().as_str(), name.slice().as_str()),
                (systemd, slice)
            );
            assert_eq!(CgroupName::from_cgroupfs(cgroupfs), name);
            assert_eq!(CgroupName::from_systemd(systemd), name);
        }
        assert_eq!(CgroupName::from_systemd("kubelet.slice"), name(&["kubelet"]));
        assert_eq!(name(&["a", "b"]).parent(), name(&["a"]));
        assert_eq!(name(&[]).parent(), name(&[]));
        assert_eq!(name(&["a", "b c"]).to_string(), r#"["a" "b c"]"#);
    }
}
