//! Garbage collection: what is removed, and what is kept.

use std::collections::HashSet;
use std::time::Duration;

use kubelet_core::runtime::GcPolicy;
use kubelet_core::{PodStateProvider, PodUid, Runtime};
use kubelet_cri::v1;
use serde_json::json;
use tokio::time::advance;

use crate::fake::Script;
use crate::rig::{Rig, pod};

const SECOND: Duration = Duration::from_secs(1);

#[derive(Default)]
struct Pods {
    deleted: HashSet<&'static str>,
    ended: HashSet<&'static str>,
}

impl PodStateProvider for Pods {
    fn should_pod_content_be_removed(&self, uid: &PodUid) -> bool {
        self.deleted.contains(uid.as_str())
    }
    fn should_pod_runtime_be_removed(&self, uid: &PodUid) -> bool {
        self.ended.contains(uid.as_str())
    }
}

/// Two pods with one container each that started four times, and a container of another program.
async fn rig() -> Rig {
    let rig = Rig::new().await;
    rig.fake.script(
        "main",
        Script {
            runs_for: Some(SECOND),
            ..Script::default()
        },
    );
    for name in ["a", "b"] {
        let pod = pod(name, json!({ "containers": [{ "name": "main", "image": "i" }] }));
        for _ in 0..4 {
            rig.sync_ok(&pod).await;
            advance(1000 * SECOND).await;
        }
    }
    rig.fake.add_foreign_container();
    rig.fake.take_calls();
    rig
}

#[tokio::test(start_paused = true)]
async fn the_newest_of_each_container_stay() {
    let rig = rig().await;
    let mut policy = GcPolicy {
        max_per_pod_container: Some(2),
        ..GcPolicy::default()
    };
    rig.manager
        .garbage_collect(&policy, &Pods::default())
        .await
        .unwrap();
    let left = rig.fake.container_ids();
    assert_eq!(left.len(), 5, "{left:?}");
    assert!(left.contains(&"foreign".to_owned()));
    assert_eq!(rig.fake.sandbox_ids().len(), 2);
    assert!(!rig.dir.path().join("logs/ns_a_a/main/0.log").exists());
    assert!(rig.dir.path().join("logs/ns_a_a/main/3.log").exists());

    // None of them is old enough.
    policy.max_per_pod_container = Some(0);
    policy.min_age = Duration::from_secs(1_000_000);
    rig.manager
        .garbage_collect(&policy, &Pods::default())
        .await
        .unwrap();
    assert_eq!(rig.fake.container_ids().len(), 5);

    // The same number for both pods, then the oldest.
    policy.max_per_pod_container = None;
    policy.max_containers = Some(1);
    policy.min_age = Duration::ZERO;
    rig.manager
        .garbage_collect(&policy, &Pods::default())
        .await
        .unwrap();
    assert_eq!(rig.fake.container_ids().len(), 2);
    assert!(rig.dir.path().join("logs/ns_b_b/main/3.log").exists());
}

#[tokio::test(start_paused = true)]
async fn of_a_deleted_pod_nothing_is_left() {
    let rig = rig().await;
    let pods = Pods {
        deleted: HashSet::from(["a"]),
        ..Pods::default()
    };
    let policy = GcPolicy {
        all_sources_ready: true,
        ..GcPolicy::default()
    };
    rig.fake.lose_sandboxes();
    rig.manager.garbage_collect(&policy, &pods).await.unwrap();
    assert_eq!(rig.fake.sandbox_ids().len(), 1);
    assert_eq!(rig.fake.container_ids().len(), 2);
    assert!(!rig.dir.path().join("logs/ns_a_a").exists());
    assert!(rig.dir.path().join("logs/ns_b_b").exists());
}

#[tokio::test(start_paused = true)]
async fn sources_that_are_silent_delete_nothing() {
    let rig = rig().await;
    let pods = Pods {
        deleted: HashSet::from(["a", "b"]),
        ..Pods::default()
    };
    rig.manager
        .garbage_collect(&GcPolicy::default(), &pods)
        .await
        .unwrap();
    assert_eq!(rig.fake.container_ids().len(), 3);
    assert!(rig.dir.path().join("logs/ns_a_a/main/3.log").exists());
}

#[tokio::test(start_paused = true)]
async fn under_pressure_ended_pods_go_and_the_unknown_is_stopped_first() {
    let rig = rig().await;
    let newest = rig
        .fake
        .container_ids()
        .into_iter()
        .rfind(|id| id != "foreign")
        .unwrap();
    rig.fake
        .set_container_state(&newest, v1::ContainerState::ContainerUnknown);
    let pods = Pods {
        ended: HashSet::from(["b"]),
        ..Pods::default()
    };
    let policy = GcPolicy {
        all_sources_ready: true,
        evict_terminated_pods: true,
        ..GcPolicy::default()
    };
    rig.manager.garbage_collect(&policy, &pods).await.unwrap();
    assert_eq!(
        rig.fake.container_ids().len(),
        2,
        "the foreign one and the newest of a"
    );
    let calls = rig.fake.take_calls();
    let stopped = calls.iter().position(|call| call == "stopped main").unwrap();
    assert_eq!(calls[stopped + 1], "RemoveContainer main");
}

#[tokio::test(start_paused = true)]
async fn links_to_logs_come_and_go_with_their_containers() {
    let mut rig = Rig::new().await;
    let links = rig.dir.path().join("links");
    std::fs::create_dir(&links).unwrap();
    let builder = rig.builder().container_log_links(&links);
    rig.manager = builder.build().await.unwrap();
    rig.fake.script(
        "main",
        Script {
            runs_for: Some(SECOND),
            ..Script::default()
        },
    );
    let names = || {
        let mut names: Vec<_> = std::fs::read_dir(&links)
            .unwrap()
            .map(|link| link.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    };
    let pod = pod("p", json!({ "containers": [{ "name": "main", "image": "i" }] }));
    for _ in 0..2 {
        rig.sync_ok(&pod).await;
        advance(SECOND).await;
    }
    let (old, new) = ("p_ns_main-container-0002.log", "p_ns_main-container-0003.log");
    assert_eq!(names(), [old, new]);
    let log = rig.dir.path().join("logs/ns_p_p/main/0.log");
    assert_eq!(std::fs::read_link(links.join(old)).unwrap(), log);

    rig.manager
        .garbage_collect(&GcPolicy::default(), &Pods::default())
        .await
        .unwrap();
    assert_eq!(names(), [new]);

    // The log was removed by another program.
    std::fs::remove_file(rig.dir.path().join("logs/ns_p_p/main/1.log")).unwrap();
    rig.manager
        .garbage_collect(&GcPolicy::default(), &Pods::default())
        .await
        .unwrap();
    assert!(names().is_empty());
}
