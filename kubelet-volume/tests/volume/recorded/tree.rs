//! The files of a pod.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

use super::normal;

/// A recorded file.
#[derive(Deserialize)]
pub(super) struct Entry {
    pub(super) path: String,
    #[serde(rename = "type")]
    kind: String,
    mode: String,
    uid: u32,
    gid: u32,
    to: Option<String>,
    pub(super) content: Option<String>,
    mount: Option<Mount>,
}

#[derive(Deserialize)]
struct Mount {
    #[serde(rename = "type")]
    kind: String,
    source: String,
    options: Vec<String>,
    #[serde(rename = "super")]
    of_super_block: Vec<String>,
}

/// All files by path, each in one line.
pub(super) struct Tree(BTreeMap<String, String>);

impl Tree {
    /// Without what containers and sub-paths add, and without folders that the pod's sync makes.
    pub(super) fn recorded(entries: &[Entry], manifest: &Value) -> Self {
        let spec = &manifest["spec"];
        let containers = [&spec["initContainers"], &spec["containers"]];
        let containers = containers.into_iter().filter_map(Value::as_array).flatten();
        let mounts =
            containers.flat_map(|container| container["volumeMounts"].as_array().into_iter().flatten());
        let sub_paths: Vec<&str> = mounts.filter_map(|mount| mount["subPath"].as_str()).collect();
        let is_plugins = |entry: &&Entry| {
            let parts: Vec<&str> = entry.path.split('/').collect();
            match parts.as_slice() {
                ["." | "volumes" | "plugins"] | ["volume-subpaths", ..] => false,
                ["volumes", "kubernetes.io~empty-dir", _, _, ..] => false,
                ["volumes", _, _, name] if entry.kind == "dir" => !sub_paths.contains(name),
                _ => true,
            }
        };
        let all = entries.iter().filter(is_plugins);
        Self(
            all.map(|entry| (normal(Path::new(&entry.path)), entry.line()))
                .collect(),
        )
    }

    /// Fails if a file goes meanwhile.
    pub(super) fn read(pod_dir: &Path) -> io::Result<Self> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let mut tree = BTreeMap::new();
        for path in try_files_below(pod_dir)? {
            let full = pod_dir.join(&path);
            tree.insert(normal(&path), line_of(&full, &mounts)?);
        }
        tree.remove("volumes");
        tree.remove("plugins");
        Ok(Self(tree))
    }

    pub(super) fn differences(&self, found: &Self) -> Vec<String> {
        let missing = self.0.iter().filter(|(path, _)| !found.0.contains_key(*path));
        let missing = missing.map(|(path, line)| format!("missing {path} {line}"));
        let others = found.0.iter().filter_map(|(path, line)| match self.0.get(path) {
            Some(expected) if expected == line => None,
            Some(expected) => Some(format!("{path}: {line} instead of {expected}")),
            None => Some(format!("surplus {path} {line}")),
        });
        missing.chain(others).collect()
    }
}

impl Entry {
    fn line(&self) -> String {
        let to = self.to.as_ref().map(|to| normal(Path::new(to)));
        let mode = u32::from_str_radix(self.mode.trim_start_matches("0o"), 8).unwrap();
        let mount = self.mount.as_ref().map(|mount| {
            let of_super_block = mount.of_super_block.iter().map(String::as_str);
            mount_line(
                &mount.kind,
                &mount.source,
                mount.options.iter().map(String::as_str),
                of_super_block,
            )
        });
        line(
            &self.kind,
            mode,
            (self.uid, self.gid),
            to,
            self.content.clone(),
            mount,
        )
    }
}

fn line_of(path: &Path, mounts: &str) -> io::Result<String> {
    let found = fs::symlink_metadata(path)?;
    let kind = match found.file_type() {
        kind if kind.is_dir() => "dir",
        kind if kind.is_symlink() => "link",
        kind if kind.is_socket() => "socket",
        _ => "file",
    };
    let to = match kind {
        "link" => Some(normal(&fs::read_link(path)?)),
        _ => None,
    };
    let content = match kind {
        "file" => Some(fs::read_to_string(path)?),
        _ => None,
    };
    let mount = mounts
        .lines()
        .rev()
        .find(|line| line.split(' ').nth(4) == path.to_str());
    let mount = mount.map(|line| {
        let (own, of_file_system) = line.split_once(" - ").unwrap();
        let mut parts = of_file_system.split(' ');
        let (kind, source) = (parts.next().unwrap(), parts.next().unwrap());
        let options = own.split(' ').nth(5).unwrap().split(',');
        mount_line(kind, source, options, parts.next().unwrap().split(','))
    });
    Ok(line(
        kind,
        found.mode() & 0o7777,
        (found.uid(), found.gid()),
        to,
        content,
        mount,
    ))
}

fn line(
    kind: &str,
    mode: u32,
    owner: (u32, u32),
    to: Option<String>,
    content: Option<String>,
    mount: Option<String>,
) -> String {
    let to = to.map(|to| format!(" -> {to}")).unwrap_or_default();
    let content = content.map(|content| format!(" {content:?}")).unwrap_or_default();
    let mount = mount.map(|mount| format!(" mount {mount}")).unwrap_or_default();
    format!("{kind} {mode:o} {}:{}{to}{content}{mount}", owner.0, owner.1)
}

/// A file system in memory with its limits; of the host's file systems only what the mount sets.
fn mount_line<'a>(
    kind: &str,
    source: &str,
    options: impl Iterator<Item = &'a str>,
    of_super_block: impl Iterator<Item = &'a str>,
) -> String {
    let mut options: Vec<&str> = options.collect();
    options.sort_unstable();
    if kind != "tmpfs" {
        options.retain(|option| matches!(*option, "ro" | "rw"));
        return options.join(",");
    }
    let limits = of_super_block.filter(|option| option.starts_with("size=") || *option == "noswap");
    let mut limits: Vec<&str> = limits.collect();
    limits.sort_unstable();
    format!("{kind} {source} {} {}", options.join(","), limits.join(","))
}

/// The paths of all files and folders below the folder.
pub(super) fn files_below(dir: &Path) -> Vec<PathBuf> {
    try_files_below(dir).unwrap()
}

fn try_files_below(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut pending = vec![PathBuf::new()];
    while let Some(path) = pending.pop() {
        for entry in fs::read_dir(dir.join(&path))? {
            let entry = entry?;
            let path = path.join(entry.file_name());
            if entry.file_type()?.is_dir() {
                pending.push(path.clone());
            }
            found.push(path);
        }
    }
    Ok(found)
}
