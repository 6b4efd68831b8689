//! The programs that the host must have.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The programs that the fixture runs.
#[derive(Clone, Debug)]
pub(super) struct Tools {
    /// The folder of containerd's programs, if it is not the host's containerd. runc may be there, too.
    bin_dir: Option<PathBuf>,
    pub(super) containerd: PathBuf,
    pub(super) ctr: PathBuf,
    pub(super) runc: PathBuf,
    pub(super) busybox: PathBuf,
    pub(super) cni_bin_dir: PathBuf,
}

/// The folder of containerd 2's programs.
const BIN_DIR_2: &str = "KUBELET_TESTING_CONTAINERD_2";
/// The default: below the user's cache folder, as in the unpacked package.
const CACHED_2: &str = "kubelet-testing/containerd-2/usr/bin";

impl Tools {
    /// Finds all of them, in `PATH` and in the folders of administration programs.
    ///
    /// # Errors
    ///
    /// All that is missing, in one sentence.
    pub(super) fn find() -> Result<Self, String> {
        Self::find_with(None)
    }

    /// The same, with the programs for host ports.
    pub(super) fn find_with_iptables() -> Result<Self, String> {
        let tools = Self::find()?;
        let missing = |what: &str| Err(format!("{what}, for host ports"));
        match in_path("iptables") {
            None => missing("iptables"),
            Some(_) if !tools.cni_bin_dir.join("portmap").exists() => missing("the CNI plugin portmap"),
            Some(_) => Ok(tools),
        }
    }

    /// The same, with the programs of another containerd, version 2.
    pub(super) fn find_2() -> Result<Self, String> {
        let folder = |variable| {
            env::var_os(variable)
                .filter(|value| !value.is_empty())
                .map(PathBuf::from)
        };
        let cache = || folder("XDG_CACHE_HOME").or_else(|| Some(folder("HOME")?.join(".cache")));
        let bin_dir = folder(BIN_DIR_2).or_else(|| Some(cache()?.join(CACHED_2)));
        Self::find_with(bin_dir)
            .map_err(|missing| format!("{missing}; of containerd 2, in {BIN_DIR_2} or ~/.cache/{CACHED_2}"))
    }

    fn find_with(bin_dir: Option<PathBuf>) -> Result<Self, String> {
        let of_containerd = |program: &str| match &bin_dir {
            Some(folder) => Some(folder.join(program)).filter(|path| path.is_file()),
            None => in_path(program),
        };
        let mut missing = Vec::new();
        if !rustix::process::geteuid().is_root() {
            missing.push("to be root");
        }
        let mut look = |name: &'static str, found: Option<PathBuf>| {
            if found.is_none() {
                missing.push(name);
            }
            found.unwrap_or_default()
        };
        look(
            "containerd-shim-runc-v2",
            of_containerd("containerd-shim-runc-v2"),
        );
        let tools = Self {
            containerd: look("containerd", of_containerd("containerd")),
            ctr: look("ctr", of_containerd("ctr")),
            runc: look("runc", of_containerd("runc").or_else(|| in_path("runc"))),
            busybox: look("busybox (busybox-static)", in_path("busybox")),
            cni_bin_dir: look(
                "CNI plugins (containernetworking-plugins)",
                ["/usr/lib/cni", "/opt/cni/bin"]
                    .into_iter()
                    .map(PathBuf::from)
                    .find(|folder| folder.join("bridge").exists()),
            ),
            bin_dir,
        };
        if missing.is_empty() {
            Ok(tools)
        } else {
            Err(missing.join(", "))
        }
    }

    /// The `PATH` for containerd; its own shim and runc come first.
    pub(super) fn search_path(&self) -> OsString {
        let Some(bin_dir) = &self.bin_dir else {
            return search_path();
        };
        let mut path = bin_dir.clone().into_os_string();
        path.push(":");
        path.push(search_path());
        path
    }
}

/// `PATH` and the folders of administration programs.
fn search_path() -> OsString {
    let mut path = env::var_os("PATH").unwrap_or_default();
    if !path.is_empty() {
        path.push(":");
    }
    path.push("/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin");
    path
}

fn in_path(program: &str) -> Option<PathBuf> {
    env::split_paths(&search_path())
        .map(|folder| folder.join(program))
        .find(|path: &PathBuf| Path::is_file(path))
}

/// Whether this runs in continuous integration, where a missing program is a failure.
pub(super) fn in_ci() -> bool {
    env::var("CI").is_ok_and(|value| !matches!(value.as_str(), "" | "0" | "false"))
}
