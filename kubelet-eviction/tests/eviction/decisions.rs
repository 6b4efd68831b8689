//! Rules that the recorded runs do not show.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kubelet_core::PodExt;
use kubelet_core::stats::Summary;
use kubelet_eviction::{
    Decision, Eviction, EvictionConfig, EvictionSettings, EvictionState, FileSystems, PressureCondition,
    Reclaim, Signal, decide, is_relieved, observe,
};
use proptest::prelude::*;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::node::{hard, pod};

fn summary(node: Value, pods: Value) -> Summary {
    serde_json::from_value(json!({"node": node, "pods": pods})).unwrap()
}

fn memory(available: u64) -> Value {
    json!({"memory": {"availableBytes": available, "workingSetBytes": 1000 - available}})
}

fn decide_once(config: &EvictionConfig, on: FileSystems, summary: &Summary, pods: &[Arc<Pod>]) -> Decision {
    // Not the first decision: the thresholds of writable layers are known.
    let idle = summary_of_nothing();
    let (_, state) = decide(config, on, &EvictionState::default(), &idle, &[], Instant::now());
    decide(config, on, &state, summary, pods, Instant::now()).0
}

fn summary_of_nothing() -> Summary {
    Summary::default()
}

fn evicted(decision: &Decision) -> Option<&Eviction> {
    decision.starved.as_ref()?.eviction.as_ref()
}

fn name(eviction: Option<&Eviction>) -> Option<String> {
    eviction.map(|eviction| eviction.pod.key().name.to_string())
}

#[test]
fn a_pod_of_unknown_usage_goes_first() {
    let pods = [
        pod("low", json!({"priority": -5})),
        pod("unknown", json!({"priority": 5})),
    ];
    let node = json!({
        "memory": {"availableBytes": 1, "workingSetBytes": 9},
        "rlimit": {"maxpid": 10, "curproc": 9},
        "fs": {"availableBytes": 1, "capacityBytes": 10},
    });
    let known = json!([{"podRef": {"uid": "low"}, "memory": {"workingSetBytes": 5}}]);
    let summary = summary(node, known);
    for (signal, expected) in [
        ("memory.available", "unknown"),
        ("nodefs.available", "unknown"),
        // Priority decides.
        ("pid.available", "low"),
    ] {
        let decision = decide_once(&hard(&[(signal, "5")]), FileSystems::default(), &summary, &pods);
        assert_eq!(name(evicted(&decision)).as_deref(), Some(expected), "{signal}");
        if expected == "unknown" {
            assert_eq!(evicted(&decision).unwrap().annotations, BTreeMap::new());
        }
    }
}

#[test]
fn the_message_names_a_pod_with_resources_of_its_own() {
    let pods = [pod(
        "p",
        json!({
            "resources": {"requests": {"memory": "1Ki"}},
            "containers": [{"name": "c"}],
            "initContainers": [{"name": "side", "resources": {"requests": {"memory": "2Ki"}}}],
        }),
    )];
    let used = |name: &str, bytes: u64| json!({"name": name, "memory": {"workingSetBytes": bytes}});
    let usage = json!([{
        "podRef": {"uid": "p"}, "memory": {"workingSetBytes": 6144},
        "containers": [used("c", 2048), used("side", 4096), used("debug", 9999)],
    }]);
    let decision = decide_once(
        &hard(&[("memory.available", "50%")]),
        FileSystems::default(),
        &summary(
            json!({"memory": {"availableBytes": 1024, "workingSetBytes": 7168}}),
            usage,
        ),
        &pods,
    );
    let eviction = evicted(&decision).unwrap();
    assert_eq!(
        eviction.message,
        "The node was low on resource: memory. Threshold quantity: 4Ki, available: 1Ki. \
         Pod p was using 6Ki, request is 1Ki, has larger consumption of memory. \
         Container c was using 2Ki, request is 0, has larger consumption of memory. \
         Container side was using 4Ki, request is 2Ki, has larger consumption of memory. "
    );
    let annotations: Vec<String> = eviction
        .annotations
        .iter()
        .map(|(k, v)| format!("{k}={v}"))
        .collect();
    assert_eq!(
        annotations,
        [
            "offending_containers=c,side",
            "offending_containers_usage=2Ki,4Ki",
            "offending_pod=p",
            "offending_pod_usage=6Ki",
            "starved_resource=memory",
        ]
    );
}

