//! The usage and the health of a volume, as its driver reports them (`csi_metrics.go`).

use kubelet_core::VolumeUsage;

use super::paths::mount_of;
use super::plugin::CsiPlugin;
use super::source::Source;
use super::v1::volume_usage::Unit;
use super::v1::{NodeGetVolumeStatsRequest, NodeGetVolumeStatsResponse};
use crate::measuring::timed;
use crate::{Error, OnDisk, Result, VolumeSpec};

impl CsiPlugin {
    /// `None` if the driver does not report usage.
    pub(crate) async fn stats(&self, mounted: &OnDisk, spec: &VolumeSpec) -> Result<Option<VolumeUsage>> {
        let source = Source::of(spec)?;
        timed(source.driver(), self.ask_for_stats(mounted, spec, source)).await
    }

    async fn ask_for_stats(
        &self,
        mounted: &OnDisk,
        spec: &VolumeSpec,
        source: Source<'_>,
    ) -> Result<Option<VolumeUsage>> {
        let mut session = self.session(source.driver(), Some(spec)).map_err(Error::failed)?;
        let failed = |error: super::status::CallError| Error::failed(error.to_string());
        let has = session.capabilities().await.map_err(failed)?;
        if !has.stats {
            return Ok(None);
        }
        let volume_path = match mounted.is_block {
            true => self
                .paths
                .block(&mounted.name)?
                .global_map
                .join(mounted.uid.as_str()),
            false => mount_of(&mounted.dir),
        };
        let request = NodeGetVolumeStatsRequest {
            volume_id: source.handle(&mounted.uid, &mounted.name),
            volume_path: volume_path.display().to_string(),
            staging_target_path: String::new(),
        };
        let answer = session.stats(request).await.map_err(failed)?;
        let shows_health = self.volume_health && has.condition;
        if !shows_health && answer.usage.is_empty() {
            return Err(Error::failed("failed to get usage from response. usage is nil"));
        }
        let mut usage = usage_of(&answer);
        usage.time = Some(self.clock.now());
        if shows_health {
            let condition = answer.volume_condition.unwrap_or_default();
            usage.abnormal = Some(condition.abnormal);
            if condition.abnormal {
                tracing::warn!(volume = %mounted.name, "a volume is not healthy: {}", condition.message);
            }
        }
        Ok(Some(usage))
    }
}

/// A negative number is no number: drivers must not report one.
fn usage_of(answer: &NodeGetVolumeStatsResponse) -> VolumeUsage {
    let mut all = VolumeUsage::default();
    for usage in &answer.usage {
        let number = |number: i64| u64::try_from(number).ok();
        let (available, total, used) = (number(usage.available), number(usage.total), number(usage.used));
        match usage.unit() {
            Unit::Bytes => {
                all.available_bytes = available;
                all.capacity_bytes = total;
                all.used_bytes = used;
            }
            Unit::Inodes => {
                all.inodes_free = available;
                all.inodes = total;
                all.inodes_used = used;
            }
            Unit::Unknown => {
                tracing::debug!(unit = usage.unit, "a CSI driver reports usage in an unknown unit")
            }
        }
    }
    all
}
