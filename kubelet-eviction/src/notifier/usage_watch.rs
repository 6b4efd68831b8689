//! A frequent look at the usage of memory, where the kernel has no thresholds.

use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use kubelet_core::stats::Summary;
use tokio::time::sleep;

use super::{ThresholdNotifier, description, usage_threshold};
use crate::error::{Error, Result};
use crate::threshold::Threshold;

/// How often it looks. One look takes some microseconds.
const PERIOD: Duration = Duration::from_millis(250);

/// A file with the usage of memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UsageFile {
    /// `/proc/meminfo`: what is not free of the host's memory.
    Meminfo(PathBuf),
    /// `memory.current` of a cgroup of version 2.
    Current(PathBuf),
}

/// Looks at the usage of memory four times a second, and notifies when it crosses the threshold upwards. The kubelet sees it at
/// its next measurement, every ten seconds.
#[derive(Debug)]
pub struct UsageWatch {
    threshold: Threshold,
    file: UsageFile,
    limit: Option<u64>,
    is_over: bool,
}

impl UsageWatch {
    /// Watches this file for this threshold, after the first [update](ThresholdNotifier::update_threshold).
    pub fn new(threshold: Threshold, file: UsageFile) -> Self {
        Self {
            threshold,
            file,
            limit: None,
            is_over: false,
        }
    }

    /// Bytes in use. The kernel makes up the file from memory, so the read blocks no longer than a lock.
    fn usage(&self) -> Result<u64> {
        let (UsageFile::Meminfo(path) | UsageFile::Current(path)) = &self.file;
        let read = std::fs::read_to_string(path).and_then(|text| {
            let usage = match &self.file {
                UsageFile::Meminfo(_) => of_meminfo(&text),
                UsageFile::Current(_) => text.trim().parse().ok(),
            };
            usage.ok_or_else(|| {
                std::io::Error::new(std::io::ErrorKind::InvalidData, "no usage of memory in it")
            })
        });
        read.map_err(|source| Error::File {
            path: path.clone(),
            source,
        })
    }
}

/// `MemTotal` − `MemFree`
fn of_meminfo(text: &str) -> Option<u64> {
    let kib = |name: &str| -> Option<u64> {
        let mut lines = text.lines();
        let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        value.trim().strip_suffix("kB")?.trim().parse().ok()
    };
    kib("MemTotal")?.checked_sub(kib("MemFree")?)?.checked_mul(1024)
}

#[async_trait]
impl ThresholdNotifier for UsageWatch {
    fn description(&self) -> String {
        description(&self.threshold)
    }

    /// The summary may count what the file does not, so the distance to the threshold is what counts.
    async fn update_threshold(&mut self, summary: &Summary) -> Result<()> {
        let measured = usage_threshold(&self.threshold, summary)?;
        let now = self.usage()?;
        let limit = now
            .saturating_add(measured.threshold)
            .saturating_sub(measured.usage);
        self.limit = Some(limit);
        self.is_over = now >= limit;
        Ok(())
    }

    async fn crossed(&mut self) -> Result<()> {
        let Some(limit) = self.limit else {
            return std::future::pending().await;
        };
        loop {
            sleep(PERIOD).await;
            let was_over = self.is_over;
            self.is_over = self.usage()? >= limit;
            if self.is_over && !was_over {
                return Ok(());
            }
        }
    }
}