#[test]
fn what_is_freed_first_depends_on_the_file_systems() {
    use Reclaim::{DeadContainers, UnusedImages};
    let full = json!({"availableBytes": 1, "capacityBytes": 10, "inodesFree": 1, "inodes": 10});
    let fine = json!({"availableBytes": 9, "capacityBytes": 10, "inodesFree": 9, "inodes": 10});
    let both = &[DeadContainers, UnusedImages][..];
    let cases = [
        (false, false, "nodefs", both),
        (false, false, "imagefs", both),
        (true, false, "nodefs", &[]),
        (true, false, "imagefs", both),
        (true, true, "nodefs", &[DeadContainers]),
        (true, true, "imagefs", &[UnusedImages]),
    ];
    for (dedicated_image_fs, split_container_fs, starved, expected) in cases {
        let on = FileSystems {
            dedicated_image_fs,
            split_container_fs,
        };
        for (kind, signal) in [
            ("available", format!("{starved}.available")),
            ("inodesFree", format!("{starved}.inodesFree")),
        ] {
            let fs = |name: &str| {
                if name == starved {
                    full.clone()
                } else {
                    fine.clone()
                }
            };
            let node =
                json!({"fs": fs("nodefs"), "runtime": {"imageFs": fs("imagefs"), "containerFs": fine}});
            let config = hard(&[(&signal, "5")]);
            let decision = decide_once(&config, on, &summary(node, json!([])), &[]);
            let starvation = decision.starved.unwrap();
            assert_eq!(starvation.reclaim, expected, "{on:?} {starved} {kind}");
            assert_eq!(starvation.threshold.signal.as_str(), signal);
            assert!(starvation.eviction.is_none());
            assert_eq!(decision.conditions, [PressureCondition::Disk]);
            let relieved = json!({"fs": fine, "runtime": {"imageFs": fine, "containerFs": fine}});
            assert!(is_relieved(&config, on, &summary(relieved, json!([]))));
        }
    }
}

#[test]
fn a_threshold_is_met_until_its_minimum_is_reclaimed() {
    let reclaim = BTreeMap::from([("memory.available".to_owned(), "100".to_owned())]);
    let (of, none) = (
        BTreeMap::from([("memory.available".to_owned(), "500".to_owned())]),
        BTreeMap::new(),
    );
    let mut config = EvictionConfig::parse(EvictionSettings {
        hard: &of,
        soft: &none,
        soft_grace_period: &none,
        minimum_reclaim: &reclaim,
        enforce_node_allocatable: &[],
    })
    .unwrap();
    config.pressure_transition_period = Duration::from_secs(1);
    let (mut state, mut now) = (EvictionState::default(), Instant::now());
    for (available, is_starved) in [
        (550, false),
        (499, true),
        (550, true),
        (599, true),
        (600, false),
        (550, false),
    ] {
        now += Duration::from_secs(10);
        let (decision, next) = decide(
            &config,
            FileSystems::default(),
            &state,
            &summary(memory(available), json!([])),
            &[],
            now,
        );
        assert_eq!(decision.starved.is_some(), is_starved, "{available}");
        assert_eq!(!decision.conditions.is_empty(), is_starved, "{available}");
        state = next;
    }
}

#[test]
fn old_measurements_evict_nobody_twice() {
    let config = hard(&[("memory.available", "500")]);
    let at = |second: u8| {
        let mut node = memory(100);
        node["memory"]["time"] = json!(format!("2026-01-01T00:00:{second:02}Z"));
        summary(node, json!([]))
    };
    let (mut state, mut now) = (EvictionState::default(), Instant::now());
    for (measured, acts) in [(10, true), (10, false), (5, false), (11, true)] {
        now += Duration::from_secs(1);
        let (decision, next) = decide(&config, FileSystems::default(), &state, &at(measured), &[], now);
        assert_eq!(decision.starved.is_some(), acts, "{measured}");
        assert_eq!(decision.conditions, [PressureCondition::Memory], "{measured}");
        state = next;
    }
}

