//! When the manager decides, and what it does, in virtual time.

use std::time::Duration;

use async_trait::async_trait;
use kubelet_core::Pressure;
use kubelet_core::stats::Summary;
use kubelet_eviction::{Error, EvictionConfig, Result, ThresholdNotifier};
use serde_json::json;
use tokio::time::{Instant, sleep, sleep_until};

use super::node::{Node, hard, pod};

/// Notifies at these seconds.
struct At {
    started: Instant,
    seconds: Vec<u64>,
    fails: bool,
}

impl At {
    fn boxed(seconds: &[u64], fails: bool) -> Box<dyn ThresholdNotifier> {
        Box::new(Self {
            started: Instant::now(),
            seconds: seconds.iter().rev().copied().collect(),
            fails,
        })
    }
}

#[async_trait]
impl ThresholdNotifier for At {
    fn description(&self) -> String {
        "clock".to_owned()
    }

    async fn update_threshold(&mut self, _: &Summary) -> Result<()> {
        Ok(())
    }

    async fn crossed(&mut self) -> Result<()> {
        if self.fails {
            return Err(Error::NotSupported("no clock".to_owned()));
        }
        let Some(next) = self.seconds.last() else {
            return std::future::pending().await;
        };
        sleep_until(self.started + Duration::from_secs(*next)).await;
        self.seconds.pop();
        Ok(())
    }
}

fn deeds(of: &[(u64, &str)]) -> Vec<(u64, String)> {
    of.iter()
        .map(|(second, what)| (*second, (*what).to_owned()))
        .collect()
}

fn two_pods() -> Node {
    Node::new()
        .with(pod("small", json!({})), 100)
        .with(pod("large", json!({})), 300)
}

#[tokio::test(start_paused = true)]
async fn decides_every_ten_seconds_while_nothing_is_starved() {
    let node = two_pods();
    node.run_for(35, hard(&[("memory.available", "100Mi")]), Vec::new())
        .await;
    assert_eq!(node.measured(), [0, 10, 20, 30]);
    assert_eq!(node.deeds(), []);
}

#[tokio::test(start_paused = true)]
async fn evicts_one_pod_waits_for_its_clean_up_and_decides_again() {
    let node = two_pods().with(pod("other", json!({})), 550);
    node.run_for(15, hard(&[("memory.available", "100Mi")]), Vec::new())
        .await;
    // The eviction takes a second; the clean-up is checked every second.
    assert_eq!(
        node.deeds(),
        deeds(&[
            (0, "Warning EvictionThresholdMet Attempting to reclaim memory"),
            (0, "Evicted other memory"),
            (1, "evict other in 1 s"),
        ])
    );
    assert_eq!(node.measured(), [0, 3, 13]);
    assert!(node.pressure.is_under_memory_pressure());
    assert!(!node.pressure.is_under_disk_pressure());
}

#[tokio::test(start_paused = true)]
async fn pods_are_measured_if_they_have_limits_or_one_may_be_evicted() {
    let config = || EvictionConfig {
        local_storage_capacity_isolation: true,
        ..hard(&[("memory.available", "100Mi")])
    };
    let node = two_pods().with_own_usage();
    node.run_for(15, config(), Vec::new()).await;
    let both = |what| deeds(&[(0, what), (10, what)]);
    assert_eq!(node.history(), both("measure the node"));

    let volumes = json!({"volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1Gi"}}]});
    let resources = json!({"limits": {"ephemeral-storage": "1Gi"}});
    let containers = json!({"containers": [{"name": "c", "resources": resources}]});
    for spec in [volumes, containers] {
        let node = two_pods().with_own_usage().with(pod("limited", spec), 10);
        node.run_for(15, config(), Vec::new()).await;
        assert_eq!(node.history(), both("measure"));
    }

    let node = two_pods().with_own_usage().with(pod("other", json!({})), 550);
    node.run_for(2, config(), Vec::new()).await;
    assert_eq!(
        node.history(),
        deeds(&[
            (0, "measure the node"),
            (0, "measure"),
            (0, "Warning EvictionThresholdMet Attempting to reclaim memory"),
            (0, "Evicted other memory"),
            (1, "evict other in 1 s"),
        ])
    );
}

#[tokio::test(start_paused = true)]
async fn evicts_pod_after_pod_until_enough_is_free() {
    let node = two_pods().with(pod("other", json!({})), 550);
    node.run_for(15, hard(&[("memory.available", "700Mi")]), Vec::new())
        .await;
    let evicted: Vec<_> = node
        .deeds()
        .into_iter()
        .filter(|(_, deed)| deed.starts_with("evict"))
        .collect();
    assert_eq!(
        evicted,
        deeds(&[(1, "evict other in 1 s"), (4, "evict large in 1 s")])
    );
}

#[tokio::test(start_paused = true)]
async fn the_conditions_end_after_the_transition_period() {
    let node = two_pods().with(pod("other", json!({})), 550);
    let config = hard(&[("memory.available", "100Mi")]);
    let watched = node.clone();
    let watching = tokio::spawn(async move {
        sleep(Duration::from_secs(59)).await;
        let before = watched.pressure.is_under_memory_pressure();
        sleep(Duration::from_secs(10)).await;
        (before, watched.pressure.is_under_memory_pressure())
    });
    node.run_for(70, config, Vec::new()).await;
    assert_eq!(watching.await.unwrap(), (true, false));
}

