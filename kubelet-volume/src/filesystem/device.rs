//! File systems on block devices: made, checked, mounted and grown with the programs of the host (`SafeFormatAndMount`,
//! `ResizeFs`).

use std::path::Path;

use super::commands::run;
use crate::{Error, Mounter, Result};

/// What `fsck` returns if it has corrected all errors, and if it could not.
const CORRECTED: i32 = 1;
const UNCORRECTED: i32 = 4;
/// What `blkid` returns for an empty device.
const NOTHING_FOUND: i32 = 2;
/// Something that no file system may replace.
const PARTITIONS: &str = "unknown data, probably partitions";

/// Mounts a device. An empty one is formatted first, unless it is read-only (`FormatAndMount`).
pub(crate) async fn format_and_mount(
    mounter: &dyn Mounter,
    device: &str,
    target: &Path,
    fs_type: &str,
    options: &[String],
) -> Result<()> {
    let read_only = options.iter().any(|option| option == "ro");
    let fs_type = if fs_type.is_empty() { "ext4" } else { fs_type };
    match format_of(device).await?.as_str() {
        "" if read_only => {
            return Err(Error::failed(format!(
                "cannot mount unformatted disk {device} as we are manipulating it in read-only mode"
            )));
        }
        "" => format(device, target, fs_type, options).await?,
        found => {
            if found != fs_type {
                tracing::warn!(
                    device,
                    fs_type,
                    found,
                    "A device has another file system than expected"
                );
            }
            if !read_only {
                check(device).await?;
            }
        }
    }
    let options: Vec<String> = options.iter().cloned().chain(["defaults".to_owned()]).collect();
    mounter.mount(device, target, fs_type, &options).await
}

/// The file system on the device; empty if there is none (`GetDiskFormat`).
async fn format_of(device: &str) -> Result<String> {
    let failed = |why: String| Error::failed(format!("failed to get disk format of disk {device}: {why}"));
    let arguments = ["-p", "-s", "TYPE", "-s", "PTTYPE", "-o", "export", device];
    let ended = run("blkid", &arguments).await.map_err(failed)?;
    if ended.code() == Some(NOTHING_FOUND) {
        return Ok(String::new());
    }
    if !ended.is_success() {
        return Err(failed(ended.text()));
    }
    Ok(format_in(&ended.output))
}

fn format_in(output: &str) -> String {
    let value = |key: &str| {
        let mut lines = output.lines().filter_map(|line| line.split_once('='));
        lines.find(|(name, _)| *name == key).map(|(_, value)| value)
    };
    match value("PTTYPE").filter(|partitions| !partitions.is_empty()) {
        Some(_) => PARTITIONS.to_owned(),
        None => value("TYPE").unwrap_or_default().to_owned(),
    }
}

async fn format(device: &str, target: &Path, fs_type: &str, options: &[String]) -> Result<()> {
    let arguments: &[&str] = match fs_type {
        "ext3" | "ext4" => &["-F", "-m0", device],
        "xfs" => &["-f", device],
        _ => &[device],
    };
    tracing::info!(device, fs_type, "A device is empty, it is formatted");
    let (why, output) = match run(&format!("mkfs.{fs_type}"), arguments).await {
        Ok(ended) if ended.is_success() => return Ok(()),
        Ok(ended) => (ended.text(), ended.output),
        Err(why) => (why, String::new()),
    };
    let (target, options) = (target.display(), options.join(","));
    Err(Error::failed(format!(
        "format of disk {device:?} failed: type:({fs_type:?}) target:(\"{target}\") options:({options:?}) \
         errcode:({why}) output:({output}) "
    )))
}

/// `checkAndRepairFilesystem`
async fn check(device: &str) -> Result<()> {
    match run("fsck", &["-a", device]).await {
        Ok(ended) if ended.code() == Some(UNCORRECTED) => Err(Error::failed(format!(
            "'fsck' found errors on device {device} but could not correct them: {}",
            ended.output
        ))),
        Ok(ended) => {
            if ended.code() == Some(CORRECTED) {
                tracing::info!(device, "fsck corrected the errors of a device");
            } else if !ended.is_success() {
                let output = ended.output;
                tracing::warn!(device, output, "fsck failed");
            }
            Ok(())
        }
        Err(why) => {
            tracing::warn!(device, why, "Cannot run fsck");
            Ok(())
        }
    }
}

/// Grows a mounted file system to the size of its device. Returns whether there is one (`ResizeFs.Resize`).
pub(crate) async fn grow(device: &str, mount_path: &Path) -> Result<bool> {
    let path = mount_path.display().to_string();
    let found = format_of(device).await?;
    let (program, arguments): (&str, &[&str]) = match found.as_str() {
        "" => return Ok(false),
        "ext3" | "ext4" => ("resize2fs", &[device]),
        "xfs" => ("xfs_growfs", &["-d", &path]),
        "btrfs" => ("btrfs", &["filesystem", "resize", "max", &path]),
        found => {
            return Err(Error::failed(format!(
                "ResizeFS.Resize - resize of format {found} is not supported for device {device} mounted at {path}"
            )));
        }
    };
    let (why, output) = match run(program, arguments).await {
        Ok(ended) if ended.is_success() => return Ok(true),
        Ok(ended) => (ended.text(), ended.output),
        Err(why) => (why, String::new()),
    };
    Err(Error::failed(format!(
        "resize of device {device} failed: {why}. {program} output: {output}"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_are_never_formatted() {
        for (output, expected) in [
            ("", ""),
            ("DEVNAME=/dev/x\nTYPE=ext4\n", "ext4"),
            ("PTTYPE=gpt\n", PARTITIONS),
            ("TYPE=ext4\nPTTYPE=dos\n", PARTITIONS),
        ] {
            assert_eq!(format_in(output), expected);
        }
    }
}
