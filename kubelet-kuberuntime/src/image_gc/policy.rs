//! When images are removed.

use std::time::Duration;

use kubelet_core::{Error, Result};

/// When images are removed (`ImageGCPolicy`): of `KubeletConfiguration` the fields of the same names.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ImageGcPolicy {
    /// `imageGCHighThresholdPercent`: a disk that is as full as this is cleaned up; 85.
    pub high_threshold_percent: u8,
    /// `imageGCLowThresholdPercent`: until it is as full as this; 80.
    pub low_threshold_percent: u8,
    /// `imageMinimumGCAge`: what was found later than this is not removed to free space; 2 min.
    pub min_age: Duration,
    /// `imageMaximumGCAge`: what was not used for so long is removed however full the disk is; zero for never.
    pub max_age: Duration,
}

impl Default for ImageGcPolicy {
    fn default() -> Self {
        Self {
            high_threshold_percent: 85,
            low_threshold_percent: 80,
            min_age: Duration::from_secs(120),
            max_age: Duration::ZERO,
        }
    }
}

impl ImageGcPolicy {
    pub(super) fn check(&self) -> Result<()> {
        let (high, low) = (self.high_threshold_percent, self.low_threshold_percent);
        let problem = if high > 100 {
            format!("invalid HighThresholdPercent {high}, must be in range [0-100]")
        } else if low > 100 {
            format!("invalid LowThresholdPercent {low}, must be in range [0-100]")
        } else if low > high {
            format!("LowThresholdPercent {low} can not be higher than HighThresholdPercent {high}")
        } else {
            return Ok(());
        };
        Err(Error::Misconfigured {
            problems: vec![problem],
        })
    }

    pub(super) fn collects_nothing(&self) -> bool {
        self.high_threshold_percent == 100 && self.max_age.is_zero()
    }
}