#[tokio::test(start_paused = true)]
async fn decides_at_once_when_the_kernel_notifies() {
    let node = two_pods();
    let leaks = node.clone();
    let leak = tokio::spawn(async move {
        sleep(Duration::from_millis(3900)).await;
        leaks.use_memory("large", 850);
    });
    let config = hard(&[("memory.available", "100Mi")]);
    node.run_for(9, config, vec![At::boxed(&[2, 4], false)]).await;
    leak.await.unwrap();
    assert_eq!(node.measured(), [0, 2, 4, 7]);
    assert_eq!(
        node.deeds().last().unwrap(),
        &(5, "evict large in 1 s".to_owned())
    );
}

#[tokio::test(start_paused = true)]
async fn a_notification_does_not_end_the_wait_for_a_clean_up() {
    let node = two_pods().with(pod("other", json!({})), 550);
    node.cleanup(Duration::from_secs(20));
    let leaks = node.clone();
    let leak = tokio::spawn(async move {
        sleep(Duration::from_millis(4900)).await;
        leaks.use_memory("large", 850);
    });
    let config = hard(&[("memory.available", "100Mi")]);
    // The first one comes while the pod is evicted.
    node.run_for(30, config, vec![At::boxed(&[0, 1, 5], false)]).await;
    leak.await.unwrap();
    let evicted: Vec<_> = node
        .deeds()
        .into_iter()
        .filter(|(_, deed)| deed.starts_with("evict"))
        .collect();
    assert_eq!(
        evicted,
        deeds(&[(1, "evict other in 1 s"), (22, "evict large in 1 s")])
    );
}

#[tokio::test(start_paused = true)]
async fn a_notifier_that_fails_is_asked_again_after_its_update_only() {
    let node = two_pods();
    let config = hard(&[("memory.available", "100Mi")]);
    node.run_for(25, config, vec![At::boxed(&[], true), At::boxed(&[4], false)])
        .await;
    assert_eq!(node.measured(), [0, 4, 14, 24]);
}

#[tokio::test(start_paused = true)]
async fn waits_thirty_seconds_for_a_clean_up_at_most() {
    let node = two_pods().with(pod("other", json!({})), 550);
    node.cleanup(Duration::from_secs(3600));
    node.run_for(45, hard(&[("memory.available", "100Mi")]), Vec::new())
        .await;
    assert_eq!(node.measured(), [0, 31, 41]);
}

#[tokio::test(start_paused = true)]
async fn images_and_dead_containers_go_first() {
    let node = two_pods();
    node.free_disk(5, 20, 1);
    node.run_for(5, hard(&[("nodefs.available", "10Gi")]), Vec::new())
        .await;
    let first = [
        (
            0,
            "Warning EvictionThresholdMet Attempting to reclaim ephemeral-storage",
        ),
        (0, "delete containers"),
        (0, "delete images"),
    ];
    assert_eq!(node.deeds(), deeds(&first));
    assert_eq!(node.measured(), [0, 0]);
    assert!(node.pressure.is_under_disk_pressure());

    let node = two_pods();
    node.free_disk(5, 2, 1);
    node.run_for(2, hard(&[("nodefs.available", "10Gi")]), Vec::new())
        .await;
    let then = [
        &first[..],
        &[(0, "Evicted small ephemeral-storage"), (1, "evict small in 1 s")],
    ]
    .concat();
    assert_eq!(node.deeds(), deeds(&then));
}

#[tokio::test(start_paused = true)]
async fn critical_pods_stay() {
    let node = Node::new()
        .with(pod("critical", json!({"priority": 2_000_001_000})), 600)
        .with(pod("usual", json!({"priority": 1000})), 350);
    node.run_for(15, hard(&[("memory.available", "500Mi")]), Vec::new())
        .await;
    let evicted: Vec<_> = node
        .deeds()
        .into_iter()
        .filter(|(_, deed)| deed.starts_with("evict"))
        .collect();
    assert_eq!(evicted, deeds(&[(1, "evict usual in 1 s")]));
    // Nobody is left to evict.
    assert_eq!(node.measured(), [0, 3, 13]);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_measured_or_is_not_known_is_tried_again() {
    let node = two_pods().with(pod("other", json!({})), 550);
    node.file_systems(None);
    node.blind(true);
    let sees = node.clone();
    let seeing = tokio::spawn(async move {
        sleep(Duration::from_secs(5)).await;
        assert!(sees.measured().is_empty());
        sees.file_systems(Some(Default::default()));
        sleep(Duration::from_secs(10)).await;
        sees.blind(false);
    });
    node.run_for(22, hard(&[("memory.available", "100Mi")]), Vec::new())
        .await;
    seeing.await.unwrap();
    assert_eq!(node.measured(), [10, 20]);
    assert_eq!(
        node.deeds().last().unwrap(),
        &(21, "evict other in 1 s".to_owned())
    );
}

#[tokio::test(start_paused = true)]
async fn without_thresholds_and_limits_nothing_is_measured() {
    let node = two_pods();
    node.run_for(60, EvictionConfig::default(), Vec::new()).await;
    assert_eq!(node.history(), []);
}

#[tokio::test(start_paused = true)]
async fn all_pods_beyond_their_limits_are_evicted() {
    let limit =
        json!({"containers": [{"name": "c", "resources": {"limits": {"ephemeral-storage": "200Mi"}}}]});
    let node = Node::new()
        .with(pod("a", limit.clone()), 300)
        .with(pod("b", limit.clone()), 100)
        .with(pod("c", limit), 201);
    let config = EvictionConfig {
        local_storage_capacity_isolation: true,
        ..EvictionConfig::default()
    };
    node.run_for(4, config, Vec::new()).await;
    assert_eq!(
        node.deeds(),
        deeds(&[
            (0, "Evicted a "),
            (1, "evict a in 1 s"),
            (1, "Evicted c "),
            (2, "evict c in 1 s"),
        ])
    );
}
