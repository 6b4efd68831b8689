//! The merger: what it tells of snapshots and deltas in each mode, and that its consumer ends up with what
//! it holds.
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kubelet_config::PodConfigNotificationMode::{self, Incremental, Snapshot, SnapshotAndUpdates};
use kubelet_config::{PodOperation, PodStorage, PodUpdate, SourceStatus, SourceUpdate};
use kubelet_core::{Clock, Event, EventRecorder, PodExt, PodUid};
use parking_lot::Mutex;
use proptest::prelude::*;
use serde_json::json;

#[derive(Default)]
struct Events(Mutex<Vec<String>>);

impl EventRecorder for Events {
    fn record(&self, event: Event<'_>) {
        self.0.lock().push(format!("{} {}", event.reason, event.message));
    }
}

fn storage(mode: PodConfigNotificationMode) -> (PodStorage, Arc<Events>) {
    let events = Arc::new(Events::default());
    (PodStorage::new(mode, events.clone(), Clock::system()), events)
}

fn pod(name: &str, uid: &str, image: &str) -> Arc<Pod> {
    let pod = json!({
        "metadata": {"name": name, "namespace": "ns", "uid": uid},
        "spec": {"containers": [{"name": "c", "image": image}]},
    });
    Arc::new(serde_json::from_value(pod).unwrap())
}

fn with(pod: &Pod, path: &str, value: serde_json::Value) -> Arc<Pod> {
    let mut json = serde_json::to_value(pod).unwrap();
    let (parent, key) = path.rsplit_once('/').unwrap();
    json.pointer_mut(parent).unwrap()[key] = value;
    Arc::new(serde_json::from_value(json).unwrap())
}

fn set(pods: &[&Arc<Pod>]) -> SourceUpdate {
    SourceUpdate::Snapshot(pods.iter().copied().cloned().collect())
}

fn brief(updates: &[PodUpdate]) -> String {
    let brief = |update: &PodUpdate| {
        let uids: Vec<_> = update.pods.iter().map(|pod| pod.uid_str()).collect();
        format!("{:?}({})", update.op, uids.join(","))
    };
    updates.iter().map(brief).collect::<Vec<_>>().join(" ")
}

#[test]
fn each_mode_sends_its_operations() {
    let (a, b, c) = (pod("a", "1", "i"), pod("b", "2", "i"), pod("c", "3", "i"));
    let changed = with(&a, "/metadata/labels", json!({"x": "y"}));
    let deleting = with(&a, "/metadata/deletionTimestamp", json!("2024-01-01T00:00:00Z"));
    let running = with(&b, "/status", json!({"phase": "Running"}));
    let steps: [(SourceUpdate, [&str; 3]); 8] = [
        (set(&[]), ["Add()", "Set()", "Set()"]),
        (set(&[]), ["", "", ""]),
        (set(&[&a, &b]), ["Add(1,2)", "Set(1,2)", "Set(1,2)"]),
        (set(&[&a, &b]), ["", "", ""]),
        (set(&[&changed, &b]), ["Update(1)", "Update(1)", "Set(1,2)"]),
        (
            set(&[&changed, &running]),
            ["Reconcile(2)", "Reconcile(2)", "Set(1,2)"],
        ),
        (
            set(&[&deleting, &running]),
            ["Delete(1)", "Delete(1)", "Set(1,2)"],
        ),
        (
            set(&[&c, &b]),
            [
                "Remove(1) Add(3) Reconcile(2)",
                "Set(2,3) Reconcile(2)",
                "Set(2,3)",
            ],
        ),
    ];
    for (index, mode) in [Incremental, SnapshotAndUpdates, Snapshot]
        .into_iter()
        .enumerate()
    {
        let (mut storage, _) = storage(mode);
        for (step, (update, expected)) in steps.iter().enumerate() {
            let told = storage.merge("s", update.clone());
            assert_eq!(brief(&told), expected[index], "{mode:?}, step {step}");
        }
    }
}

