//! The settings of the kernel on which a kubelet relies (`setupKernelTunables`).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::{Error, Result};

/// The settings and their values, with the names of the kubelet's constants.
const WANTED: [(&str, i64); 6] = [
    // `VMOvercommitMemoryAlways`
    ("vm/overcommit_memory", 1),
    // `VMPanicOnOOMInvokeOOMKiller`
    ("vm/panic_on_oom", 0),
    // `KernelPanicRebootTimeout`, in seconds
    ("kernel/panic", 10),
    // `KernelPanicOnOopsAlways`
    ("kernel/panic_on_oops", 1),
    // `RootMaxKeysSetting`
    ("kernel/keys/root_maxkeys", 1_000_000),
    // `RootMaxBytesSetting`
    ("kernel/keys/root_maxbytes", 25_000_000),
];

/// The kernel's settings for overcommitted memory, for panics, and for the keys of root.
///
/// The kubelet counts on a kernel that gives processes the memory that they ask for, kills a process if memory runs out, and
/// restarts the host ten seconds after a panic. Each container may need a key of root.
///
/// With `protectKernelDefaults` the kubelet only checks them ([`check`](Self::check)); otherwise it sets them
/// ([`set`](Self::set)).
#[derive(Clone, Debug)]
pub struct KernelSettings {
    proc_sys: PathBuf,
}

/// One setting with another value than a kubelet needs.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KernelSetting {
    /// The name as a path below `/proc/sys`.
    pub name: &'static str,
    /// The value that a kubelet needs.
    pub expected: i64,
    /// The value that the kernel has.
    pub actual: i64,
}

impl KernelSettings {
    /// The settings of this host.
    pub fn of_this_host() -> Self {
        Self::below("/proc/sys")
    }

    /// The settings in this folder, in place of `/proc/sys`.
    pub fn below(proc_sys: impl Into<PathBuf>) -> Self {
        Self {
            proc_sys: proc_sys.into(),
        }
    }

    /// Reports settings that a kubelet would have to change (`KernelTunableError`). Changes nothing. Blocks while it reads files.
    ///
    /// # Errors
    ///
    /// [`Error::KernelSettings`] with each setting that differs or cannot be read.
    pub fn check(&self) -> Result<()> {
        let mut problems = Vec::new();
        for (name, expected) in WANTED {
            match self.read(name) {
                Ok(actual) if actual != expected => problems.push(format!(
                    "invalid kernel flag: {name}, expected value: {expected}, actual value: {actual}"
                )),
                Ok(_) => {}
                Err(error) => problems.push(error.to_string()),
            }
        }
        reported(problems)
    }

    /// Sets the settings that differ, and returns them as they were before (`KernelTunableModify`). Each setting is tried, also
    /// if another one fails. Blocks while it reads and writes files.
    ///
    /// # Errors
    ///
    /// [`Error::KernelSettings`] with each setting that cannot be read or set.
    pub fn set(&self) -> Result<Vec<KernelSetting>> {
        let (mut changed, mut problems) = (Vec::new(), Vec::new());
        for (name, expected) in WANTED {
            match self.set_one(name, expected) {
                Ok(before) => changed.extend(before),
                Err(error) => problems.push(error.to_string()),
            }
        }
        reported(problems)?;
        Ok(changed)
    }

    fn set_one(&self, name: &'static str, expected: i64) -> Result<Option<KernelSetting>> {
        let actual = self.read(name)?;
        if actual == expected {
            return Ok(None);
        }
        tracing::info!(flag = name, expected, actual, "Updating kernel flag");
        let file = self.proc_sys.join(name);
        // Without `create`: a kernel that does not have the setting gets no file.
        let written = fs::OpenOptions::new()
            .write(true)
            .truncate(true)
            .open(&file)
            .and_then(|mut opened| io::Write::write_all(&mut opened, expected.to_string().as_bytes()));
        written.map_err(|source| failed("write", &file, source))?;
        Ok(Some(KernelSetting {
            name,
            expected,
            actual,
        }))
    }

