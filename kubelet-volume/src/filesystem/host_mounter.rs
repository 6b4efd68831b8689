//! Mounts on this host.

use std::ffi::CString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use kubelet_core::Disk;
use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind, mount_change, mount_remount, unmount,
};
use tokio::time::timeout;

use super::commands::run;
use super::mount_table;
use super::path_error::reason;
use crate::{Error, MountPoint, Mounter, Result};

/// How long the server of a network file system may take before its mount is removed by force (`unMountTimeout`).
const FORCE_AFTER: Duration = Duration::from_secs(60);

/// Mounts on this host, in the mount namespace of the agent (`mount.Mounter`).
///
/// Bind mounts, `tmpfs` and `hugetlbfs` need only system calls. For other file systems it runs `mount` and `umount`, with
/// the arguments of the kubelet: the host needs their helpers, e.g. `mount.nfs`. What is mounted is read from the mount
/// table of the kernel, which never waits for a server.
///
/// The container runtime must see these mounts: both use the same mount namespace, or the mounts of the root folder are
/// shared.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostMounter {
    disk: Disk,
}

impl HostMounter {
    /// Mounts with the permissions of this process.
    pub fn new() -> Self {
        Self::default()
    }

    /// Which thread calls the kernel; by default another thread.
    #[must_use]
    pub fn disk(mut self, disk: Disk) -> Self {
        self.disk = disk;
        self
    }

    /// Makes mounts below `dir` visible in other mount namespaces, if they are not yet (`MakeRShared`): containers then get
    /// what is mounted for them later, and the node gets what a CSI driver mounts in a container.
    ///
    /// # Errors
    ///
    /// [`Error::NotPermitted`] if this process may not mount.
    ///
    /// # Cancel safety
    ///
    /// When the call is dropped, the folder may still become shared.
    pub async fn share(&self, dir: &Path) -> Result<()> {
        let path = dir.to_owned();
        let shared = self.disk.run(move || {
            let path = path.canonicalize()?;
            if mount_table::is_shared(&mount_table::text()?, &path) {
                return Ok(());
            }
            tracing::info!(path = %path.display(), "Bind-mounting with shared mount propagation");
            mount_bind(&path, &path)?;
            Ok(mount_change(
                &path,
                MountPropagationFlags::SHARED | MountPropagationFlags::REC,
            )?)
        });
        shared.await.map_err(|error| {
            let message = format!(
                "failed to make {} a shared mount: {}",
                dir.display(),
                reason(&error)
            );
            match error.kind() {
                io::ErrorKind::PermissionDenied => Error::NotPermitted { message },
                _ => Error::failed(message),
            }
        })
    }

    async fn table(&self) -> Result<Vec<mount_table::Mount>> {
        let table = self.disk.run(mount_table::read).await;
        table.map_err(unreadable)
    }

    async fn resolved(&self, path: &Path) -> Result<PathBuf> {
        let path = path.to_owned();
        let resolved = self.disk.run(move || Ok(mount_table::as_in_table(&path))).await;
        resolved.map_err(|error| Error::failed(error.to_string()))
    }

    /// With system calls, if they know all options.
    async fn mount_by_call(&self, request: &Request) -> Option<Result<()>> {
        let (flags, data) = request.flags();
        let Request { source, target, .. } = request.clone();
        let is_bind = flags.contains(MountFlags::BIND);
        let mounted = if is_bind && data.is_empty() {
            self.disk.run(move || bind(&source, &target, flags)).await
        } else if !is_bind && matches!(request.fs_type.as_str(), "tmpfs" | "hugetlbfs") {
            let fs_type = request.fs_type.clone();
            self.disk
                .run(move || mount_in_memory(&source, &target, &fs_type, flags, &data))
                .await
        } else {
            return None;
        };
        Some(mounted.map_err(|error| {
            let message = request.failure(&reason(&error), "");
            match error.kind() {
                io::ErrorKind::PermissionDenied => Error::NotPermitted { message },
                _ => Error::failed(message),
            }
        }))
    }
}

#[async_trait]
impl Mounter for HostMounter {
    async fn mount(&self, source: &str, target: &Path, fs_type: &str, options: &[String]) -> Result<()> {
        let request = Request {
            source: source.to_owned(),
            target: target.to_owned(),
            fs_type: fs_type.to_owned(),
            options: options.to_owned(),
        };
        match self.mount_by_call(&request).await {
            Some(mounted) => mounted,
            None => request.run_mount().await,
        }
    }

    async fn unmount(&self, target: &Path) -> Result<()> {
        let found = {
            let (table, target) = (self.table().await?, self.resolved(target).await?);
            table.into_iter().rev().find(|mount| mount.point.path == target)
        };
        let Some(found) = found else { return Ok(()) };
        if needs_a_server(&found.point.fs_type) {
            return unmount_from_server(target).await;
        }
        let path = target.to_owned();
        let unmounted = self
            .disk
            .run(move || match unmount(&path, UnmountFlags::NOFOLLOW) {
                Ok(()) | Err(Errno::INVAL | Errno::NOENT) => Ok(()),
                Err(error) => Err(error.into()),
            });
        unmounted
            .await
            .map_err(|error| unmount_failed(target, &reason(&error), ""))
    }

