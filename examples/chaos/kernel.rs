//! The kernel's settings that an agent changes, which are of the whole host.
//!
//! A kubelet sets them when it starts (`setupKernelTunables`), and no namespace keeps them apart. So inside, each is a file of
//! the run with the host's value. An agent reads and writes it as usual, and the kernel keeps its settings.

use std::fs;
use std::io;
use std::path::Path;

use rustix::mount::mount_bind;

/// Where the kernel has its settings.
const SETTINGS: &str = "/proc/sys";
/// Those that a kubelet writes.
const WRITTEN: [&str; 6] = [
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
];

/// Puts files in the folder in the place of the settings, in this mount namespace.
pub(crate) fn replace(folder: &Path) -> io::Result<()> {
    for name in copy(Path::new(SETTINGS), folder)? {
        mount_bind(folder.join(name), Path::new(SETTINGS).join(name))?;
    }
    Ok(())
}

/// Copies the settings that this kernel has, and returns their names.
fn copy(settings: &Path, folder: &Path) -> io::Result<Vec<&'static str>> {
    let mut copied = Vec::new();
    for name in WRITTEN {
        // The length of such a file is 0, so it is read to its end.
        let Ok(text) = fs::read(settings.join(name)) else { continue };
        let own = folder.join(name);
        fs::create_dir_all(own.parent().unwrap_or(folder))?;
        fs::write(own, text)?;
        copied.push(name);
    }
    Ok(copied)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_settings_that_the_kernel_has_are_copied() {
        let [settings, folder] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        fs::create_dir_all(settings.path().join("kernel")).unwrap();
        fs::write(settings.path().join("kernel/panic"), "0\n").unwrap();
        fs::write(settings.path().join("kernel/hostname"), "host\n").unwrap();
        assert_eq!(copy(settings.path(), folder.path()).unwrap(), ["kernel/panic"]);
        assert_eq!(fs::read_to_string(folder.path().join("kernel/panic")).unwrap(), "0\n");
        assert!(!folder.path().join("kernel/hostname").exists());
    }
}
