//! Drivers report the health of their devices, and the statuses of pods show it.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodStatus, ResourceStatus};
use k8s_openapi::jiff::Timestamp;
use kubelet_core::{Clock, DynamicResources as _, PodExt as _, ResourceHealth as _, ResourceUpdates};
use kubelet_plugins::PluginHandler as _;
use kubelet_resources::checkpoint::StateStore as _;
use kubelet_resources::dra::health_v1alpha1::{DeviceHealth, DeviceIdentifier, HealthStatus};
use kubelet_resources::dra::v1::Device;
use kubelet_resources::dra::{DRA_HEALTH_STATE, DraGates, DraManager, DraManagerHandle, DraPlugins};
use kubelet_testing::dra_driver::MemoryDra;
use kubelet_testing::eventually;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::fixture::{DRIVER, World, changed, claim, plugin, pod};

/// When the test begins, by the wall clock.
const BEGIN: &str = "2026-01-01T00:00:00Z";

/// An agent that runs.
struct Agent {
    world: World,
    plugins: DraPlugins,
    handle: DraManagerHandle,
    updates: ResourceUpdates,
    shutdown: CancellationToken,
    run: JoinHandle<()>,
    begun: Instant,
}

impl Agent {
    async fn start() -> Self {
        Self::start_in(World::new(), DraGates::default()).await
    }

    async fn start_in(world: World, gates: DraGates) -> Self {
        Self::start_at(world, gates, BEGIN).await
    }

    async fn start_at(world: World, gates: DraGates, now: &str) -> Self {
        let updates = ResourceUpdates::new();
        let builder = DraManager::builder(world.store.clone(), world.api.clone());
        let manager = builder
            .dialer(Arc::new(world.drivers.clone()))
            .disk(kubelet_core::Disk::inline())
            .gates(gates)
            .clock(Clock::starting_at(now.parse::<Timestamp>().unwrap()))
            .updates(updates.clone())
            .start()
            .await
            .unwrap();
        let shutdown = CancellationToken::new();
        Self {
            plugins: manager.plugins(),
            handle: manager.handle(),
            updates,
            run: tokio::spawn(manager.run(world.pods.clone(), shutdown.clone())),
            shutdown,
            begun: Instant::now(),
            world,
        }
    }

    /// A driver registers and is connected.
    async fn driver(&self) -> MemoryDra {
        let driver = MemoryDra::new(DRIVER);
        self.register(&driver, "1").await;
        driver
    }

    async fn register(&self, driver: &MemoryDra, instance: &str) {
        let plugin = plugin(driver.name(), instance);
        self.world.drivers.serve(&plugin.endpoint, driver);
        self.plugins.register(&plugin).await.unwrap();
    }

    /// A pod whose claims are prepared.
    async fn run_pod(&self, pod: &Pod) {
        let active = &self.world.pods.active;
        let uid = pod.uid_str().to_owned();
        active.lock().unwrap().insert(uid, Arc::new(pod.clone()));
        self.handle.prepare(pod).await.unwrap();
    }

    async fn at(&self, seconds: u64) {
        sleep_until(self.begun + Duration::from_secs(seconds)).await;
        // What happens at this very moment happens first.
        sleep(Duration::from_millis(100)).await;
    }

    fn statuses(&self, pod: &Pod) -> Vec<ResourceStatus> {
        let container = ContainerStatus {
            name: "c".to_owned(),
            ..ContainerStatus::default()
        };
        let mut status = PodStatus {
            container_statuses: Some(vec![container]),
            ..PodStatus::default()
        };
        self.handle.update_allocated_resources_status(pod, &mut status);
        let container = status.container_statuses.unwrap().remove(0);
        let all = container.allocated_resources_status;
        // An empty list is never written.
        assert!(all.as_ref().is_none_or(|all| !all.is_empty()));
        all.unwrap_or_default()
    }

    /// `NAME: ID=HEALTH[ (MESSAGE)] …` for each element.
    fn shown(&self, pod: &Pod) -> Vec<String> {
        let all = self.statuses(pod).into_iter().map(|status| {
            let devices = status.resources.unwrap().into_iter().map(|device| {
                let message = device.message.map(|message| format!(" ({message})"));
                let (id, health) = (device.resource_id, device.health.unwrap());
                format!("{id}={health}{}", message.unwrap_or_default())
            });
            format!("{}: {}", status.name, Vec::from_iter(devices).join(" "))
        });
        all.collect()
    }

