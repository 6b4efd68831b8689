//! Config maps that change all the time while containers that use them by sub-paths start, on a real containerd. Without
//! containerd or root the tests print `SKIPPED` and pass; in CI they fail.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kubelet_core::PodExt;
use kubelet_testing::Containerd;
use rustix::process::Signal;
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::time::{MissedTickBehavior, interval};

use super::cluster::Cluster;
use super::pods::{IMAGE, pod};
use crate::standalone::{Agent, GUARD};
use crate::variables::number;

/// How many pods there are by default; the variable `KUBELET_TESTING_STORM_PODS` changes this.
const PODS: usize = 12;
/// How often the files of each pod change.
const CHANGES: u32 = 25;
/// How soon one change of a pod's files follows another: all of them last for two seconds, in which the pod starts.
const EVERY: Duration = Duration::from_millis(80);
/// How many pods end within the time that a test may take. More pods may take longer.
const PODS_IN_TIME: usize = 25;

/// The init container of the first pod of a test in which agents die waits for this file in the pod's `emptyDir`.
const GO: &str = "[ \"$WAITS\" != yes ] || until [ -e /mark/go ]; do usleep 10000; done";

/// Succeeds if all files of each volume are of one version. The init container and each start of a container see a
/// version of their own. Exit code 42 restarts it in place, once.
const CHECK: &str = r#"
one() { [ "$(cat /one/a)" = "$(cat /one/b)" ] && [ "$(cat /all/a)" = "$(cat /all/b)" ] && [ -s /secret ]; }
one || { cat /one/a /one/b /all/a /all/b; exit 1; }
[ "$AGAIN" != yes ] || [ -e /mark/again ] || { touch /mark/again; exit 42; }
"#;

fn of<K: DeserializeOwned>(object: serde_json::Value) -> K {
    serde_json::from_value(object).unwrap()
}

fn name(number: usize) -> String {
    format!("storm-{number}")
}

/// The version has several lengths, so that one cannot be taken for another.
fn config_map(number: usize, version: u32) -> ConfigMap {
    let version = format!("version {version}");
    of(json!({"metadata": {"name": name(number), "namespace": "default"},
        "data": {"a": version, "b": version}}))
}

fn secret(number: usize, version: u32) -> Secret {
    of(json!({"metadata": {"name": name(number), "namespace": "default"},
        "stringData": {"key": format!("word {version}")}}))
}

