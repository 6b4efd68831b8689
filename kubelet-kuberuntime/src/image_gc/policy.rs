//! When images are removed.

use std::time::Duration;

use kubelet_core::{Error, Result};

/// When images are removed (`ImageGCPolicy`): the fields of `KubeletConfiguration` with the same names.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ImageGcPolicy {
    /// `imageGCHighThresholdPercent`: the disk usage at which images are removed; 85 by default.
    pub high_threshold_percent: u8,
    /// `imageGCLowThresholdPercent`: images are removed until the usage is down to this; 80 by default.
    pub low_threshold_percent: u8,
    /// `imageMinimumGCAge`: an image that was first seen less than this ago is not removed to free space; 2 min by
    /// default.
    pub min_age: Duration,
    /// `imageMaximumGCAge`: an image that was unused for this long is removed at any disk usage; zero disables this.
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
    /// Checks that the thresholds make sense.
    ///
    /// # Errors
    ///
    /// [`Error::Misconfigured`] names the threshold that does not.
    pub fn check(&self) -> Result<()> {
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