    async fn is_mount_point(&self, path: &Path) -> Result<bool> {
        let path = path.to_owned();
        let is_mounted = self
            .disk
            .run(move || mount_table::is_mounted(&mount_table::as_in_table(&path)));
        is_mounted.await.map_err(unreadable)
    }

    async fn mounts(&self, below: &Path) -> Result<Vec<MountPoint>> {
        let (table, below) = (self.table().await?, self.resolved(below).await?);
        let points = table.into_iter().map(|mount| mount.point);
        Ok(points.filter(|point| point.path.starts_with(&below)).collect())
    }

    async fn references(&self, path: &Path) -> Result<Vec<PathBuf>> {
        let path = path.to_owned();
        let found = self.disk.run(move || match path.canonicalize() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            resolved => Ok(mount_table::references(&mount_table::read()?, &resolved?)),
        });
        found.await.map_err(unreadable)
    }
}

fn unreadable(error: io::Error) -> Error {
    Error::io(mount_table::TABLE, error)
}

#[derive(Clone)]
struct Request {
    source: String,
    target: PathBuf,
    fs_type: String,
    options: Vec<String>,
}

impl Request {
    /// The options that are flags, and the others.
    fn flags(&self) -> (MountFlags, String) {
        let (mut flags, mut others) = (MountFlags::empty(), Vec::new());
        for option in &self.options {
            match flag(option) {
                Some(flag) => flags |= flag,
                None => others.push(option.as_str()),
            }
        }
        (flags, others.join(","))
    }

    /// The arguments of `mount` (`MakeMountArgs`).
    fn arguments(&self, options: &[String]) -> Vec<String> {
        let mut arguments = Vec::new();
        if !self.fs_type.is_empty() {
            arguments.extend(["-t".to_owned(), self.fs_type.clone()]);
        }
        if !options.is_empty() {
            arguments.extend(["-o".to_owned(), options.join(",")]);
        }
        if !self.source.is_empty() {
            arguments.push(self.source.clone());
        }
        arguments.push(self.target.display().to_string());
        arguments
    }

    fn failure(&self, why: &str, output: &str) -> String {
        let arguments = self.arguments(&self.options).join(" ");
        format!(
            "mount failed: {why}\nMounting command: mount\nMounting arguments: {arguments}\nOutput: {output}"
        )
    }

    /// A bind mount ignores options: these are set by a second call (`MakeBindOpts`).
    async fn run_mount(&self) -> Result<()> {
        if !self.options.iter().any(|option| option == "bind") {
            return self.run_mount_with(&self.options).await;
        }
        let with = |first: &[&str], others: bool| {
            let first = first.iter().map(|option| (*option).to_owned());
            let others = self.options.iter().filter(|_| others);
            let others = others.filter(|option| !matches!(option.as_str(), "bind" | "remount"));
            first.chain(others.cloned()).collect::<Vec<_>>()
        };
        let of_network = ["bind", "_netdev"];
        let is_of_network = self.options.iter().any(|option| option == "_netdev");
        let first = if is_of_network {
            &of_network[..]
        } else {
            &of_network[..1]
        };
        self.run_mount_with(&with(first, false)).await?;
        self.run_mount_with(&with(&["bind", "remount"], true)).await
    }

    async fn run_mount_with(&self, options: &[String]) -> Result<()> {
        let request = Self {
            options: options.to_owned(),
            ..self.clone()
        };
        let arguments = self.arguments(options);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let (why, output) = match run("mount", &arguments).await {
            Ok(ended) if ended.is_success() => return Ok(()),
            Ok(ended) => (ended.text(), ended.output),
            Err(why) => (why, String::new()),
        };
        Err(Error::failed(request.failure(&why, &output)))
    }
}

fn flag(option: &str) -> Option<MountFlags> {
    Some(match option {
        "bind" => MountFlags::BIND,
        "ro" => MountFlags::RDONLY,
        "nodev" => MountFlags::NODEV,
        "noexec" => MountFlags::NOEXEC,
        "nosuid" => MountFlags::NOSUID,
        "noatime" => MountFlags::NOATIME,
        "nodiratime" => MountFlags::NODIRATIME,
        "relatime" => MountFlags::RELATIME,
        "strictatime" => MountFlags::STRICTATIME,
        "sync" => MountFlags::SYNCHRONOUS,
        "defaults" | "rw" | "dev" | "exec" | "suid" | "async" | "_netdev" => MountFlags::empty(),
        _ => return None,
    })
}

