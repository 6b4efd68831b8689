//! The cgroup of this process.

use std::path::Path;

/// The cgroup that this process runs in, from `proc`, usually `/proc`: what the kubelet shows as system container `kubelet`
/// if `kubeletCgroups` is empty (`getContainer`). `None` if it is unknown, the root, or outside of the cgroups that are
/// visible here.
///
/// Blocks while it reads a file of the kernel.
pub fn own_cgroup(proc: &Path) -> Option<String> {
    of_process(&std::fs::read_to_string(proc.join("self/cgroup")).ok()?)
}

/// The cgroup in a `/proc/PID/cgroup`. With version 1, CPU and memory must have the same one; systemd's own hierarchy
/// is preferred.
fn of_process(text: &str) -> Option<String> {
    let of = |controller: &str| {
        text.lines().find_map(|line| {
            let (_, line) = line.split_once(':')?;
            let (controllers, name) = line.split_once(':')?;
            controllers
                .split(',')
                .any(|one| one == controller)
                .then_some(name)
        })
    };
    let name = match (of("cpu"), of("memory")) {
        (Some(cpu), Some(memory)) if cpu == memory => of("name=systemd").unwrap_or(cpu),
        (None, None) => of("")?,
        _ => return None,
    };
    let is_inside = name.len() > 1 && !name.split('/').any(|part| part == "..");
    is_inside.then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_both_versions() {
        let of = |text: &str| of_process(text);
        assert_eq!(
            of("0::/system.slice/agent.service\n").as_deref(),
            Some("/system.slice/agent.service")
        );
        assert_eq!(of("0::/\n"), None);
        assert_eq!(of("0::/../other\n"), None);
        let v1 = "3:memory:/a\n2:cpu,cpuacct:/a\n";
        assert_eq!(of(v1).as_deref(), Some("/a"));
        assert_eq!(
            of(&format!("{v1}1:name=systemd:/b.service\n0::/c\n")).as_deref(),
            Some("/b.service")
        );
        assert_eq!(of("3:memory:/a\n2:cpu,cpuacct:/\n"), None, "not one hierarchy");
    }
}
