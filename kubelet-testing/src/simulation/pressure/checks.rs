//! What an eviction must not do.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kubelet_core::PodExt;
use kubelet_core::stats::{PodStats, Summary};
use kubelet_eviction::{NodePressure, PressureCondition};
use tokio::time::Instant;

use super::host::{Scarce, SimulatedHost};

/// Whether the pod uses nothing of what is short, while another one that ranks no higher uses some.
///
/// As in the kubelet, a pod whose usage is not known goes first, and priority counts before usage among pods that keep to their
/// requests. The pods here request nothing of what runs short.
pub(super) fn frees_nothing(
    pod: &Pod,
    considered: &[Arc<Pod>],
    scarce: Scarce,
    by: &Summary,
) -> Option<String> {
    let used = |pod: &Pod| {
        let stats = by
            .pods
            .iter()
            .flatten()
            .find(|stats| stats.pod_ref.uid == pod.uid_str());
        stats.map(|stats| usage(stats, scarce))
    };
    if used(pod)? > 0 {
        return None;
    }
    let priority = |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.priority).unwrap_or(0);
    // By process ids, priority comes first.
    let ranks_no_higher = |other: &Pod| scarce != Scarce::Pids || priority(other) <= priority(pod);
    let better = considered.iter().find(|other| {
        !super::is_spared(other) && ranks_no_higher(other) && used(other).is_some_and(|used| used > 0)
    })?;
    Some(format!("frees no {}, but {} would", scarce.name(), better.key()))
}

fn usage(stats: &PodStats, scarce: Scarce) -> u64 {
    let of_layers = |count: fn(&kubelet_core::stats::FsStats) -> Option<u64>| {
        let layers = stats
            .containers
            .iter()
            .flatten()
            .filter_map(|container| container.rootfs.as_ref());
        layers.filter_map(count).sum()
    };
    let used = match scarce {
        Scarce::Memory => stats.memory.as_ref().and_then(|memory| memory.working_set_bytes),
        Scarce::Disk => Some(of_layers(|fs| fs.used_bytes)),
        Scarce::Inodes => Some(of_layers(|fs| fs.inodes_used)),
        Scarce::Pids => stats
            .process_stats
            .as_ref()
            .and_then(|processes| processes.process_count),
    };
    used.unwrap_or(0)
}

/// Notes each condition that ends sooner after its beginning than the transition period. Runs until it is dropped.
pub(super) async fn watch_conditions(
    pressure: NodePressure,
    period: Duration,
    host: SimulatedHost,
    note: impl Fn(String),
) {
    let mut changes = pressure.changes();
    let mut begun: BTreeMap<PressureCondition, Instant> = BTreeMap::new();
    while changes.changed().await.is_ok() {
        let now: Vec<PressureCondition> = changes.borrow_and_update().clone();
        let names: Vec<&str> = now.iter().map(|condition| condition.as_str()).collect();
        note(format!("has the conditions [{}]", names.join(" ")));
        begun.retain(|condition, since| {
            let stays = now.contains(condition);
            if !stays && since.elapsed() < period {
                host.wrong(format!(
                    "the condition {} lasted only {:?}",
                    condition.as_str(),
                    since.elapsed()
                ));
            }
            stays
        });
        for condition in now {
            begun.entry(condition).or_insert_with(Instant::now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory_cri::MemoryCri;
    use kubelet_core::Clock;
    use serde_json::json;
    use tokio::task::yield_now;
    use tokio::time::sleep;

    fn pod(uid: &str, priority: i32) -> Arc<Pod> {
        let pod =
            json!({"metadata": {"name": uid, "uid": uid}, "spec": {"priority": priority, "containers": []}});
        Arc::new(serde_json::from_value(pod).unwrap())
    }

    #[test]
    fn a_pod_that_frees_nothing_is_noticed_if_another_frees_some() {
        let stats = |uid: &str, bytes: u64, pids: u64| json!({"podRef": {"uid": uid}, "memory": {"workingSetBytes": bytes}, "process_stats": {"process_count": pids}});
        let pods = [stats("idle", 0, 0), stats("busy", 5, 5), stats("critical", 9, 9)];
        let summary: Summary = serde_json::from_value(json!({"pods": pods})).unwrap();
        let (idle, busy) = (pod("idle", 0), pod("busy", 10));
        let (critical, unknown) = (pod("critical", super::super::CRITICAL), pod("unknown", 0));
        type Case<'a> = (&'a Arc<Pod>, &'a [&'a Arc<Pod>], Scarce, bool);
        let cases: [Case<'_>; 5] = [
            (&idle, &[&idle, &busy], Scarce::Memory, true),
            (&busy, &[&idle, &busy], Scarce::Memory, false),
            (&unknown, &[&unknown, &busy], Scarce::Memory, false),
            (&idle, &[&idle, &critical], Scarce::Memory, false),
            (&idle, &[&idle, &busy], Scarce::Pids, false),
        ];
        for (evicted, considered, scarce, wrong) in cases {
            let considered: Vec<Arc<Pod>> = considered.iter().map(|pod| Arc::clone(pod)).collect();
            let found = frees_nothing(evicted, &considered, scarce, &summary);
            assert_eq!(
                found.is_some(),
                wrong,
                "{} {scarce:?}: {found:?}",
                evicted.uid_str()
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_condition_that_ends_too_soon_is_noticed() {
        let clock = Clock::starting_at(Default::default());
        let host = SimulatedHost::new(MemoryCri::new(clock), clock);
        let (pressure, period) = (NodePressure::new(), Duration::from_secs(300));
        let watching = tokio::spawn(watch_conditions(pressure.clone(), period, host.clone(), drop));
        yield_now().await;
        for (lasts, problems) in [(300, 0), (299, 1)] {
            pressure.set(vec![PressureCondition::Memory]);
            yield_now().await;
            sleep(Duration::from_secs(lasts)).await;
            pressure.set(Vec::new());
            yield_now().await;
            assert_eq!(
                host.problems().len(),
                problems,
                "after {lasts} s: {:?}",
                host.problems()
            );
        }
        watching.abort();
    }
}