    /// The pods to sync by now, in order.
    async fn to_sync(&self) -> Vec<String> {
        let mut pods = Vec::new();
        while let Ok(uid) = tokio::time::timeout(Duration::from_millis(1), self.updates.next()).await {
            pods.push(uid.to_string());
        }
        pods
    }

    fn file(&self) -> Value {
        let contents = self.world.store.read(DRA_HEALTH_STATE).unwrap();
        contents.map_or(Value::Null, |contents| serde_json::from_slice(&contents).unwrap())
    }

    async fn end(self) -> World {
        self.shutdown.cancel();
        self.run.await.unwrap();
        self.world
    }
}

fn health(device: &str, health: HealthStatus) -> DeviceHealth {
    DeviceHealth {
        device: Some(DeviceIdentifier {
            pool_name: "pool".to_owned(),
            device_name: device.to_owned(),
        }),
        health: health.into(),
        ..DeviceHealth::default()
    }
}

fn with(report: DeviceHealth, timeout: i64, message: &str) -> DeviceHealth {
    DeviceHealth {
        health_check_timeout_seconds: timeout,
        message: message.to_owned(),
        ..report
    }
}

/// A pod with the claim `a`.
async fn pod_with_a(agent: &Agent) -> Pod {
    agent.world.api.put(claim("a", &[DRIVER], &["p"]));
    let pod = pod("p", &["a"]);
    agent.run_pod(&pod).await;
    pod
}

/// What the driver does at which second, and from which second on the status shows what. The pod is synced whenever that changes, and
/// only then.
#[tokio::test(start_paused = true)]
async fn a_status_shows_what_the_driver_reported_while_it_is_valid() {
    enum Step {
        Reports(HealthStatus),
        For(HealthStatus, i64),
        Says(&'static str),
        /// The report has other devices only.
        LeavesOut,
        Stops,
        Deregisters,
    }
    use HealthStatus::{Healthy, Unhealthy, Unknown};
    use Step::{Deregisters, For, LeavesOut, Reports, Says, Stops};
    type Case = (
        &'static str,
        &'static [(u64, Step)],
        &'static [(u64, &'static str)],
    );
    let table: &[Case] = &[
        ("no report", &[], &[]),
        (
            "healthy",
            &[(1, Reports(Healthy))],
            &[(1, "Healthy"), (31, "Unknown")],
        ),
        (
            "unhealthy",
            &[(1, Reports(Unhealthy))],
            &[(1, "Unhealthy"), (31, "Unknown")],
        ),
        ("unknown", &[(1, Reports(Unknown))], &[]),
        (
            "it changes",
            &[
                (1, Reports(Healthy)),
                (5, Reports(Unhealthy)),
                (9, Reports(Healthy)),
            ],
            &[(1, "Healthy"), (5, "Unhealthy"), (9, "Healthy"), (39, "Unknown")],
        ),
        (
            "each report is valid for 30 s",
            &[
                (1, Reports(Healthy)),
                (21, Reports(Healthy)),
                (41, Reports(Healthy)),
            ],
            &[(1, "Healthy"), (71, "Unknown")],
        ),
        (
            "a late report is one again",
            &[(1, Reports(Healthy)), (41, Reports(Healthy))],
            &[(1, "Healthy"), (31, "Unknown"), (41, "Healthy"), (71, "Unknown")],
        ),
        (
            "its own time",
            &[(1, For(Healthy, 5))],
            &[(1, "Healthy"), (6, "Unknown")],
        ),
        (
            "no time",
            &[(1, For(Healthy, -5))],
            &[(1, "Healthy"), (31, "Unknown")],
        ),
        ("for ever", &[(1, For(Healthy, i64::MAX))], &[(1, "Healthy")]),
        (
            "it becomes shorter",
            &[(1, Reports(Healthy)), (2, For(Healthy, 5))],
            &[(1, "Healthy"), (7, "Unknown")],
        ),
        (
            "the report leaves it out",
            &[(1, Reports(Unhealthy)), (11, LeavesOut)],
            &[(1, "Unhealthy"), (31, "Unknown")],
        ),
        (
            "a message",
            &[(1, Says("hot")), (2, Says("hotter")), (3, Says("hotter"))],
            &[(1, "Unhealthy (hot)"), (2, "Unhealthy (hotter)"), (33, "Unknown")],
        ),
        (
            "the connection breaks",
            &[(1, Reports(Healthy)), (11, Stops)],
            &[(1, "Healthy"), (11, "Unknown")],
        ),
        (
            "it deregisters",
            &[(1, Reports(Healthy)), (11, Deregisters)],
            &[(1, "Healthy"), (11, "Unknown")],
        ),
    ];
    for (case, steps, expected) in table {
        let agent = Agent::start().await;
        let driver = agent.driver().await;
        let pod = pod_with_a(&agent).await;
        let (mut steps, mut changes) = (steps.iter().peekable(), expected.iter().peekable());
        let mut current = "Unknown";
        for second in 0..80 {
            if let Some((_, step)) = steps.next_if(|(at, _)| *at == second) {
                sleep_until(agent.begun + Duration::from_secs(second)).await;
                match step {
                    Reports(status) => driver.report_health(vec![health("dev-a", *status)]),
                    For(status, seconds) => {
                        driver.report_health(vec![with(health("dev-a", *status), *seconds, "")]);
                    }
                    Says(message) => {
                        driver.report_health(vec![with(health("dev-a", Unhealthy), 0, message)]);
                    }
                    LeavesOut => driver.report_health(vec![health("dev-b", Unhealthy)]),
                    Stops => agent.world.drivers.stop(plugin(DRIVER, "1").endpoint),
                    Deregisters => agent.plugins.deregister(&plugin(DRIVER, "1")).await,
                }
            }
            agent.at(second).await;
            let synced = agent.to_sync().await;
            match changes.next_if(|(at, _)| *at == second) {
                Some((_, now)) => {
                    current = *now;
                    assert_eq!(synced, [pod.uid_str()], "{case}: second {second}");
                }
                None => assert!(synced.is_empty(), "{case}: second {second}"),
            }
            let shown = vec![format!("claim:a: {DRIVER}/device=a={current}")];
            assert_eq!(agent.shown(&pod), shown, "{case}: second {second}");
        }
        assert_eq!(changes.next(), None, "{case}");
        agent.end().await;
    }
}

