//! Removes everything that one of our containerds made on the host, whether it still runs or was killed long ago.
//!
//! It does not call containerd, which may be dead or broken. It finds everything from the fixture's folder.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, Signal, kill_process};

use super::config::Layout;
use super::tools::Tools;
use crate::cgroups;

/// How long to wait for killed processes.
const GONE_WITHIN: Duration = Duration::from_secs(10);
/// Where runc keeps its records under `ctr run` by default.
const RUNC_ROOT_OF_CTR: &str = "/run/containerd/runc";
/// Where CNI keeps the results of all networks.
const CNI_RESULTS: &str = "/var/lib/cni/results";

/// Ends everything, then removes it. It continues after errors.
pub(super) fn remove_all(layout: &Layout, network: &str, tools: &Tools) {
    // containerd goes first, so that nothing new is started.
    kill_all(&layout.folder, "containerd");
    let bundles = bundles(layout);
    let deleting: Vec<_> = bundles
        .iter()
        .flat_map(|bundle| bundle.delete(layout, tools))
        .collect();
    for mut delete in deleting {
        let _ = delete.wait();
    }
    kill_all(&layout.folder, "containerd-shim-runc-v2");
    for bundle in &bundles {
        bundle.remove_shim_socket();
        bundle.remove_pod_cgroup();
    }
    // It looks for the sandboxes in the folder, which is a mount itself.
    remove_network(layout, network, tools);
    unmount_all(&layout.folder);
    remove_folder(&layout.folder);
}

/// A task's folder in containerd's state.
struct Bundle {
    path: PathBuf,
    namespace: String,
    id: String,
}

fn bundles(layout: &Layout) -> Vec<Bundle> {
    let mut bundles = Vec::new();
    for namespace in children(&layout.bundles()) {
        for path in children(&namespace) {
            let name = |path: &Path| {
                path.file_name()
                    .unwrap_or_default()
                    .to_string_lossy()
                    .into_owned()
            };
            bundles.push(Bundle {
                namespace: name(&namespace),
                id: name(&path),
                path,
            });
        }
    }
    bundles
}

impl Bundle {
    /// Lets runc kill what runs and remove its cgroups.
    fn delete(&self, layout: &Layout, tools: &Tools) -> Option<std::process::Child> {
        let root = [layout.runc_root(), PathBuf::from(RUNC_ROOT_OF_CTR)]
            .into_iter()
            .map(|root| root.join(&self.namespace))
            .find(|root| root.join(&self.id).exists())?;
        let mut runc = Command::new(&tools.runc);
        runc.arg("--root").arg(root).args(["delete", "--force", &self.id]);
        quiet(&mut runc).spawn().ok()
    }

    /// A shim that was killed leaves its socket, outside of our folder.
    fn remove_shim_socket(&self) {
        if let Some(address) = self.shim_address()
            && let Some(path) = address.trim().strip_prefix("unix://")
        {
            let _ = fs::remove_file(path);
        }
    }

    /// containerd 2 keeps it with other parameters of the shim.
    fn shim_address(&self) -> Option<String> {
        if let Ok(address) = fs::read_to_string(self.path.join("address")) {
            return Some(address);
        }
        let parameters = fs::read(self.path.join("bootstrap.json")).ok()?;
        let parameters: serde_json::Value = serde_json::from_slice(&parameters).ok()?;
        Some(parameters.get("address")?.as_str()?.to_owned())
    }

    /// runc removes the container's cgroup, but not the pod's cgroup above it.
    fn remove_pod_cgroup(&self) {
        let Some(path) = fs::read(self.path.join("config.json"))
            .ok()
            .and_then(|config| serde_json::from_slice::<serde_json::Value>(&config).ok())
            .and_then(|config| Some(config.pointer("/linux/cgroupsPath")?.as_str()?.to_owned()))
        else {
            return;
        };
        // Remove only the pod's cgroup. Others on this host share what is above.
        if let Some((above, _container)) = path.trim_start_matches('/').rsplit_once('/')
            && above.contains('/')
        {
            cgroups::remove(above);
        }
    }
}

/// Kills the processes of this program with a path in our folder among their arguments, and waits for their end.
fn kill_all(folder: &Path, program: &str) {
    let deadline = Instant::now() + GONE_WITHIN;
    loop {
        let pids = processes(folder, program);
        if pids.is_empty() || Instant::now() > deadline {
            return;
        }
        for pid in pids {
            let _ = kill_process(pid, Signal::KILL);
        }
        sleep(Duration::from_millis(5));
    }
}

fn processes(folder: &Path, program: &str) -> Vec<Pid> {
    let is_ours = |command_line: &[u8]| {
        let mut words = command_line.split(|byte| *byte == 0).map(String::from_utf8_lossy);
        let name = words.next().unwrap_or_default();
        Path::new(&*name).file_name().is_some_and(|name| name == program)
            && words.any(|word| Path::new(&*word).starts_with(folder))
    };
    children(Path::new("/proc"))
        .iter()
        // A zombie has no command line.
        .filter(|process| fs::read(process.join("cmdline")).is_ok_and(|line| is_ours(&line)))
        .filter_map(|process| Pid::from_raw(process.file_name()?.to_str()?.parse().ok()?))
        .collect()
}

/// Root file systems, `/dev/shm`s and network namespaces.
fn unmount_all(folder: &Path) {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let points = mounts.lines().filter_map(|line| line.split(' ').nth(4));
    let points: Vec<_> = points
        .map(|point| PathBuf::from(point.replace("\\040", " ")))
        .collect();
    // Later mounts may be on top of earlier ones.
    for point in points.iter().rev().filter(|point| point.starts_with(folder)) {
        let _ = unmount(point.as_path(), UnmountFlags::DETACH);
    }
}

fn remove_network(layout: &Layout, network: &str, tools: &Tools) {
    if Path::new("/sys/class/net").join(network).exists() {
        let mut delete = Command::new(&tools.busybox);
        delete.args(["ip", "link", "delete", network]);
        let _ = quiet(&mut delete).status();
    }
    // The loopback network has the same name everywhere, so its results are found by sandbox.
    let sandboxes = children(&layout.sandboxes());
    let sandboxes: HashSet<_> = sandboxes
        .iter()
        .filter_map(|path| path.file_name()?.to_str())
        .collect();
    for result in children(Path::new(CNI_RESULTS)) {
        let name = result.file_name().unwrap_or_default().to_string_lossy();
        // `NETWORK-SANDBOX-INTERFACE`
        if name
            .rsplit('-')
            .nth(1)
            .is_some_and(|sandbox| sandboxes.contains(sandbox))
        {
            let _ = fs::remove_file(&result);
        }
    }
}

/// Removes the folder. It retries while the kernel still holds something for a moment.
fn remove_folder(folder: &Path) {
    let deadline = Instant::now() + GONE_WITHIN;
    while fs::remove_dir_all(folder).is_err() && folder.exists() && Instant::now() < deadline {
        sleep(Duration::from_millis(20));
        unmount_all(folder);
    }
}

fn quiet(command: &mut Command) -> &mut Command {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
}

fn children(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}
