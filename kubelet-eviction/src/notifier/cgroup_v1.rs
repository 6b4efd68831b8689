//! Thresholds on the usage of a memory cgroup of version 1.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use kubelet_core::stats::Summary;
use rustix::event::{EventfdFlags, eventfd};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::{ThresholdNotifier, description, usage_threshold};
use crate::error::{Error, Result};
use crate::readiness::register;
use crate::threshold::Threshold;

/// `memoryUsageAttribute`
const USAGE: &str = "memory.usage_in_bytes";
const EVENT_CONTROL: &str = "cgroup.event_control";

/// Notifies when the usage of a memory cgroup of version 1 crosses a threshold, in either direction (`linuxCgroupNotifier`).
#[derive(Debug)]
pub struct CgroupV1Notifier {
    threshold: Threshold,
    cgroup: PathBuf,
    events: Option<AsyncFd<OwnedFd>>,
}

impl CgroupV1Notifier {
    /// Watches this folder, e.g. `/sys/fs/cgroup/memory`, for this threshold, after the first
    /// [update](ThresholdNotifier::update_threshold).
    pub fn new(threshold: Threshold, cgroup: impl Into<PathBuf>) -> Self {
        Self {
            threshold,
            cgroup: cgroup.into(),
            events: None,
        }
    }

    /// Asks the kernel for events at this usage, in bytes. The kernel forgets the request when the event's file is closed.
    fn watch(&self, usage: u64) -> Result<AsyncFd<OwnedFd>> {
        let usage_path = self.cgroup.join(USAGE);
        let watched = File::open(&usage_path).map_err(at(&usage_path))?;
        let control_path = self.cgroup.join(EVENT_CONTROL);
        let opened = OpenOptions::new().write(true).open(&control_path);
        let mut control = opened.map_err(at(&control_path))?;
        let events = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let events = events.map_err(|errno| at(&control_path)(errno.into()))?;
        let request = format!("{} {} {usage}", events.as_raw_fd(), watched.as_raw_fd());
        control.write_all(request.as_bytes()).map_err(at(&control_path))?;
        register(events, Interest::READABLE).map_err(at(&usage_path))
    }
}

/// An error about this file.
pub(super) fn at(path: &Path) -> impl Fn(std::io::Error) -> Error {
    move |source| Error::File {
        path: path.to_owned(),
        source,
    }
}

#[async_trait]
impl ThresholdNotifier for CgroupV1Notifier {
    fn description(&self) -> String {
        description(&self.threshold)
    }

    async fn update_threshold(&mut self, summary: &Summary) -> Result<()> {
        let usage = usage_threshold(&self.threshold, summary)?.threshold;
        self.events = None;
        self.events = Some(self.watch(usage)?);
        Ok(())
    }

    async fn crossed(&mut self) -> Result<()> {
        let Some(events) = &self.events else {
            return std::future::pending().await;
        };
        loop {
            let mut ready = events.readable().await.map_err(at(&self.cgroup))?;
            let mut count = [0; 8];
            let read = ready.try_io(|events| Ok(rustix::io::read(events.get_ref(), &mut count)?));
            match read {
                Ok(read) => return read.map(drop).map_err(at(&self.cgroup)),
                // It was not readable after all.
                Err(_would_block) => {}
            }
        }
    }
}