/// The driver reports at once when it is watched again. The new connection may take some seconds.
#[tokio::test(start_paused = true)]
async fn a_driver_that_is_connected_again_reports_again() {
    let agent = Agent::start().await;
    let driver = agent.driver().await;
    let pod = pod_with_a(&agent).await;
    let shows = |health: &str| vec![format!("claim:a: {DRIVER}/device=a={health}")];
    agent.at(1).await;
    driver.report_health(vec![health("dev-a", HealthStatus::Unhealthy)]);
    eventually!(agent.shown(&pod), |seen| *seen == shows("Unhealthy"));
    assert_eq!(agent.to_sync().await, [pod.uid_str()]);
    agent.world.drivers.stop(plugin(DRIVER, "1").endpoint);
    eventually!(agent.shown(&pod), |seen| *seen == shows("Unknown"));
    assert_eq!(agent.to_sync().await, [pod.uid_str()]);
    agent.world.drivers.serve(plugin(DRIVER, "1").endpoint, &driver);
    eventually!(agent.shown(&pod), |seen| *seen == shows("Unhealthy"));
    assert_eq!(agent.to_sync().await, [pod.uid_str()]);
    // Nothing changes while the report is valid.
    let connected = agent.begun.elapsed().as_secs();
    for second in connected..connected + 29 {
        agent.at(second).await;
        assert!(agent.to_sync().await.is_empty(), "second {second}");
        assert_eq!(agent.shown(&pod), shows("Unhealthy"), "second {second}");
    }
    agent.end().await;
}

