//! CPU time and memory of containers, from `/proc`.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use tokio::time::Instant;

use super::container::Process;
use super::{Shared, Slot, proc_fs};
use crate::verbs::{Result, RuntimeError, Usage};

/// How long one reading of all processes is reused, because a kubelet requests all containers at once.
const SNAPSHOT_PERIOD: Duration = Duration::from_secs(1);

/// The usage of all containers at one time.
pub(super) struct Snapshot {
    taken: Instant,
    at: Timestamp,
    /// By the leader of the group.
    groups: HashMap<i32, GroupUsage>,
}

#[derive(Clone, Copy, Default)]
struct GroupUsage {
    cpu_ticks: u64,
    own_pages: u64,
    resident_pages: u64,
}

/// The usage of a container.
pub(super) async fn usage(shared: &Arc<Shared>, process: &Process) -> Result<Usage> {
    let gone = || RuntimeError::gone(process.key(), "is not running");
    let leader = process.leader().ok_or_else(gone)?;
    let snapshot = {
        let mut last = shared.usage.lock().await;
        let known = |snapshot: &&Arc<Snapshot>| {
            snapshot.taken.elapsed() < SNAPSHOT_PERIOD && snapshot.groups.contains_key(&leader)
        };
        match last.as_ref().filter(known) {
            Some(snapshot) => snapshot.clone(),
            None => {
                let taken = take(shared).await;
                let taken = Arc::new(taken.map_err(|error| {
                    RuntimeError::transient(process.key(), format!("read /proc: {error}"))
                })?);
                *last = Some(taken.clone());
                taken
            }
        }
    };
    let used = *snapshot.groups.get(&leader).ok_or_else(gone)?;
    let ticks = u128::from(process.cpu_time(used.cpu_ticks));
    let nanos = ticks * 1_000_000_000 / u128::from(rustix::param::clock_ticks_per_second().max(1));
    let bytes = |pages: u64| pages.saturating_mul(rustix::param::page_size() as u64);
    Ok(Usage {
        at: snapshot.at,
        cpu: Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)),
        memory_working_set_bytes: bytes(used.own_pages),
        memory_rss_bytes: Some(bytes(used.own_pages)),
        memory_usage_bytes: Some(bytes(used.resident_pages)),
    })
}

/// On its own thread: with many processes it takes milliseconds.
async fn take(shared: &Arc<Shared>) -> io::Result<Snapshot> {
    let of = shared.clone();
    let looked = shared.tasks.spawn_blocking(move || {
        let mut groups: HashMap<i32, GroupUsage> = {
            let slots = of.slots.lock();
            let leaders = slots.values().filter_map(|slot| match slot {
                Slot::Started(process) => process.leader(),
                Slot::Starting(_) => None,
            });
            leaders.map(|leader| (leader, GroupUsage::default())).collect()
        };
        let (taken, at) = (Instant::now(), of.clock.now());
        for stat in proc_fs::all()? {
            if let Some(group) = groups.get_mut(&stat.group) {
                group.cpu_ticks = group.cpu_ticks.saturating_add(stat.cpu_time);
                let (own, resident) = proc_fs::pages(stat.pid);
                group.own_pages = group.own_pages.saturating_add(own);
                group.resident_pages = group.resident_pages.saturating_add(resident);
            }
        }
        Ok(Snapshot { taken, at, groups })
    });
    looked.await.unwrap_or_else(|error| Err(io::Error::other(error)))
}
