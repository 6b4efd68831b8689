//! Project quotas of the kernel, by the programs `xfs_quota` and `lsattr` (`fsquota/common`), on XFS and ext4.

use std::fs::{self, File};
use std::io::{Seek as _, Write as _};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;

use async_trait::async_trait;
use kubelet_core::Disk;
use rustix::fs::{MemfdFlags, memfd_create};
use tokio::process::Command;

use super::{ProjectId, ProjectQuotas, ProjectUsage};
use crate::filesystem::commands::run;
use crate::filesystem::path_error::reason;
use crate::{Error, MountPoint, Result};

/// Where the program may be (`quotaCmds`).
const PROGRAMS: [&str; 3] = ["/sbin/xfs_quota", "/usr/sbin/xfs_quota", "/bin/xfs_quota"];
/// Shows the project of a folder (`lsattrCmd`).
const LSATTR: &str = "/usr/bin/lsattr";
/// The largest limit of each file system in bytes (`linuxSupportedFilesystems`).
const LARGEST: [(&str, u64); 2] = [("xfs", (1 << 63) - 1), ("ext4", (1 << 58) - 1)];
/// The unit in which the program reports used space.
const BLOCK: u64 = 1024;

/// Project quotas of XFS and ext4 by the programs `xfs_quota` of the package `xfsprogs` and `lsattr` of `e2fsprogs`. Without
/// `xfs_quota`, no file system has quotas.
///
/// The file system must be mounted with the option `prjquota`; an ext4 needs the feature `project`, too.
#[derive(Clone, Copy, Debug, Default)]
pub struct QuotaPrograms {
    disk: Disk,
}

impl QuotaPrograms {
    /// With the program of this host.
    pub fn new() -> Self {
        Self::default()
    }

    /// Which thread does file work; by default another thread.
    #[must_use]
    pub fn disk(mut self, disk: Disk) -> Self {
        self.disk = disk;
        self
    }

    /// Runs commands of the program, and returns its output. The program gets a mount table with only this file system,
    /// because it would wait for each that hangs (`runXFSQuotaCommand`).
    async fn run(&self, file_system: &MountPoint, commands: &[String]) -> Result<String> {
        let line = table_line(file_system);
        let started = self.disk.run(move || {
            let mut table = File::from(memfd_create("mounts", MemfdFlags::CLOEXEC)?);
            table.write_all(line.as_bytes())?;
            table.rewind()?;
            Ok((program(), table))
        });
        let (program, table) = started.await.map_err(|error| Error::failed(reason(&error)))?;
        let program = program.ok_or_else(|| Error::failed("no xfs_quota program found"))?;
        let mut command = Command::new(program);
        command.args(["-t", "/proc/self/fd/0", "-P/dev/null", "-D/dev/null", "-x", "-f"]);
        command.arg(&file_system.path);
        for text in commands {
            command.args(["-c", text]);
        }
        command.stdin(Stdio::from(table)).kill_on_drop(true);
        let ended = command.output().await;
        let ended = ended.map_err(|error| Error::failed(format!("{program}: {}", reason(&error))))?;
        if !ended.status.success() {
            let (status, output) = (ended.status, String::from_utf8_lossy(&ended.stderr));
            return Err(Error::failed(format!("{program}: {status}: {}", output.trim())));
        }
        Ok(String::from_utf8_lossy(&ended.stdout).into_owned())
    }
}

#[async_trait]
impl ProjectQuotas for QuotaPrograms {
    async fn is_counting(&self, file_system: &MountPoint) -> Result<bool> {
        let is_known = LARGEST.iter().any(|(name, _)| *name == file_system.fs_type);
        let found = self.disk.run(|| Ok(program()));
        let has_program = matches!(found.await, Ok(Some(_)));
        if !is_known || !has_program {
            return Ok(false);
        }
        let state = self.run(file_system, &["state -p".to_owned()]).await?;
        Ok(state.contains("Accounting: ON"))
    }

    async fn set_limit(
        &self,
        file_system: &MountPoint,
        project: ProjectId,
        limit: Option<u64>,
    ) -> Result<()> {
        let mut largest = LARGEST.iter().filter(|(name, _)| *name == file_system.fs_type);
        let largest = largest.next().map_or(u64::MAX, |(_, largest)| *largest);
        let bytes = limit.unwrap_or_default().min(largest);
        let command = format!("limit -p bhard={bytes} bsoft={bytes} {project}");
        self.run(file_system, &[command]).await.map(drop)
    }

    async fn assign(&self, file_system: &MountPoint, project: ProjectId, dir: &Path) -> Result<()> {
        let command = format!("project -s -p {} {project}", dir.display());
        self.run(file_system, &[command]).await.map(drop)
    }