/// The kernel ignores flags when it binds: they are set afterwards, with those of the source (`bindMountSensitive`).
fn bind(source: &str, target: &Path, flags: MountFlags) -> io::Result<()> {
    use rustix::fs::StatVfsMountFlags as Found;

    mount_bind(source, target)?;
    let found = rustix::fs::statvfs(source)?.f_flag;
    let mut flags = flags.difference(MountFlags::BIND);
    for (found_flag, flag) in [
        (Found::RDONLY, MountFlags::RDONLY),
        (Found::NODEV, MountFlags::NODEV),
        (Found::NOEXEC, MountFlags::NOEXEC),
        (Found::NOSUID, MountFlags::NOSUID),
        (Found::NOATIME, MountFlags::NOATIME),
        (Found::NODIRATIME, MountFlags::NODIRATIME),
        (Found::RELATIME, MountFlags::RELATIME),
    ] {
        if found.contains(found_flag) {
            flags |= flag;
        }
    }
    mount_remount(target, flags | MountFlags::BIND, "")?;
    Ok(())
}

/// An option that the kernel does not know yet is left out: `noswap` (before Linux 6.4).
fn mount_in_memory(
    source: &str,
    target: &Path,
    fs_type: &str,
    flags: MountFlags,
    data: &str,
) -> io::Result<()> {
    let with = |data: &str| {
        let data = CString::new(data).map_err(|_| Errno::INVAL)?;
        mount(source, target, fs_type, flags, data.as_c_str())
    };
    let without: Vec<&str> = data.split(',').filter(|option| *option != "noswap").collect();
    let mounted = match with(data) {
        Err(Errno::INVAL) if data.contains("noswap") => with(&without.join(",")),
        mounted => mounted,
    };
    Ok(mounted?)
}

/// Whether to unmount it may wait for a server, or for a process of its own.
fn needs_a_server(fs_type: &str) -> bool {
    let fs_type = fs_type.split('.').next().unwrap_or_default();
    matches!(
        fs_type,
        "nfs" | "nfs4" | "cifs" | "smb3" | "ceph" | "9p" | "afs" | "glusterfs" | "fuse" | "lustre"
    )
}

/// `UnmountWithForce`
async fn unmount_from_server(target: &Path) -> Result<()> {
    let path = target.display().to_string();
    let plain = timeout(FORCE_AFTER, run("umount", &[&path])).await;
    let ended = match plain {
        Ok(ended) => ended,
        Err(_) => {
            tracing::warn!(path, "Unmounting takes too long, it is forced");
            run("umount", &["-f", &path]).await
        }
    };
    match ended {
        Ok(ended) if ended.is_success() || ended.output.contains("not mounted") => Ok(()),
        Ok(ended) => Err(unmount_failed(target, &ended.text(), &ended.output)),
        Err(why) => Err(unmount_failed(target, &why, "")),
    }
}

fn unmount_failed(target: &Path, why: &str, output: &str) -> Error {
    let target = target.display();
    Error::failed(format!(
        "unmount failed: {why}\nUnmounting arguments: {target}\nOutput: {output}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(source: &str, fs_type: &str, options: &[&str]) -> Request {
        Request {
            source: source.to_owned(),
            target: PathBuf::from("/no/such/target"),
            fs_type: fs_type.to_owned(),
            options: options.iter().map(|option| (*option).to_owned()).collect(),
        }
    }

    #[test]
    fn options_are_flags_or_data() {
        for (options, flags, data) in [
            (&["bind", "ro"][..], MountFlags::BIND | MountFlags::RDONLY, ""),
            (
                &["size=1024", "noswap", "noexec"],
                MountFlags::NOEXEC,
                "size=1024,noswap",
            ),
            (&["rw", "_netdev"], MountFlags::empty(), ""),
        ] {
            assert_eq!(request("", "", options).flags(), (flags, data.to_owned()));
        }
    }

    #[tokio::test]
    async fn a_failed_mount_says_what_was_tried() {
        let nfs = request("server:/export", "nfs", &["ro", "vers=4"]);
        assert_eq!(
            nfs.failure("exit status 32", "mount.nfs: no\n"),
            "mount failed: exit status 32\nMounting command: mount\nMounting arguments: -t nfs -o ro,vers=4 \
             server:/export /no/such/target\nOutput: mount.nfs: no\n"
        );
        let mounter = HostMounter::new();
        let target = Path::new("/no/such/target");
        let options = ["bind".to_owned()];
        let error = mounter.mount("/no/such/source", target, "", &options).await;
        let text = error.unwrap_err().to_string();
        assert!(text.starts_with("mount failed: "), "{text}");
        assert!(
            text.contains("Mounting arguments: -o bind /no/such/source /no/such/target"),
            "{text}"
        );
        // The programs of the host say the rest.
        let error = mounter.mount("nas:/x", target, "nfs", &["ro".to_owned()]).await;
        let text = error.unwrap_err().to_string();
        assert!(text.starts_with("mount failed: e"), "{text}");
        let arguments =
            "\nMounting command: mount\nMounting arguments: -t nfs -o ro nas:/x /no/such/target\nOutput: ";
        assert!(text.contains(arguments), "{text}");
        mounter.unmount(target).await.unwrap();
        assert!(!mounter.is_mount_point(target).await.unwrap());
        assert!(mounter.is_mount_point(Path::new("/proc")).await.unwrap());
        assert!(mounter.references(target).await.unwrap().is_empty());
    }
}