/// Only pods with a device that changed are synced.
#[tokio::test(start_paused = true)]
async fn a_change_syncs_the_pods_with_the_device() {
    let agent = Agent::start().await;
    let driver = agent.driver().await;
    agent.world.api.put(claim("a", &[DRIVER], &["p", "q"]));
    agent.world.api.put(claim("b", &[DRIVER], &["r"]));
    for pod in [pod("p", &["a"]), pod("q", &["a"]), pod("r", &["b"])] {
        agent.run_pod(&pod).await;
    }
    let both = |a, b| vec![health("dev-a", a), health("dev-b", b), health("dev-c", b)];
    use HealthStatus::{Healthy, Unhealthy};
    for (report, expected) in [
        (both(Healthy, Healthy), &["uid-p", "uid-q", "uid-r"][..]),
        (both(Healthy, Healthy), &[]),
        (both(Unhealthy, Healthy), &["uid-p", "uid-q"]),
        (both(Unhealthy, Unhealthy), &["uid-r"]),
    ] {
        driver.report_health(report);
        assert_eq!(agent.to_sync().await, expected);
    }
    agent.end().await;
}

/// Claims, requests and devices: the names of the elements, and the ids in them.
#[tokio::test(start_paused = true)]
async fn each_entry_of_a_container_is_an_element() {
    let device = |name: &str, requests: &[&str], ids: &[&str]| Device {
        request_names: requests.iter().map(ToString::to_string).collect(),
        pool_name: "pool".to_owned(),
        device_name: name.to_owned(),
        cdi_device_ids: ids.iter().map(ToString::to_string).collect(),
        share_id: None,
    };
    let agent = Agent::start().await;
    let driver = agent.driver().await;
    driver.set_devices(
        "a",
        vec![
            device("one", &["x"], &["vendor/one=1", "vendor/one=2"]),
            device("two", &["y"], &[]),
            // The same id as the first one.
            device("three", &["x", "y"], &["vendor/one=1"]),
            device("four", &[], &["vendor/four"]),
        ],
    );
    agent.world.api.put(claim("a", &[DRIVER], &["p"]));
    agent.world.api.put(claim("b", &[DRIVER], &["p"]));
    let base = pod("p", &["a", "b"]);
    agent.run_pod(&base).await;
    driver.report_health(vec![
        health("one", HealthStatus::Healthy),
        health("two", HealthStatus::Unhealthy),
    ]);
    agent.to_sync().await;
    let two = format!("{DRIVER}/pool/two=Unhealthy");
    let table: &[(&str, Value, &[String])] = &[
        (
            "whole claim",
            json!([{"name": "a"}]),
            &[format!("claim:a: vendor/one=1=Healthy {two} vendor/four=Unknown")],
        ),
        (
            "a request",
            json!([{"name": "a", "request": "x"}]),
            &["claim:a/x: vendor/one=1=Healthy vendor/four=Unknown".to_owned()],
        ),
        (
            "a subrequest",
            json!([{"name": "a", "request": "x/first"}]),
            &["claim:a/x/first: vendor/one=1=Healthy vendor/four=Unknown".to_owned()],
        ),
        (
            "two requests",
            json!([{"name": "a", "request": "x"}, {"name": "a", "request": "y"}]),
            &[
                "claim:a/x: vendor/one=1=Healthy vendor/four=Unknown".to_owned(),
                format!("claim:a/y: {two} vendor/one=1=Unknown vendor/four=Unknown"),
            ],
        ),
        (
            "two claims",
            json!([{"name": "a", "request": "x"}, {"name": "b"}]),
            &[
                "claim:a/x: vendor/one=1=Healthy vendor/four=Unknown".to_owned(),
                format!("claim:b: {DRIVER}/device=b=Unknown"),
            ],
        ),
        ("no claim", json!([]), &[]),
        ("a claim that is not there", json!([{"name": "c"}]), &[]),
    ];
    for (case, claims, expected) in table {
        let patch = json!({"spec": {"containers": [{"name": "c", "resources": {"claims": claims}}]}});
        assert_eq!(agent.shown(&changed(&base, &patch)), *expected, "{case}");
    }
    // After the claims are unprepared, nothing is known about their devices.
    agent.handle.unprepare(&base).await.unwrap();
    assert!(agent.shown(&base).is_empty());
    agent.end().await;
}

