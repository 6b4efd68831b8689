//! A cgroup for processes of the host, as files (`createManager`). It has no limits.

use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use super::processes::own_hierarchies;
use crate::{Error, Result};

/// A cgroup that holds processes of the host: of the kubelet, or of the system. On cgroup v1 it is a folder in each hierarchy.
#[derive(Clone, Debug)]
pub struct Cgroup {
    /// Absolute, without a slash at the end.
    name: String,
    folders: Folders,
}

#[derive(Clone, Debug)]
enum Folders {
    /// The root of each hierarchy.
    V1(Vec<PathBuf>),
    /// The root of the only hierarchy.
    V2(PathBuf),
}

impl Cgroup {
    /// The cgroup of this name on the host whose files are below `host` (`/` for this one). It is created when the first process
    /// comes. Blocks while it reads files.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if the name leaves the tree of cgroups; [`Error::File`] if the cgroups of the host cannot be read.
    pub fn new(host: &Path, name: &str) -> Result<Self> {
        let parts: Vec<&str> = name.split('/').filter(|part| !part.is_empty()).collect();
        if parts.iter().any(|part| matches!(*part, "." | "..")) {
            return Err(Error::Invalid {
                what: format!("cgroup {name:?}"),
                why: "the name must not contain . or ..".to_owned(),
            });
        }
        let mounts = host.join("sys/fs/cgroup");
        let folders = match mounts.join("cgroup.controllers").exists() {
            true => Folders::V2(mounts),
            false => Folders::V1(
                own_hierarchies(host)?
                    .into_iter()
                    .map(|it| mounts.join(it))
                    .collect(),
            ),
        };
        Ok(Self {
            name: format!("/{}", parts.join("/")),
            folders,
        })
    }

    /// The name, with a slash at its begin.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Moves a process into the cgroup, which is created if it does not exist (`Apply`).
    pub(super) fn add(&self, pid: u32) -> Result<()> {
        let below = self.name.trim_start_matches('/');
        match &self.folders {
            Folders::V1(hierarchies) => {
                for hierarchy in hierarchies {
                    let folder = hierarchy.join(below);
                    create(&folder)?;
                    if hierarchy.join("cpuset.cpus").exists() {
                        inherit_cpuset(hierarchy, Path::new(below))?;
                    }
                    write(&folder.join("cgroup.procs"), &pid.to_string())?;
                }
            }
            Folders::V2(root) => {
                create(&root.join(below))?;
                delegate(root, Path::new(below));
                write(&root.join(below).join("cgroup.procs"), &pid.to_string())?;
            }
        }
        Ok(())
    }

    /// The processes in the root cgroup of the host (`GetPids`).
    pub(super) fn processes_of_root(&self) -> Result<Vec<u32>> {
        let root = match &self.folders {
            Folders::V1(hierarchies) => {
                let devices = hierarchies.iter().find(|it| it.ends_with("devices"));
                devices.or(hierarchies.first()).cloned().unwrap_or_default()
            }
            Folders::V2(root) => root.clone(),
        };
        let text = read(&root.join("cgroup.procs"))?;
        Ok(text.lines().filter_map(|line| line.parse().ok()).collect())
    }
}

/// A cpuset without CPUs or memory nodes accepts no process. It gets those of its parent.
fn inherit_cpuset(hierarchy: &Path, below: &Path) -> Result<()> {
    let mut folder = hierarchy.to_owned();
    for part in below.components() {
        let Component::Normal(part) = part else { continue };
        let child = folder.join(part);
        for file in ["cpuset.cpus", "cpuset.mems"] {
            if read(&child.join(file))?.trim().is_empty() {
                write(&child.join(file), read(&folder.join(file))?.trim())?;
            }
        }
        folder = child;
    }
    Ok(())
}

/// Turns on all controllers from the root down to the parent of the cgroup, so that its usage is measured. A controller that
/// cannot be turned on is left off: the cgroup holds its processes without it.
fn delegate(root: &Path, below: &Path) {
    let mut folder = root.to_owned();
    for part in below.components() {
        let Component::Normal(part) = part else { continue };
        let controllers = read(&folder.join("cgroup.controllers")).unwrap_or_default();
        for controller in controllers.split_whitespace() {
            if let Err(error) = write(&folder.join("cgroup.subtree_control"), &format!("+{controller}")) {
                tracing::debug!(%error, controller, "a controller stays off");
            }
        }
        folder.push(part);
    }
}

fn create(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).map_err(|source| failed("create", folder, source))
}

pub(super) fn read(file: &Path) -> Result<String> {
    fs::read_to_string(file).map_err(|source| failed("read", file, source))
}

fn write(file: &Path, text: &str) -> Result<()> {
    fs::write(file, text).map_err(|source| failed("write", file, source))
}

pub(super) fn failed(what: &'static str, file: &Path, source: io::Error) -> Error {
    Error::File {
        what,
        file: file.to_owned(),
        source,
    }
}
