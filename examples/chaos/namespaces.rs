//! A world of its own: namespaces for mounts, processes and the network, a cgroup and a folder.
//!
//! The program runs three times, one inside the other. The outermost makes the folder, the cgroup and the namespaces, and
//! removes the first two at the end. The second is the first process of the namespaces: it prepares them and collects the
//! processes that lost their parent, such as shims of a killed containerd. When it ends, the kernel ends all others. The
//! third does the work. When the outermost is killed, the kernel kills `unshare`, and so the second.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_bind, mount_change};
use rustix::process::{WaitOptions, wait};
use tokio::process::Command;

use crate::cgroups::{self, Cgroups, hierarchies};
use crate::folder::{self, RunFolder, folder};
use crate::kernel;
use crate::stop::Signals;

/// Which of the three this is.
const STAGE: &str = "CHAOS_STAGE";

/// The node's address.
pub(crate) const ADDRESS: &str = "10.99.0.1";

/// Folders of the host with fixed names that a node uses. Each run has its own in their place.
const OWN: [&str; 6] = [
    "/var/lib/kubelet",
    "/var/log/pods",
    "/var/log/containers",
    "/var/lib/cni",
    "/run/containerd",
    "/run/netns",
];

/// The stage that this process is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Outside,
    First,
    Inside,
}

impl Stage {
    pub(crate) fn of_this_process() -> Self {
        match std::env::var(STAGE).as_deref() {
            Ok("first") => Self::First,
            Ok("inside") => Self::Inside,
            _ => Self::Outside,
        }
    }
}

/// Runs this program inside, in a folder that is new or empty, and returns its exit code. Without `keep` the folder is removed
/// after success.
pub(crate) async fn enter(folder: Option<&Path>, keep: bool) -> Result<ExitCode, String> {
    let signals = Signals::new();
    let folder = RunFolder::claim(folder, &OWN)?;
    let cgroups = match Cgroups::new(&hierarchies()) {
        Ok(cgroups) => cgroups,
        Err(error) => {
            folder.remove();
            return Err(error);
        }
    };
    let missing: Vec<_> = OWN.into_iter().filter(|path| !Path::new(path).exists()).collect();
    for path in &missing {
        fs::create_dir_all(path).map_err(|error| format!("{path}: {error}"))?;
    }
    let mut inside = Command::new("setpriv")
        // The kernel kills `unshare` when this thread ends, which is the main thread.
        .args(["--pdeathsig", "KILL", "--", "unshare"])
        .args(["--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"])
        .args(["--propagation", "private", "--"])
        .arg(std::env::current_exe().unwrap())
        .args(std::env::args_os().skip(1))
        .env(STAGE, "first")
        .env(folder::VARIABLE, folder.path())
        .env(cgroups::VARIABLE, cgroups.name())
        // Everything temporary is below the folder, such as that of containerd.
        .env("TMPDIR", folder.path().join("tmp"))
        // Ctrl-C is for this process alone.
        .process_group(0)
        .spawn()
        .map_err(|error| format!("setpriv and unshare, of util-linux, are needed: {error}"))?;
    let (is_good, end) = tokio::select! {
        status = inside.wait() => match status {
            Ok(status) => (status.success(), format!("the run has ended: {status}")),
            Err(error) => (false, format!("the run is lost: {error}")),
        },
        signal = signals.end_at_once(folder.path()) => {
            let _ = inside.kill().await;
            (false, format!("the run was ended by {signal}"))
        }
    };
    drop(cgroups);
    let logs = folder.logs();
    println!("{end}");
    if is_good && !keep {
        folder.remove();
    } else {
        println!("the logs are in {}", logs.display());
    }
    // Another run may have a mount there, and would lose it with the folder.
    if !missing.is_empty() {
        println!("these empty folders of the host are new, and stay: {}", missing.join(", "));
    }
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Prepares the namespaces as their first process, and runs this program in them.
pub(crate) fn be_first() -> ExitCode {
    let folder = folder();
    fs::create_dir(folder.join("tmp")).unwrap();
    mount_change("/", MountPropagationFlags::SHARED | MountPropagationFlags::REC).unwrap();
    for path in OWN {
        if path.starts_with("/run/") {
            mount("tmpfs", path, "tmpfs", MountFlags::empty(), None).unwrap();
        } else {
            let own = folder.join(path.trim_start_matches('/'));
            fs::create_dir_all(&own).unwrap();
            mount_bind(&own, path).unwrap();
        }
    }
    kernel::replace(&folder.join("proc/sys")).unwrap();
    let address = format!("{ADDRESS}/24");
    for arguments in [
        "link set lo up",
        // A kernel may lack dummy interfaces, but containers need bridges.
        "link add node0 type bridge",
        &format!("addr add {address} dev node0"),
        "link set node0 up",
        "route add default via 10.99.0.254 dev node0",
    ] {
        let status = std::process::Command::new("ip").args(arguments.split(' ')).status();
        assert!(status.is_ok_and(|status| status.success()), "ip {arguments}");
    }
    #[expect(clippy::zombie_processes, reason = "the loop waits for all processes")]
    let inside = std::process::Command::new(std::env::current_exe().unwrap())
        .args(std::env::args_os().skip(1))
        .env(STAGE, "inside")
        .spawn()
        .unwrap();
    loop {
        let ended = wait(WaitOptions::empty());
        if let Ok(Some((pid, status))) = ended
            && pid.as_raw_nonzero().get() as u32 == inside.id()
        {
            return if status.exit_status() == Some(0) { ExitCode::SUCCESS } else { ExitCode::FAILURE };
        }
    }
}
