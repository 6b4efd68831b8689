//! The three disks of a VM: its root file system, what it is to run, and its exit code.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use kubelet_cri::verbs::ContainerSpec;

use crate::api::Disk;

const SECTOR: usize = 512;
/// The program of an image, which the `command` of a pod replaces.
const ENTRY_POINT: &str = "/entrypoint";

/// The disks in the folder of a container.
pub(crate) struct Disks {
    /// `/dev/vda`: a copy of the image's. A file system that shares blocks (XFS, Btrfs) copies nothing.
    rootfs: PathBuf,
    /// `/dev/vdb`: a shell script with the environment and the command of the container, for the guest to read.
    config: PathBuf,
    /// `/dev/vdc`: where the guest writes its exit code, in decimal digits, before it powers off.
    exit: PathBuf,
}

impl Disks {
    pub(crate) fn in_dir(dir: &Path) -> Self {
        Self { rootfs: dir.join("rootfs"), config: dir.join("config"), exit: dir.join("exit") }
    }

    /// Makes them. Blocks.
    pub(crate) fn make(&self, image: &Path, spec: &ContainerSpec, resolv_conf: &str) -> io::Result<()> {
        fs::copy(image, &self.rootfs)?;
        let mut script = script(spec, resolv_conf);
        // A disk is whole sectors. Empty lines change nothing in a script.
        script.resize(script.len().next_multiple_of(SECTOR), b'\n');
        File::create(&self.config)?.write_all(&script)?;
        File::create(&self.exit)?.write_all(&[0; SECTOR])
    }

    pub(crate) fn devices(&self) -> [Disk<'_>; 3] {
        let disk = |path, readonly| Disk { path, readonly, image_type: "Raw" };
        [disk(&self.rootfs, false), disk(&self.config, true), disk(&self.exit, false)]
    }

    /// What the guest wrote; `None` if it wrote no exit code.
    pub(crate) fn exit_code(&self) -> io::Result<Option<i32>> {
        let written = fs::read(&self.exit)?;
        let digits = written.split(|byte| !byte.is_ascii_digit()).next().unwrap_or_default();
        Ok(std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok()))
    }
}

fn script(spec: &ContainerSpec, resolv_conf: &str) -> Vec<u8> {
    let mut script = Vec::new();
    let dir = spec.working_dir.as_deref().unwrap_or(Path::new("/"));
    for (name, value) in [
        ("hostname", spec.pod.hostname.as_bytes()),
        ("resolv_conf", resolv_conf.as_bytes()),
        ("working_dir", dir.as_os_str().as_encoded_bytes()),
    ] {
        line(&mut script, name, value);
    }
    for variable in &spec.env {
        line(&mut script, &format!("export {}", variable.name), &variable.value);
    }
    script.extend_from_slice(b"set --");
    let own = [ENTRY_POINT.to_owned()];
    let command: &[String] = if spec.command.is_empty() { &own[..] } else { &spec.command };
    for word in command.iter().chain(&spec.args) {
        script.push(b' ');
        quote(&mut script, word.as_bytes());
    }
    script.push(b'\n');
    script
}

fn line(script: &mut Vec<u8>, name: &str, value: &[u8]) {
    script.extend_from_slice(name.as_bytes());
    script.push(b'=');
    quote(script, value);
    script.push(b'\n');
}

/// As one word of a shell.
fn quote(script: &mut Vec<u8>, word: &[u8]) {
    script.push(b'\'');
    for byte in word {
        match byte {
            b'\'' => script.extend_from_slice(br"'\''"),
            byte => script.push(*byte),
        }
    }
    script.push(b'\'');
}

/// Whether a shell can set it: a pod may have others, such as `my.name`.
pub(crate) fn is_variable(name: &str) -> bool {
    let is_word = |c: char| c == '_' || c.is_ascii_alphanumeric();
    name.chars().all(is_word) && name.chars().next().is_some_and(|first| !first.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use kubelet_cri::verbs::{ContainerKey, EnvVar};

    use super::*;

    #[test]
    fn a_shell_reads_the_script_and_writes_the_code() {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("image");
        fs::write(&image, "root").unwrap();
        let mut spec = ContainerSpec::new(ContainerKey::new("u", "main", 0), "web");
        spec.pod.hostname = "web-0".into();
        spec.env.push(EnvVar { name: "GREETING".into(), value: b"it's $HOME\n\"x\"".to_vec() });
        spec.command = vec!["echo".into(), "a b".into()];
        spec.args = vec!["*".into()];
        let disks = Disks::in_dir(dir.path());
        disks.make(&image, &spec, "nameserver 10.0.0.10\n").unwrap();
        assert_eq!(fs::metadata(&disks.config).unwrap().len() % 512, 0);
        assert_eq!(disks.exit_code().unwrap(), None);
        let init = format!(
            ". {}; printf '%s|' \"$hostname\" \"$resolv_conf\" \"$working_dir\" \"$GREETING\" \"$@\"; echo 42 > {}",
            disks.config.display(),
            disks.exit.display()
        );
        let output = std::process::Command::new("sh").args(["-c", &init]).output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        let expected = "web-0|nameserver 10.0.0.10\n|/|it's $HOME\n\"x\"|echo|a b|*|";
        assert_eq!(said, expected);
        assert_eq!(disks.exit_code().unwrap(), Some(42));
        fs::write(&disks.exit, [b"7\n".as_slice(), &[0; 510]].concat()).unwrap();
        assert_eq!(disks.exit_code().unwrap(), Some(7));
        for (name, fits) in [("A_1", true), ("1A", false), ("my.name", false), ("", false)] {
            assert_eq!(is_variable(name), fits, "{name}");
        }
    }
}
