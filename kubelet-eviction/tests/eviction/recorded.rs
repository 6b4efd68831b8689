//! Recorded runs of the kubelet's eviction manager.
//!
//! The kubelet picks any of the thresholds that are met (it iterates a map), those of memory first. So each run is repeated with
//! each threshold at the front of the configuration, until one decides as the kubelet did.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use flate2::read::GzDecoder;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kubelet_core::PodExt;
use kubelet_core::stats::Summary;
use kubelet_eviction::{
    Decision, Eviction, EvictionConfig, EvictionSettings, EvictionState, FileSystems, PressureCondition,
    Reclaim, decide, is_relieved,
};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

type Map = BTreeMap<String, String>;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Run {
    case: u64,
    eviction_hard: Option<Map>,
    eviction_soft: Option<Map>,
    eviction_soft_grace_period: Option<Map>,
    eviction_minimum_reclaim: Option<Map>,
    eviction_max_pod_grace_period: u64,
    eviction_pressure_transition_period_seconds: u64,
    dedicated_image_fs: bool,
    dedicated_container_fs: bool,
    local_storage_capacity_isolation: bool,
    pods: Option<Vec<Pod>>,
    steps: Vec<Step>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Step {
    advance_seconds: u64,
    summary: Value,
    #[serde(rename = "summaryAfterGC")]
    summary_after_gc: Option<Value>,
    #[serde(flatten)]
    expected: Expected,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Expected {
    kills: Option<Vec<Value>>,
    evicted: Option<Vec<String>>,
    events: Option<Vec<String>>,
    #[serde(rename = "imageGC")]
    image_gc: bool,
    #[serde(rename = "containerGC")]
    container_gc: bool,
    memory_pressure: bool,
    disk_pressure: bool,
    pid_pressure: bool,
}

/// The recording in the folder, or another one.
fn runs() -> Vec<Run> {
    let given = std::env::var_os("KUBELET_EVICTION_RECORDING").map(PathBuf::from);
    let path = given.unwrap_or_else(|| {
        PathBuf::from(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/data/eviction.jsonl.gz"
        ))
    });
    let mut text = String::new();
    let file = std::fs::File::open(path).unwrap();
    GzDecoder::new(file).read_to_string(&mut text).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

impl Run {
    fn config(&self) -> EvictionConfig {
        let none = Map::new();
        let settings = EvictionSettings {
            hard: self.eviction_hard.as_ref().unwrap_or(&none),
            soft: self.eviction_soft.as_ref().unwrap_or(&none),
            soft_grace_period: self.eviction_soft_grace_period.as_ref().unwrap_or(&none),
            minimum_reclaim: self.eviction_minimum_reclaim.as_ref().unwrap_or(&none),
            enforce_node_allocatable: &["pods".to_owned()],
        };
        EvictionConfig {
            max_pod_grace_period: Duration::from_secs(self.eviction_max_pod_grace_period),
            pressure_transition_period: Duration::from_secs(self.eviction_pressure_transition_period_seconds),
            local_storage_capacity_isolation: self.local_storage_capacity_isolation,
            ..EvictionConfig::parse(settings).unwrap()
        }
    }

    fn file_systems(&self) -> FileSystems {
        FileSystems {
            dedicated_image_fs: self.dedicated_image_fs,
            split_container_fs: self.dedicated_container_fs,
        }
    }
}

/// What the recording has of a decision.
fn shown(decision: &Decision, relieved: impl FnOnce() -> bool) -> Expected {
    let mut events = Vec::new();
    let (mut image_gc, mut container_gc) = (false, false);
    let mut evictions: Vec<&Eviction> = decision.over_limit.iter().collect();
    if let Some(starved) = &decision.starved {
        events.push(format!(
            "Warning EvictionThresholdMet {}",
            starved.event_message()
        ));
        image_gc = starved.reclaim.contains(&Reclaim::UnusedImages);
        container_gc = starved.reclaim.contains(&Reclaim::DeadContainers);
        if starved.reclaim.is_empty() || !relieved() {
            evictions.extend(&starved.eviction);
        }
    }
    for eviction in &evictions {
        let annotations: Vec<String> = eviction
            .annotations
            .iter()
            .map(|(k, v)| format!("{k}:{v}"))
            .collect();
        let annotations = match !annotations.is_empty() {
            true => format!(" map[{}]", annotations.join(" ")),
            false => String::new(),
        };
        events.push(format!("Warning Evicted {}{annotations}", eviction.message));
    }
    let names: Vec<String> = evictions
        .iter()
        .map(|eviction| eviction.pod.key().name.to_string())
        .collect();
    let has = |condition| decision.conditions.contains(&condition);
    Expected {
        kills: some(evictions.iter().map(|eviction| kill(eviction)).collect()),
        evicted: some(names),
        events: some(events),
        image_gc,
        container_gc,
        memory_pressure: has(PressureCondition::Memory),
        disk_pressure: has(PressureCondition::Disk),
        pid_pressure: has(PressureCondition::Pid),
    }
}

fn some<T>(items: Vec<T>) -> Option<Vec<T>> {
    Some(items).filter(|items| !items.is_empty())
}

fn kill(eviction: &Eviction) -> Value {
    let mut status = PodStatus {
        phase: Some("Running".to_owned()),
        ..PodStatus::default()
    };
    eviction.apply(&mut status, &Time(Timestamp::UNIX_EPOCH));
    without_time(json!({
        "pod": eviction.pod.key().name.to_string(),
        "evict": true,
        "gracePeriodOverride": eviction.grace_period.as_secs(),
        "status": status,
    }))
}

/// The time of a transition is that of the recording; no time is `null` in Go, and absent here.
fn without_time(mut kill: Value) -> Value {
    if let Some(conditions) = kill["status"]["conditions"].as_array_mut() {
        for condition in conditions {
            let condition = condition.as_object_mut().unwrap();
            condition.remove("lastProbeTime");
            assert!(condition.remove("lastTransitionTime").is_some());
        }
    }
    kill
}

/// Parses the summary, and checks that it is written as it was read.
fn summary(recorded: &Value) -> Summary {
    let summary: Summary = serde_json::from_value(recorded.clone()).unwrap();
    assert_eq!(&serde_json::to_value(&summary).unwrap(), recorded);
    summary
}

/// The first step that differs: what was decided with each order of thresholds.
fn replay(run: Run) -> Result<(), String> {
    let file_systems = run.file_systems();
    let mut config = run.config();
    let mut state = EvictionState::default();
    let mut pods: Vec<Arc<Pod>> = run.pods.into_iter().flatten().map(Arc::new).collect();
    let mut now = Instant::now();
    for (index, mut step) in run.steps.into_iter().enumerate() {
        now += Duration::from_secs(step.advance_seconds);
        step.expected.kills = step
            .expected
            .kills
            .map(|kills| kills.into_iter().map(without_time).collect());
        step.expected.kills = step.expected.kills.and_then(some);
        step.expected.evicted = step.expected.evicted.and_then(some);
        step.expected.events = step.expected.events.and_then(some);
        let (before, after) = (
            summary(&step.summary),
            step.summary_after_gc.as_ref().map(summary),
        );
        let mut others = Vec::new();
        let decided = (0..config.thresholds.len().max(1)).find_map(|first| {
            let mut config = config.clone();
            if !config.thresholds.is_empty() {
                config.thresholds[..=first].rotate_right(1);
            }
            let (decision, next) = decide(&config, file_systems, &state, &before, &pods, now);
            // Without one, the kubelet did not collect: this decision differs anyway.
            let relieved = || is_relieved(&config, file_systems, after.as_ref().unwrap_or(&before));
            let shown = shown(&decision, relieved);
            if shown == step.expected {
                return Some(next);
            }
            others.push(shown);
            None
        });
        // From now on, these thresholds may be picked, too.
        config = config.on(file_systems);
        state = decided.ok_or_else(|| {
            format!(
                "case {} step {index}\n expected {:#?}\n  decided {:#?}",
                run.case,
                step.expected,
                others.first()
            )
        })?;
        let gone = step.expected.evicted.unwrap_or_default();
        pods.retain(|pod| !gone.iter().any(|name| **name == *pod.key().name));
    }
    Ok(())
}

#[test]
fn every_recorded_run_is_decided_as_the_kubelet_decided() {
    let runs = runs();
    let all = runs.len();
    let failures: Vec<String> = runs.into_iter().filter_map(|run| replay(run).err()).collect();
    for failure in failures.iter().take(3) {
        println!("{failure}");
    }
    assert!(failures.is_empty(), "{} of {all} runs differ", failures.len());
}
