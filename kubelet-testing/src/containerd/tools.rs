//! What the host must have.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The programs that the fixture runs.
#[derive(Clone, Debug)]
pub(super) struct Tools {
    pub(super) containerd: PathBuf,
    pub(super) ctr: PathBuf,
    pub(super) runc: PathBuf,
    pub(super) busybox: PathBuf,
    pub(super) cni_bin_dir: PathBuf,
}

impl Tools {
    /// Looks for all of them, in `PATH` and where administration programs are kept.
    ///
    /// # Errors
    ///
    /// All that is missing, in one sentence.
    pub(super) fn find() -> Result<Self, String> {
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
        look("containerd-shim-runc-v2", in_path("containerd-shim-runc-v2"));
        let tools = Self {
            containerd: look("containerd", in_path("containerd")),
            ctr: look("ctr", in_path("ctr")),
            runc: look("runc", in_path("runc")),
            busybox: look("busybox (busybox-static)", in_path("busybox")),
            cni_bin_dir: look(
                "CNI plugins (containernetworking-plugins)",
                ["/usr/lib/cni", "/opt/cni/bin"]
                    .into_iter()
                    .map(PathBuf::from)
                    .find(|folder| folder.join("bridge").exists()),
            ),
        };
        if missing.is_empty() {
            Ok(tools)
        } else {
            Err(missing.join(", "))
        }
    }
}

/// `PATH`, and where administration programs are kept.
pub(super) fn search_path() -> OsString {
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

/// Whether this runs in continuous integration, where what is missing is a failure.
pub(super) fn in_ci() -> bool {
    env::var("CI").is_ok_and(|value| !matches!(value.as_str(), "" | "0" | "false"))
}