#[test]
fn what_is_not_measured_is_not_observed() {
    assert!(observe(&summary_of_nothing()).is_empty());
    let parts = summary(
        json!({
            "memory": {"availableBytes": 1}, "fs": {"availableBytes": 1, "inodes": 5, "inodesFree": 2},
            "runtime": {"imageFs": {"capacityBytes": 9}}, "rlimit": {"maxpid": 5},
        }),
        json!([]),
    );
    assert_eq!(
        observe(&parts).into_keys().collect::<Vec<_>>(),
        [Signal::NodeFsInodesFree]
    );
    let config = hard(&[("memory.available", "5"), ("pid.available", "5")]);
    assert!(
        decide_once(&config, FileSystems::default(), &parts, &[])
            .starved
            .is_none()
    );
}

#[test]
fn a_condition_keeps_its_time_if_the_pod_is_disrupted_already() {
    let decision = decide_once(
        &hard(&[("memory.available", "500")]),
        FileSystems::default(),
        &summary(memory(1), json!([])),
        &[pod("p", json!({}))],
    );
    let time = |second: i64| Time(Timestamp::from_second(second).unwrap());
    let mut status: PodStatus = serde_json::from_value(json!({"phase": "Running", "conditions": [
        {"type": "Ready", "status": "True"},
        {"type": "DisruptionTarget", "status": "True", "reason": "Other", "lastTransitionTime": time(5)},
    ]}))
    .unwrap();
    evicted(&decision).unwrap().apply(&mut status, &time(9));
    let conditions = status.conditions.unwrap();
    assert_eq!(conditions.len(), 2);
    assert_eq!(conditions[1].reason.as_deref(), Some("TerminationByKubelet"));
    assert_eq!(conditions[1].last_transition_time, Some(time(5)));
}

/// A pod with this priority, request and usage.
fn any_pod() -> impl Strategy<Value = (i32, u64, Option<u64>)> {
    (
        prop_oneof![Just(0), Just(7), Just(2_000_000_001)],
        0..4_u64,
        proptest::option::of(0..5_u64),
    )
}

proptest! {
    /// Of the pods that may be evicted, no other exceeds its request while the evicted one does not, and none that ranks equal
    /// so far has a lower priority, or uses more above its request.
    #[test]
    fn the_evicted_pod_ranks_first_and_is_not_critical(pods in proptest::collection::vec(any_pod(), 0..7)) {
        let made: Vec<Arc<Pod>> = pods.iter().enumerate().map(|(index, (priority, request, _))| {
            let requests = json!({"memory": request.to_string()});
            pod(&index.to_string(), json!({
                "priority": priority, "containers": [{"name": "c", "resources": {"requests": requests}}],
            }))
        }).collect();
        let usage: Vec<Value> = pods.iter().enumerate().filter_map(|(index, (_, _, used))| {
            let used = (*used)?;
            Some(json!({"podRef": {"uid": index.to_string()}, "memory": {"workingSetBytes": used}}))
        }).collect();
        let decision = decide_once(
            &hard(&[("memory.available", "500")]), FileSystems::default(), &summary(memory(1), json!(usage)), &made,
        );
        let key = |(priority, request, used): &(i32, u64, Option<u64>)| match used {
            None => (false, false, *priority, 0),
            Some(used) => (true, used <= request, *priority, *request as i64 - *used as i64),
        };
        let candidates = pods.iter().filter(|(priority, _, _)| *priority < 2_000_000_000);
        let best = candidates.map(key).min();
        let chosen = name(evicted(&decision)).map(|name| key(&pods[name.parse::<usize>().unwrap()]));
        prop_assert_eq!(chosen, best);
    }

    /// A condition that was observed is reported for the whole transition period, and no longer.
    #[test]
    fn conditions_do_not_flap(steps in proptest::collection::vec((1..30_u64, any::<bool>()), 1..30)) {
        let config = hard(&[("memory.available", "500")]);
        let (mut state, mut now) = (EvictionState::default(), Instant::now());
        let mut last_met: Option<Instant> = None;
        for (seconds, is_low) in steps {
            now += Duration::from_secs(seconds);
            let available = if is_low { 1 } else { 999 };
            let summary = summary(memory(available), json!([]));
            let (decision, next) = decide(&config, FileSystems::default(), &state, &summary, &[], now);
            if is_low {
                last_met = Some(now);
            }
            let expected = last_met.is_some_and(|met| now - met < Duration::from_secs(60));
            prop_assert_eq!(!decision.conditions.is_empty(), expected);
            state = next;
        }
    }
}