#[test]
fn deltas_touch_one_pod() {
    let (mut storage, _) = storage(Incremental);
    let mut merge = |update| brief(&storage.merge("s", update));
    let a = pod("a", "1", "i:1");
    assert_eq!(
        merge(SourceUpdate::Applied(a.clone())),
        "",
        "nothing before the first snapshot"
    );
    assert_eq!(merge(SourceUpdate::Deleted("1".into())), "");
    assert_eq!(merge(set(&[&a])), "Add(1)");
    assert_eq!(merge(SourceUpdate::Applied(a)), "");
    assert_eq!(merge(SourceUpdate::Applied(pod("a", "1", "i:2"))), "Update(1)");
    assert_eq!(merge(SourceUpdate::Applied(pod("b", "2", "i:1"))), "Add(2)");
    assert_eq!(
        merge(SourceUpdate::Applied(pod("b", "3", "i:1"))),
        "Remove(2) Add(3)",
        "a name is one pod's"
    );
    assert_eq!(merge(SourceUpdate::Deleted("2".into())), "", "gone is gone");
    assert_eq!(merge(SourceUpdate::Deleted("1".into())), "Remove(1)");
    assert_eq!(merge(set(&[])), "Remove(3)");
}

#[test]
fn a_pod_keeps_its_identity_and_what_the_node_noted() {
    let start: Timestamp = "2024-01-01T00:00:00.5Z".parse().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let _in_runtime = runtime.enter();
    tokio::time::pause();
    let mut storage = PodStorage::new(
        Incremental,
        Arc::new(Events::default()),
        Clock::starting_at(start),
    );
    let first = with(&pod("a", "1", "i:1"), "/metadata/resourceVersion", json!("1"));
    let address = Arc::as_ptr(&first);
    let told = storage.merge("s", SourceUpdate::Snapshot(vec![first]));
    assert_eq!(
        Arc::as_ptr(&told[0].pods[0]),
        address,
        "what nobody else holds is not copied"
    );
    assert_eq!(
        told[0].pods[0].annotation("kubernetes.io/config.seen"),
        Some("2024-01-01T00:00:00.5Z")
    );
    assert_eq!(told[0].pods[0].source(), Some("s"));

    runtime.block_on(tokio::time::advance(std::time::Duration::from_secs(5)));
    let second = with(&pod("a", "1", "i:2"), "/metadata/resourceVersion", json!("2"));
    let second = with(
        &second,
        "/metadata/annotations",
        json!({"kubernetes.io/config.seen": "never", "k": "v"}),
    );
    let told = storage.merge("s", SourceUpdate::Applied(second));
    let updated = &told[0].pods[0];
    assert_eq!(
        updated.annotation("kubernetes.io/config.seen"),
        Some("2024-01-01T00:00:00.5Z")
    );
    assert_eq!(updated.annotation("k"), Some("v"));
    assert_eq!(updated.metadata.resource_version.as_deref(), Some("1"));
}

#[test]
fn duplicates_are_reported_and_ignored() {
    let (mut storage, events) = storage(Incremental);
    let (a, same_name) = (pod("a", "1", "i"), pod("a", "2", "i"));
    let (same_uid, nobody) = (pod("b", "1", "i"), pod("c", "", "i"));
    let told = storage.merge("s", set(&[&a, &same_name, &same_uid, &nobody]));
    assert_eq!(brief(&told), "Add(1)");
    assert_eq!(
        *events.0.lock(),
        [
            "FailedValidation Error validating pod a_ns(2) from s due to duplicate pod name \"a\", ignoring",
            "FailedValidation Error validating pod b_ns(1) from s due to duplicate pod UID \"1\", ignoring",
            "FailedValidation Error validating pod c_ns() from s due to its missing UID, ignoring",
        ]
    );
    // Another source's pods are its own affair.
    assert_eq!(brief(&storage.merge("t", set(&[&same_name]))), "Add(2)");
}