/// Every other pod restarts its container once. `restarts` is what becomes of one that fails otherwise.
fn storm_pod(number: usize, restarts: &str) -> Pod {
    let of_map = json!({"name": name(number)});
    let volumes = json!([
        {"name": "one", "configMap": of_map},
        {"name": "all", "projected": {"sources": [{"configMap": of_map},
            {"downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}}]}},
        {"name": "secret", "secret": {"secretName": name(number)}},
        {"name": "mark", "emptyDir": {}},
    ]);
    let by_sub_path = |volume: &str, at: &str, sub_path: &str| json!({"name": volume, "mountPath": at, "subPath": sub_path});
    let mounts = json!([
        by_sub_path("one", "/one/a", "a"),
        by_sub_path("all", "/all/b", "b"),
        by_sub_path("secret", "/secret", "key"),
        by_sub_path("one", "/one/b", "b"),
        by_sub_path("all", "/all/a", "a"),
        {"name": "mark", "mountPath": "/mark"},
    ]);
    let waits = if restarts == "OnFailure" && number == 0 { "yes" } else { "no" };
    let init = json!({"name": "init", "env": [{"name": "WAITS", "value": waits}], "image": IMAGE, "imagePullPolicy": "IfNotPresent", "volumeMounts": mounts,
        "command": ["sh", "-c", format!("{CHECK}\n{GO}\nsleep 1")]});
    let again = if number.is_multiple_of(2) { "no" } else { "yes" };
    let mut pod = pod(
        &name(number),
        CHECK,
        json!({"volumes": volumes, "volumeMounts": mounts, "restartPolicy": restarts, "initContainers": [init],
            "env": [{"name": "AGAIN", "value": again}], "automountServiceAccountToken": false}),
    );
    let rules = json!([{"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}]);
    let main = &mut pod.spec.as_mut().unwrap().containers[0];
    main.restart_policy = Some(restarts.to_owned());
    main.restart_policy_rules = of(rules);
    pod
}

fn phase(pod: &Pod) -> &str {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    phase.unwrap_or_default()
}

fn has_ended(pod: &Pod) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

/// Whether a container of the pod was started, the init container mostly.
fn has_begun(pod: &Pod) -> bool {
    let statuses = pod.status.as_ref().and_then(|status| status.init_container_statuses.as_ref());
    statuses.is_some_and(|statuses| statuses.iter().any(|status| status.container_id.is_some()))
}

/// Changes the files of each pod from when it begins, until all pods have ended. `meanwhile` is called with the pods.
async fn storm(
    cluster: &Cluster,
    pods: usize,
    restarts: &str,
    mut meanwhile: impl AsyncFnMut(&[Pod]),
) -> Vec<Pod> {
    for number in 0..pods {
        cluster.server.create(&config_map(number, 0)).unwrap();
        cluster.server.create(&secret(number, 0)).unwrap();
        cluster.create(&storm_pod(number, restarts));
    }
    let patience = GUARD * u32::try_from(pods.div_ceil(PODS_IN_TIME)).unwrap();
    let (begun, mut versions) = (Instant::now(), BTreeMap::new());
    let mut turns = interval(EVERY);
    // The API server runs here, too.
    turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        turns.tick().await;
        let found = cluster.server.list::<Pod>().unwrap();
        let ended = found.iter().filter(|pod| has_ended(pod)).count();
        if ended == pods {
            return found;
        }
        assert!(begun.elapsed() < patience, "{ended} of {pods} pods ended: {}", described(&found));
        for pod in found.iter().filter(|pod| has_begun(pod)) {
            let name = pod.key().name;
            let number = name.strip_prefix("storm-").unwrap().parse().unwrap();
            let version = versions.entry(number).or_insert(0);
            if *version < CHANGES {
                *version += 1;
                let mut map: ConfigMap = cluster.server.get("default", &name).unwrap().unwrap();
                map.data = config_map(number, *version).data;
                cluster.server.replace(&map).unwrap();
                let mut changed: Secret = cluster.server.get("default", &name).unwrap().unwrap();
                changed.string_data = secret(number, *version).string_data;
                cluster.server.replace(&changed).unwrap();
            }
        }
        meanwhile(&found).await;
    }
}

/// What became of the containers of the pods that did not succeed.
fn described(pods: &[Pod]) -> String {
    let failed = pods.iter().filter(|pod| phase(pod) != "Succeeded");
    let lines = failed.map(|pod| {
        let status = pod.status.as_ref();
        let of_kind = |statuses: Option<&Vec<_>>| serde_json::to_string(&statuses).unwrap();
        let init = of_kind(status.and_then(|status| status.init_container_statuses.as_ref()));
        let main = of_kind(status.and_then(|status| status.container_statuses.as_ref()));
        format!("{} {}: {init} {main}", pod.key(), phase(pod))
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The versions of files that lie in the pods' volumes, for each volume with more than one.
fn superseded(cluster: &Cluster) -> BTreeSet<PathBuf> {
    let below =
        |dir: PathBuf| std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    let volumes = below(cluster.path("root/pods")).flat_map(|pod| below(pod.join("volumes")));
    let volumes = volumes.flat_map(below);
    let is_version = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        name.starts_with("..2") && path.is_dir()
    };
    volumes.filter(|volume| below(volume.clone()).filter(is_version).count() > 1).collect()
}

fn pods_wanted() -> usize {
    number("KUBELET_TESTING_STORM_PODS").map_or(PODS, |wanted| wanted.try_into().unwrap())
}

fn start(cluster: &Cluster, pods: usize) -> Agent {
    let mut command = cluster.command(&format!("maxPods: {}", pods + 10));
    Agent::spawn(command.arg("--kubeconfig").arg(cluster.path("kubeconfig")))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_pods_start_while_their_files_change() {
    let Some(containerd) = Containerd::start().await.unwrap() else { return };
    let cluster = Cluster::on(tempfile::tempdir().unwrap(), containerd.endpoint()).await;
    let pods = pods_wanted();
    let mut agent = start(&cluster, pods);
    cluster.node_is_ready().await;
    let begun = Instant::now();
    let ended = storm(&cluster, pods, "Never", async |_| {}).await;
    let succeeded = ended.iter().filter(|pod| phase(pod) == "Succeeded").count();
    println!("{succeeded} of {pods} pods started and saw one version, in {:?}", begun.elapsed());
    assert_eq!(succeeded, pods, "{}", described(&ended));
    assert_eq!(superseded(&cluster), BTreeSet::new());
    agent.signal(Signal::TERM);
    assert!(agent.ended().await.0.success());
    cluster.end().await;
}

/// How the containers of a pod ended, those before the last ones included.
fn exit_codes(pod: &Pod) -> impl Iterator<Item = i32> {
    let status = pod.status.iter();
    let statuses =
        status.flat_map(|status| status.init_container_statuses.iter().chain(&status.container_statuses));
    let states = statuses.flatten().flat_map(|status| [&status.state, &status.last_state]);
    states.filter_map(|state| Some(state.as_ref()?.terminated.as_ref()?.exit_code))
}

/// It dies between the preparation of some container's mounts and its start, or soon after.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_next_agent_starts_what_one_has_left_in_a_storm() {
    const PODS: usize = 4;
    let Some(containerd) = Containerd::start().await.unwrap() else { return };
    let cluster = Cluster::on(tempfile::tempdir().unwrap(), containerd.endpoint()).await;
    let (mut agent, mut deaths) = (start(&cluster, PODS), 0);
    cluster.node_is_ready().await;
    let ended = storm(&cluster, PODS, "OnFailure", async |pods: &[Pod]| {
        // Once while init containers start, and once while the others do.
        let begun = pods.iter().filter(|pod| has_begun(pod)).count();
        let is_due = [begun > 0, pods.iter().any(has_ended)];
        if is_due.get(deaths) == Some(&true) {
            deaths += 1;
            agent.kill().await;
            agent = start(&cluster, PODS);
        }
        // Until then one pod goes on, so the second death does not come too late.
        let first = pods.iter().find(|pod| pod.metadata.name == Some(name(0)));
        if let (2, Some(first)) = (deaths, first) {
            let volumes = cluster.path("root/pods").join(first.uid_str()).join("volumes");
            // There is no such folder until the pod's volumes are mounted.
            let _ = std::fs::write(volumes.join("kubernetes.io~empty-dir/mark/go"), "");
        }
    })
    .await;
    assert_eq!(deaths, 2);
    assert!(ended.iter().all(|pod| phase(pod) == "Succeeded"), "{}", described(&ended));
    // A start that the runtime gave up when the agent died ends with 128 or 137.
    let codes: BTreeSet<i32> = ended.iter().flat_map(exit_codes).collect();
    assert!(!codes.contains(&1), "files of two versions: {codes:?}");
    assert_eq!(superseded(&cluster), BTreeSet::new());
    agent.signal(Signal::TERM);
    assert!(agent.ended().await.0.success());
    cluster.end().await;
}
