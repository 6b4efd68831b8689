//! Triggers on pressure stall information.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use async_trait::async_trait;
use kubelet_core::stats::Summary;
use rustix::fs::OFlags;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::ThresholdNotifier;
use super::cgroup_v1::at;
use crate::error::Result;
use crate::readiness::register;

/// A task waited for memory for a tenth of the time, in a window of one second, or of two: without `CAP_SYS_RESOURCE` a window
/// must be that long. The kernel notifies at most once in a window. They end as texts in C.
const TRIGGERS: [&[u8]; 2] = [b"some 100000 1000000\0", b"some 200000 2000000\0"];

/// Notifies when tasks wait for memory: the kernel has begun to reclaim it, which comes before the OOM killer.
///
/// The kubelet has no such notifier.
#[derive(Debug)]
pub struct PressureStallNotifier {
    path: PathBuf,
    trigger: Option<AsyncFd<File>>,
}

impl PressureStallNotifier {
    /// Watches this file, e.g. `/proc/pressure/memory` or `memory.pressure` of a cgroup of version 2, after the first
    /// [update](ThresholdNotifier::update_threshold).
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            trigger: None,
        }
    }

    fn watch(&self) -> Result<AsyncFd<File>> {
        let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
        let opened = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(flags)
            .open(&self.path);
        let mut file = opened.map_err(at(&self.path))?;
        let [usual, unprivileged] = TRIGGERS;
        let written = file.write_all(usual).or_else(|error| match error.kind() {
            ErrorKind::InvalidInput => file.write_all(unprivileged),
            _ => Err(error),
        });
        written.map_err(at(&self.path))?;
        register(file, Interest::PRIORITY).map_err(at(&self.path))
    }
}

#[async_trait]
impl ThresholdNotifier for PressureStallNotifier {
    fn description(&self) -> String {
        format!("stall for memory of {}", self.path.display())
    }

    /// The trigger does not depend on usage: it is set once.
    async fn update_threshold(&mut self, _: &Summary) -> Result<()> {
        if self.trigger.is_none() {
            self.trigger = Some(self.watch()?);
        }
        Ok(())
    }

    async fn crossed(&mut self) -> Result<()> {
        let Some(trigger) = &self.trigger else {
            return std::future::pending().await;
        };
        let ready = trigger.ready(Interest::PRIORITY).await;
        match ready {
            Ok(mut ready) if !ready.ready().is_error() => {
                ready.clear_ready();
                Ok(())
            }
            // The cgroup is gone.
            Ok(_) => {
                self.trigger = None;
                Err(at(&self.path)(std::io::ErrorKind::NotFound.into()))
            }
            Err(error) => Err(at(&self.path)(error)),
        }
    }
}