    async fn project(&self, dir: &Path) -> Result<Option<ProjectId>> {
        let path = dir.display().to_string();
        let ended = run(LSATTR, &["-pd", &path]).await.map_err(Error::failed)?;
        if !ended.is_success() {
            let status = ended.text();
            return Err(Error::failed(format!(
                "{LSATTR}: {status}: {}",
                ended.output.trim()
            )));
        }
        let first = ended.output.split_whitespace().next();
        let project = first.and_then(|word| word.parse().ok());
        let project: ProjectId = project
            .ok_or_else(|| Error::failed(format!("unable to parse lsattr output {:?}", ended.output)))?;
        Ok(Some(project).filter(|project| *project != 0))
    }

    async fn usage(&self, file_system: &MountPoint, project: ProjectId) -> Result<ProjectUsage> {
        let of = |what| format!("quota -p -N -n -v {what} {project}");
        let report = self.run(file_system, &[of("-b"), of("-i")]).await?;
        parse_usage(&report).ok_or_else(|| Error::failed(format!("unable to parse quota output {report:?}")))
    }
}

/// The program, if the host has it (`getXFSQuotaCmd`).
fn program() -> Option<&'static str> {
    let mut programs = PROGRAMS.into_iter();
    programs.find(|path| fs::metadata(path).is_ok_and(|found| found.permissions().mode() & 0o100 != 0))
}

/// A line as in `/proc/self/mounts`.
fn table_line(file_system: &MountPoint) -> String {
    let MountPoint {
        source,
        path,
        fs_type,
        options,
    } = file_system;
    let (source, path) = (escaped(source), escaped(&path.to_string_lossy()));
    format!("{source} {path} {fs_type} {} 0 0\n", options.join(","))
}

fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for letter in text.chars() {
        match letter {
            ' ' | '\t' | '\n' | '\\' => escaped.push_str(&format!("\\{:03o}", u32::from(letter))),
            _ => escaped.push(letter),
        }
    }
    escaped
}

/// Two reports: of the used blocks, and of the used inodes. Each begins with the device; after a long name it goes on in
/// the next line, which is indented. XFS reports nothing about a project that has no files.
fn parse_usage(report: &str) -> Option<ProjectUsage> {
    let mut reports: Vec<Vec<&str>> = Vec::new();
    for line in report.lines().filter(|line| !line.trim().is_empty()) {
        let words = line.split_whitespace();
        match reports.last_mut() {
            Some(last) if line.starts_with([' ', '\t']) => last.extend(words),
            _ => reports.push(words.collect()),
        }
    }
    let used = |words: &Vec<&str>| words.get(1)?.parse::<u64>().ok();
    match reports.as_slice() {
        [] => Some(ProjectUsage::default()),
        [blocks, inodes] => Some(ProjectUsage {
            bytes: used(blocks)?.checked_mul(BLOCK)?,
            inodes: used(inodes)?,
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_parsed() {
        let of = |bytes, inodes| Some(ProjectUsage { bytes, inodes });
        for (report, expected) in [
            ("", of(0, 0)),
            (
                "/dev/loop0                20          0          0  00 [--------] /mnt\n\
                 /dev/loop0                 4          0          0  00 [--------] /mnt\n",
                of(20 * 1024, 4),
            ),
            (
                "/dev/mapper/a-name-that-is-long\n                 7     0    0  00 [--------] /mnt\n\
                 /dev/mapper/a-name-that-is-long\n                 3     0    0  00 [--------] /mnt\n",
                of(7 * 1024, 3),
            ),
            ("/dev/loop0 20 0 0 00 [--------] /mnt\n", None),
            ("xfs_quota: cannot find mount point\n/dev/loop0 20\n", None),
        ] {
            assert_eq!(parse_usage(report), expected, "{report}");
        }
    }

    #[test]
    fn the_mount_table_of_the_program_has_one_line() {
        let line = table_line(&MountPoint {
            source: "/dev/sdb1".to_owned(),
            path: "/srv/a b".into(),
            fs_type: "xfs".to_owned(),
            options: vec!["rw".to_owned(), "prjquota".to_owned()],
        });
        assert_eq!(line, "/dev/sdb1 /srv/a\\040b xfs rw,prjquota 0 0\n");
    }

    #[tokio::test]
    async fn other_file_systems_have_no_quotas() {
        let memory = MountPoint {
            source: "tmpfs".to_owned(),
            path: "/tmp".into(),
            fs_type: "tmpfs".to_owned(),
            options: Vec::new(),
        };
        assert!(!QuotaPrograms::new().is_counting(&memory).await.unwrap());
    }
}