/// The same `Arc`s again are no news, but only if they are all there, once, and no other.
#[test]
fn the_same_again_in_other_numbers() {
    let (mut storage, events) = storage(Incremental);
    let (a, b, c) = (pod("a", "1", "i"), pod("b", "2", "i"), pod("c", "3", "i"));
    let mut merge = |pods: &[&Arc<Pod>]| brief(&storage.merge("s", set(pods)));
    assert_eq!(merge(&[&a, &b]), "Add(1,2)");
    assert_eq!(merge(&[&b, &a]), "");
    assert_eq!(
        merge(&[&a, &a]),
        "Remove(2)",
        "one of them twice, the other not at all"
    );
    assert_eq!(events.0.lock().len(), 1);
    assert_eq!(merge(&[&a, &c]), "Add(3)");
    assert_eq!(
        merge(&[&a, &b]),
        "Remove(3) Add(2)",
        "as many as before, but another"
    );
    // One of them has taken the other's name: the first wins, and the one that was known goes.
    let rival = pod("b", "4", "i");
    assert_eq!(merge(&[&rival, &b]), "Remove(1,2) Add(4)");
    assert_eq!(merge(&[&rival]), "");
}

#[test]
fn what_would_lead_out_of_its_folder_is_passed_over() {
    let (mut storage, events) = storage(Incremental);
    let good = pod("good", "1", "i");
    for hostile in ["../../etc", "..", ".", "/", "a/b", "a\0"] {
        let uid = pod("a", hostile, "i");
        let name = pod(hostile, "2", "i");
        let namespace = with(&pod("a", "3", "i"), "/metadata/namespace", hostile.into());
        for bad in [uid, name, namespace] {
            storage.merge("s", set(&[&good, &bad]));
            storage.merge("s", SourceUpdate::Applied(bad));
            assert_eq!(storage.merged_state().len(), 1, "{hostile:?}");
        }
    }
    let told = events.0.lock();
    assert!(
        told.iter()
            .all(|event| event.contains("cannot be part of a path")),
        "{told:?}"
    );
}

#[test]
fn a_sources_trouble_shows_in_its_status_and_nowhere_else() {
    let (mut storage, _) = storage(Incremental);
    let gone = |message: &str| SourceUpdate::Unavailable {
        message: message.into(),
    };
    assert_eq!(storage.source_status("s"), SourceStatus::NotSeen);
    assert!(storage.merge("s", gone("early")).is_empty());
    assert_eq!(storage.source_status("s"), SourceStatus::NotSeen);

    storage.merge("s", set(&[&pod("a", "1", "i")]));
    storage.merge("t", set(&[]));
    assert_eq!(storage.source_status("s"), SourceStatus::Ready);
    let problem = SourceUpdate::Problem {
        item: "x".into(),
        message: "bad".into(),
    };
    assert!(storage.merge("s", problem).is_empty());
    assert_eq!(storage.source_status("s"), SourceStatus::Ready);

    assert!(storage.merge("s", gone("first")).is_empty());
    let SourceStatus::Stale { since, .. } = storage.source_status("s") else {
        panic!()
    };
    assert!(storage.merge("s", gone("second")).is_empty());
    let second = SourceStatus::Stale {
        since,
        message: "second".into(),
    };
    assert_eq!(storage.source_status("s"), second, "stale since the first");
    assert_eq!(storage.source_status("t"), SourceStatus::Ready);
    assert_eq!(storage.merged_state().len(), 1);

    assert!(storage.merge("s", SourceUpdate::Available).is_empty());
    assert_eq!(storage.source_status("s"), SourceStatus::Ready);
    assert_eq!(storage.merged_state().len(), 1);
    assert!(storage.merge("u", SourceUpdate::Available).is_empty());
    assert_eq!(
        storage.source_status("u"),
        SourceStatus::NotSeen,
        "it has told no pods yet"
    );

    storage.merge("s", gone("third"));
    storage.merge("s", set(&[]));
    assert_eq!(storage.source_status("s"), SourceStatus::Ready);
}

/// One word of one of three sources about a handful of pods.
#[derive(Clone, Debug)]
enum Word {
    Snapshot(Vec<PodSpec>),
    Applied(PodSpec),
    Deleted(u8),
    Unavailable,
}

#[derive(Clone, Debug)]
struct PodSpec {
    name: u8,
    life: u8,
    image: u8,
    phase: u8,
    deleting: bool,
}