    fn read(&self, name: &str) -> Result<i64> {
        let file = self.proc_sys.join(name);
        let text = fs::read_to_string(&file).map_err(|source| failed("read", &file, source))?;
        let no_number = |error| failed("read", &file, io::Error::new(io::ErrorKind::InvalidData, error));
        text.trim().parse().map_err(no_number)
    }
}

fn failed(what: &'static str, file: &Path, source: io::Error) -> Error {
    Error::File {
        what,
        file: file.to_owned(),
        source,
    }
}

fn reported(problems: Vec<String>) -> Result<()> {
    match problems.is_empty() {
        true => Ok(()),
        false => Err(Error::KernelSettings {
            problems: problems.join(", "),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel(values: &[(&str, &str)]) -> (tempfile::TempDir, KernelSettings) {
        let folder = tempfile::tempdir().unwrap();
        for (name, value) in values {
            let file = folder.path().join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, format!("{value}\n")).unwrap();
        }
        let settings = KernelSettings::below(folder.path());
        (folder, settings)
    }

    /// A host as Debian installs it: three settings differ.
    const USUAL: [(&str, &str); 6] = [
        ("vm/overcommit_memory", "0"),
        ("vm/panic_on_oom", "0"),
        ("kernel/panic", "0"),
        ("kernel/panic_on_oops", "0"),
        ("kernel/keys/root_maxkeys", "1000000"),
        ("kernel/keys/root_maxbytes", "25000000"),
    ];

    #[test]
    fn a_check_names_each_setting_that_differs_and_changes_none() {
        let (folder, settings) = kernel(&USUAL);
        assert_eq!(
            settings.check().unwrap_err().to_string(),
            "kernel settings: invalid kernel flag: vm/overcommit_memory, expected value: 1, actual value: 0, invalid kernel \
             flag: kernel/panic, expected value: 10, actual value: 0, invalid kernel flag: kernel/panic_on_oops, expected \
             value: 1, actual value: 0"
        );
        assert_eq!(
            fs::read_to_string(folder.path().join("kernel/panic")).unwrap(),
            "0\n"
        );
    }

    #[test]
    fn settings_that_differ_are_set() {
        let (folder, settings) = kernel(&USUAL);
        let changed: Vec<_> = settings.set().unwrap();
        let changed: Vec<_> = changed
            .iter()
            .map(|it| (it.name, it.actual, it.expected))
            .collect();
        assert_eq!(
            changed,
            [
                ("vm/overcommit_memory", 0, 1),
                ("kernel/panic", 0, 10),
                ("kernel/panic_on_oops", 0, 1)
            ]
        );
        assert_eq!(
            fs::read_to_string(folder.path().join("kernel/panic")).unwrap(),
            "10"
        );
        settings.check().unwrap();
        assert!(settings.set().unwrap().is_empty());
    }

    #[test]
    fn a_setting_that_the_kernel_does_not_have_is_named_and_the_others_are_set() {
        let (folder, settings) = kernel(&USUAL[..4]);
        let error = settings.set().unwrap_err().to_string();
        assert!(
            error.contains("root_maxkeys") && error.contains("root_maxbytes"),
            "{error}"
        );
        assert_eq!(
            fs::read_to_string(folder.path().join("vm/overcommit_memory")).unwrap(),
            "1"
        );
        assert!(!folder.path().join("kernel/keys").exists());
        assert!(settings.check().is_err());
    }

    #[test]
    fn a_value_that_is_no_number_is_an_error() {
        let (_folder, settings) = kernel(&[("vm/overcommit_memory", "much")]);
        let error = settings.check().unwrap_err().to_string();
        assert!(
            error.contains("overcommit_memory") && error.contains("invalid digit"),
            "{error}"
        );
    }
}