/// A claim that was made from a template has the name that the status of the pod says.
#[tokio::test(start_paused = true)]
async fn a_claim_of_a_template_is_found_by_the_status_of_the_pod() {
    let agent = Agent::start().await;
    let driver = agent.driver().await;
    let pod = pod_with_a(&agent).await;
    driver.report_health(vec![health("dev-a", HealthStatus::Healthy)]);
    agent.to_sync().await;
    let mut patch = json!({"spec": {
        "containers": [{"name": "c", "resources": {"claims": [{"name": "gpu"}]}}],
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}],
    }});
    assert!(agent.shown(&changed(&pod, &patch)).is_empty());
    patch["status"] = json!({"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "a"}]});
    let shown = agent.shown(&changed(&pod, &patch));
    assert_eq!(shown, [format!("claim:gpu: {DRIVER}/device=a=Healthy")]);
    agent.end().await;
}

#[tokio::test(start_paused = true)]
async fn the_gates_turn_off_messages_and_health() {
    for (gate, expected) in [
        ("all", Some("Unhealthy (hot)")),
        ("no message", Some("Unhealthy")),
        ("none", None),
    ] {
        let mut gates = DraGates::default();
        gates.health = gate != "none";
        gates.health_message = gate == "all";
        let agent = Agent::start_in(World::new(), gates).await;
        let driver = agent.driver().await;
        let pod = pod_with_a(&agent).await;
        driver.report_health(vec![with(health("dev-a", HealthStatus::Unhealthy), 0, "hot")]);
        agent.to_sync().await;
        let expected = expected.map(|health| format!("claim:a: {DRIVER}/device=a={health}"));
        assert_eq!(agent.shown(&pod), Vec::from_iter(expected), "{gate}");
        assert_eq!(agent.file().is_null(), gate == "none", "{gate}");
        agent.end().await;
    }
}

/// `TestTruncateHealthMessage`
#[tokio::test(start_paused = true)]
async fn a_long_message_is_cut() {
    let agent = Agent::start().await;
    let driver = agent.driver().await;
    let pod = pod_with_a(&agent).await;
    for (message, expected) in [
        ("x".repeat(1024), "x".repeat(1024)),
        ("x".repeat(1025), "x".repeat(1021) + "..."),
        // Each is two bytes long, and none is cut in the middle.
        ("ä".repeat(600), "ä".repeat(510) + "..."),
    ] {
        driver.report_health(vec![with(health("dev-a", HealthStatus::Healthy), 0, &message)]);
        agent.to_sync().await;
        let device = agent.statuses(&pod).remove(0).resources.unwrap().remove(0);
        assert_eq!(device.message, Some(expected));
    }
    agent.end().await;
}

/// The old and the new plugin of a rolling update report at the same time.
#[tokio::test(start_paused = true)]
async fn the_health_stays_while_one_plugin_of_the_driver_reports() {
    let agent = Agent::start().await;
    let old = agent.driver().await;
    let pod = pod_with_a(&agent).await;
    old.report_health(vec![health("dev-a", HealthStatus::Healthy)]);
    agent.to_sync().await;
    let new = MemoryDra::new(DRIVER);
    agent.register(&new, "2").await;
    new.report_health(vec![health("dev-a", HealthStatus::Healthy)]);
    agent.to_sync().await;
    agent.plugins.deregister(&plugin(DRIVER, "1")).await;
    assert!(agent.to_sync().await.is_empty());
    assert_eq!(agent.shown(&pod), [format!("claim:a: {DRIVER}/device=a=Healthy")]);
    agent.plugins.deregister(&plugin(DRIVER, "2")).await;
    assert_eq!(agent.to_sync().await, ["uid-p"]);
    assert_eq!(agent.shown(&pod), [format!("claim:a: {DRIVER}/device=a=Unknown")]);
    agent.end().await;
}

/// The file has the form of the kubelet's, changes with the reports, and outlasts the agent.
#[tokio::test(start_paused = true)]
async fn reports_outlast_a_restart_while_they_are_valid() {
    let agent = Agent::start().await;
    let driver = agent.driver().await;
    let pod = pod_with_a(&agent).await;
    agent.at(1).await;
    driver.report_health(vec![with(health("dev-a", HealthStatus::Unhealthy), 60, "<hot>")]);
    agent.at(2).await;
    let mut expected = json!({DRIVER: {"Devices": {"pool/dev-a": {
        "PoolName": "pool",
        "DeviceName": "dev-a",
        "Health": "Unhealthy",
        "LastUpdated": "2026-01-01T00:00:01.1Z",
        "HealthCheckTimeout": 60_000_000_000_u64,
        "Message": "<hot>",
    }}}});
    assert_eq!(agent.file(), expected);
    let contents = agent.world.store.read(DRA_HEALTH_STATE).unwrap().unwrap();
    // As Go writes it.
    assert!(String::from_utf8(contents).unwrap().contains(r"\u003chot\u003e"));
    // The same report again is not written.
    let writes = agent.world.store.writes();
    driver.report_health(vec![with(health("dev-a", HealthStatus::Unhealthy), 60, "<hot>")]);
    agent.at(3).await;
    assert_eq!(agent.world.store.writes(), writes);
    let world = agent.end().await;

    // The driver does not come back.
    let agent = Agent::start_at(world, DraGates::default(), "2026-01-01T00:00:30Z").await;
    assert_eq!(
        agent.shown(&pod),
        [format!("claim:a: {DRIVER}/device=a=Unhealthy (<hot>)")]
    );
    agent.at(32).await;
    assert_eq!(agent.to_sync().await, ["uid-p"]);
    assert_eq!(agent.shown(&pod), [format!("claim:a: {DRIVER}/device=a=Unknown")]);
    let device = &mut expected[DRIVER]["Devices"]["pool/dev-a"];
    device["Health"] = json!("Unknown");
    device["Message"] = json!("");
    device["LastUpdated"] = agent.file()[DRIVER]["Devices"]["pool/dev-a"]["LastUpdated"].clone();
    assert_eq!(agent.file(), expected);

    // It is back, and gone for good.
    agent.register(&driver, "1").await;
    agent.at(33).await;
    agent.plugins.deregister(&plugin(DRIVER, "1")).await;
    agent.at(34).await;
    assert_eq!(agent.file(), json!({}));
    agent.end().await;
}

/// Files of a kubelet, and damaged ones: an agent never refuses to start because of this file.
#[tokio::test(start_paused = true)]
async fn files_of_other_agents_are_read() {
    let device = |fields: &str| {
        format!(
            r#"{{"{DRIVER}":{{"Devices":{{"pool/dev-a":{{"PoolName":"pool","DeviceName":"dev-a","Health":"Healthy",{fields}}}}}}}}}"#
        )
    };
    for (case, contents, expected) in [
        (
            "a kubelet's, in another time zone",
            device(
                r#""LastUpdated":"2026-01-01T02:00:00.123456789+02:00","HealthCheckTimeout":30000000000,"Message":"""#,
            ),
            "Healthy",
        ),
        (
            "before timeouts",
            device(r#""LastUpdated":"2025-12-31T23:59:40Z""#),
            "Healthy",
        ),
        (
            "too old",
            device(r#""LastUpdated":"2025-12-31T23:59:20Z""#),
            "Unknown",
        ),
        (
            "the clock was set back",
            device(r#""LastUpdated":"2026-01-01T10:00:00Z""#),
            "Healthy",
        ),
        (
            "never",
            device(r#""LastUpdated":"0001-01-01T00:00:00Z""#),
            "Unknown",
        ),
        ("of a kubelet without drivers", "null".to_owned(), "Unknown"),
        (
            "no devices",
            format!(r#"{{"{DRIVER}":{{"Devices":null}}}}"#),
            "Unknown",
        ),
        ("damaged", "{".to_owned(), "Unknown"),
        ("empty", String::new(), "Unknown"),
    ] {
        let world = World::new();
        world.store.write(DRA_HEALTH_STATE, contents.as_bytes()).unwrap();
        let agent = Agent::start_in(world, DraGates::default()).await;
        let _driver = agent.driver().await;
        let pod = pod_with_a(&agent).await;
        let shown = agent.shown(&pod);
        assert_eq!(
            shown,
            [format!("claim:a: {DRIVER}/device=a={expected}")],
            "{case}"
        );
        agent.end().await;
    }
}