impl PodSpec {
    fn pod(&self) -> Arc<Pod> {
        let mut pod = json!({
            "metadata": {"name": format!("p{}", self.name), "namespace": "ns", "uid": format!("{}-{}", self.name, self.life)},
            "spec": {"containers": [{"name": "c", "image": format!("i:{}", self.image)}]},
            "status": {"phase": format!("{}", self.phase)},
        });
        if self.deleting {
            pod["metadata"]["deletionTimestamp"] = json!("2024-01-01T00:00:00Z");
        }
        Arc::new(serde_json::from_value(pod).unwrap())
    }
}

fn pod_spec() -> impl Strategy<Value = PodSpec> {
    (0..5_u8, 0..2_u8, 0..2_u8, 0..2_u8, prop::bool::weighted(0.2)).prop_map(
        |(name, life, image, phase, deleting)| PodSpec {
            name,
            life,
            image,
            phase,
            deleting,
        },
    )
}

fn words() -> impl Strategy<Value = Vec<(u8, Word)>> {
    let word = prop_oneof![
        3 => prop::collection::vec(pod_spec(), 0..6).prop_map(Word::Snapshot),
        4 => pod_spec().prop_map(Word::Applied),
        2 => (0..10_u8).prop_map(Word::Deleted),
        1 => Just(Word::Unavailable),
    ];
    prop::collection::vec((0..3_u8, word), 1..30)
}

fn update(word: &Word) -> SourceUpdate {
    match word {
        Word::Snapshot(pods) => SourceUpdate::Snapshot(pods.iter().map(PodSpec::pod).collect()),
        Word::Applied(pod) => SourceUpdate::Applied(pod.pod()),
        Word::Deleted(which) => SourceUpdate::Deleted(PodUid::from(format!("{}-{}", which / 2, which % 2))),
        Word::Unavailable => SourceUpdate::Unavailable {
            message: "away".into(),
        },
    }
}

/// The pods of each source as a consumer of the updates knows them.
type Known = BTreeMap<(String, String), Arc<Pod>>;

fn consume(known: &mut Known, update: &PodUpdate) {
    let source = update.source.to_string();
    match update.op {
        PodOperation::Set => known.retain(|(of, _), _| *of != source),
        PodOperation::Remove => {
            for pod in &update.pods {
                known
                    .remove(&(source.clone(), pod.uid_str().to_owned()))
                    .expect("known before it is removed");
            }
            return;
        }
        _ => {}
    }
    for pod in &update.pods {
        let before = known.insert((source.clone(), pod.uid_str().to_owned()), pod.clone());
        let new = matches!(update.op, PodOperation::Add | PodOperation::Set);
        assert_eq!(before.is_none(), new, "{:?} of {}", update.op, pod.uid_str());
    }
}

fn plain(pods: impl IntoIterator<Item = Arc<Pod>>) -> BTreeSet<String> {
    let picture = |pod: Arc<Pod>| serde_json::to_string(&*pod).unwrap();
    pods.into_iter().map(picture).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_consumer_ends_up_with_the_merged_state(words in words(), mode in prop_oneof![Just(Incremental), Just(SnapshotAndUpdates), Just(Snapshot)]) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let _in_runtime = runtime.enter();
        let run = || {
            let clock = Clock::starting_at(Timestamp::UNIX_EPOCH);
            let mut storage = PodStorage::new(mode, Arc::new(Events::default()), clock);
            let mut known = Known::new();
            let mut told = Vec::new();
            for (source, word) in &words {
                let source = format!("s{source}");
                let updates = storage.merge(&source, update(word));
                updates.iter().for_each(|update| consume(&mut known, update));
                assert_eq!(plain(known.values().cloned()), plain(storage.merged_state()));
                assert!(updates.iter().all(|update| *update.source == *source), "a source speaks for itself");
                if matches!(word, Word::Snapshot(_)) {
                    assert_eq!(brief(&storage.merge(&source, update(word))), "", "the same again is no news");
                }
                if matches!(word, Word::Unavailable) {
                    assert_eq!(brief(&updates), "");
                }
                told.push(updates);
            }
            told
        };
        prop_assert_eq!(run(), run());
    }
}
