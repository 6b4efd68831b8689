//! `/dev/kmsg`.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use rustix::fs::OFlags;
use rustix::io::Errno;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::KernelLog;
use crate::error::{Error, Result};
use crate::readiness::register;

/// A record has at most 8 KiB (`CONSOLE_EXT_LOG_MAX`).
const RECORD: usize = 8192;

/// The kernel's log as `/dev/kmsg` has it: one record for each read.
#[derive(Debug)]
pub struct Kmsg {
    path: PathBuf,
    file: AsyncFd<File>,
}

impl Kmsg {
    /// Opens the log. Messages from now on are returned; the kubelet reads from the start, so it reports an old kill again
    /// after each restart.
    ///
    /// # Errors
    ///
    /// If it cannot be opened; in a user namespace it is usually not permitted.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref().to_owned();
        let opened = || {
            let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
            let mut file = OpenOptions::new().read(true).custom_flags(flags).open(&path)?;
            file.seek(SeekFrom::End(0))?;
            register(file, Interest::READABLE)
        };
        let file = opened().map_err(|source| Error::File {
            path: path.clone(),
            source,
        })?;
        Ok(Self { path, file })
    }
}

#[async_trait]
impl KernelLog for Kmsg {
    async fn next_message(&mut self) -> Result<Option<String>> {
        let mut record = [0; RECORD];
        loop {
            let read = self
                .file
                .async_io(Interest::READABLE, |mut file| file.read(&mut record))
                .await;
            match read {
                Ok(0) => return Ok(None),
                Ok(length) => {
                    if let Some(message) = message_of(&String::from_utf8_lossy(&record[..length])) {
                        return Ok(Some(message.to_owned()));
                    }
                }
                Err(error) if error.raw_os_error() == Some(Errno::PIPE.raw_os_error()) => {
                    tracing::warn!("short read of the kernel's log: messages were overwritten");
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(source) => {
                    return Err(Error::File {
                        path: self.path.clone(),
                        source,
                    });
                }
            }
        }
    }
}

/// `priority,sequence,time,flags;message`, then lines that start with a space.
pub(super) fn message_of(record: &str) -> Option<&str> {
    let (_, rest) = record.split_once(';')?;
    Some(rest.lines().next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_has_one_message() {
        for (record, message) in [
            (
                "6,339,5140900,-;NET: Registered protocol family 10\n",
                Some("NET: Registered protocol family 10"),
            ),
            (
                "30,340,5690716,-;udevd[80]: starting; version 181\n",
                Some("udevd[80]: starting; version 181"),
            ),
            (
                "6,1,2,-;usb: new device\n SUBSYSTEM=usb\n DEVICE=c189:1\n",
                Some("usb: new device"),
            ),
            ("6,1,2,-;", Some("")),
            ("nonsense", None),
        ] {
            assert_eq!(message_of(record), message, "{record:?}");
        }
    }
}
