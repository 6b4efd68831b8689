//! When pods end as the host shuts down, in virtual time; and logind on a bus of its own.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kubelet_core::{
    EventType, NodeEventRecorder, PodAdmitAttributes, PodAdmitHandler, PodExt, PodStatusFn, Rejection,
};
use kubelet_node::shutdown::{
    Inhibitor, Logind, NodeShutdown, ShutdownEvent, ShutdownGracePeriods, ShutdownManager, ShutdownParts,
    ShutdownPods, ShutdownSource, ShutdownTrigger,
};
use kubelet_node::{BoxError, Error, ReadyCheck, Result};
use parking_lot::Mutex;
use serde_json::json;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

/// A host, its pods, and what happened: milliseconds and text. Clones share it.
#[derive(Clone)]
struct Host {
    log: Arc<Mutex<Vec<(u128, String)>>>,
    started: Instant,
    pods: Arc<Mutex<Vec<Arc<Pod>>>>,
    /// Seconds until the containers of a pod have ended, and its volumes are unmounted.
    takes: Arc<BTreeMap<&'static str, (u64, u64)>>,
    state: NodeShutdown,
}

fn pod(name: &str, priority: i32) -> Arc<Pod> {
    let spec = json!({"containers": [], "priority": priority, "terminationGracePeriodSeconds": 600});
    Arc::new(serde_json::from_value(json!({"metadata": {"name": name, "uid": name}, "spec": spec})).unwrap())
}

impl Host {
    fn new(takes: &[(&'static str, i32, u64, u64)]) -> Self {
        let pods = takes.iter().map(|(name, priority, _, _)| pod(name, *priority));
        Self {
            log: Arc::default(),
            started: Instant::now(),
            pods: Arc::new(Mutex::new(pods.collect())),
            takes: Arc::new(
                takes
                    .iter()
                    .map(|(name, _, ends, unmounts)| (*name, (*ends, *unmounts)))
                    .collect(),
            ),
            state: NodeShutdown::new(),
        }
    }

    fn log(&self, what: impl Into<String>) {
        let entry = (self.started.elapsed().as_millis(), what.into());
        self.log.lock().push(entry);
    }

    fn logged(&self) -> Vec<(u128, String)> {
        self.log.lock().clone()
    }

    fn took(&self, pod: &Pod) -> (u64, u64) {
        self.takes[&*pod.key().name]
    }

    fn manager(&self, periods: ShutdownGracePeriods) -> ShutdownManager {
        let host = self.clone();
        let parts = ShutdownParts::new(Arc::new(self.clone()), Arc::new(self.clone()))
            .sync_node_status(move || host.log("report the node"));
        ShutdownManager::new(periods, parts, self.state.clone())
    }

    /// Runs a manager for so many seconds, with these grace periods of all and of critical pods.
    async fn run_for(
        &self,
        seconds: u64,
        (all, critical): (u64, u64),
        source: impl ShutdownSource + 'static,
    ) {
        let period = Duration::from_secs;
        let manager = self.manager(ShutdownGracePeriods::new(period(all), period(critical)));
        let shutdown = CancellationToken::new();
        let running = tokio::spawn(manager.run(source, shutdown.clone()));
        sleep(Duration::from_secs(seconds)).await;
        shutdown.cancel();
        running.await.unwrap();
    }
}

#[async_trait]
impl ShutdownPods for Host {
    fn active_pods(&self) -> Vec<Arc<Pod>> {
        self.pods.lock().clone()
    }

    async fn kill(&self, pod: &Arc<Pod>, grace: Duration, status_fn: PodStatusFn) -> Result<(), BoxError> {
        let mut status = PodStatus::default();
        status_fn(&mut status);
        assert_eq!(status.reason.as_deref(), Some("Terminated"));
        let name = pod.key().name;
        self.log(format!("kill {name} in {} s", grace.as_secs()));
        sleep(Duration::from_secs(self.took(pod).0)).await;
        self.log(format!("{name} has ended"));
        Ok(())
    }

    async fn wait_for_unmount(&self, pod: &Arc<Pod>) {
        sleep(Duration::from_secs(self.took(pod).1)).await;
    }
}

impl NodeEventRecorder for Host {
    fn record_node(&self, _: EventType, reason: &str, message: String) {
        self.log(format!("{reason}: {message}"));
    }
}

/// Reports events at these seconds.
struct Script {
    host: Host,
    events: Vec<(u64, Option<ShutdownEvent>)>,
    /// How long the host waits, at each look; the last one stays.
    delays: Vec<u64>,
}

struct Lock(Host);

impl Inhibitor for Lock {}

impl Drop for Lock {
    fn drop(&mut self) {
        self.0.log("unlock");
    }
}

#[async_trait]
impl ShutdownSource for Script {
    async fn connect(&mut self) -> Result<()> {
        self.host.log("connect");
        Ok(())
    }

    async fn current_inhibit_delay(&mut self) -> Result<Duration> {
        let delay = match self.delays.len() {
            0 => {
                return Err(Error::Shutdown {
                    problem: "no delay".to_owned(),
                });
            }
            1 => self.delays[0],
            _ => self.delays.remove(0),
        };
        self.host.log(format!("delay is {delay} s"));
        Ok(Duration::from_secs(delay))
    }

    async fn override_inhibit_delay(&mut self, delay: Duration) -> Result<()> {
        self.host.log(format!("ask for {} s", delay.as_secs()));
        Ok(())
    }

    async fn inhibit_shutdown(&mut self) -> Result<Box<dyn Inhibitor>> {
        self.host.log("lock");
        Ok(Box::new(Lock(self.host.clone())))
    }

    async fn next_event(&mut self) -> Option<ShutdownEvent> {
        let Some((second, event)) = self.events.first().copied() else {
            return std::future::pending().await;
        };
        tokio::time::sleep_until(self.host.started + Duration::from_secs(second)).await;
        self.events.remove(0);
        event
    }
}

fn script(host: &Host, events: &[(u64, Option<ShutdownEvent>)], delays: &[u64]) -> Script {
    Script {
        host: host.clone(),
        events: events.to_vec(),
        delays: delays.to_vec(),
    }
}

fn entries(of: &[(u128, &str)]) -> Vec<(u128, String)> {
    of.iter().map(|(at, what)| (*at, (*what).to_owned())).collect()
}

const CRITICAL: i32 = 2_000_000_000;
const DOWN: Option<ShutdownEvent> = Some(ShutdownEvent::ShuttingDown);
const CANCELLED: Option<ShutdownEvent> = Some(ShutdownEvent::Cancelled);

#[tokio::test(start_paused = true)]
async fn pods_end_group_by_group_and_then_the_host_goes_on() {
    let host = Host::new(&[("a", 0, 5, 1), ("driver", CRITICAL, 3, 0), ("b", 7, 2, 4)]);
    host.run_for(60, (30, 10), script(&host, &[(1, DOWN)], &[60]))
        .await;
    assert_eq!(
        host.logged(),
        entries(&[
            (0, "connect"),
            (0, "delay is 60 s"),
            (0, "lock"),
            (1000, "NodeShutdown: Shutdown manager detected shutdown event"),
            (1000, "report the node"),
            (1000, "kill a in 20 s"),
            (1000, "kill b in 20 s"),
            (3000, "b has ended"),
            (6000, "a has ended"),
            // The volumes of `b` take four seconds from then on.
            (10_000, "kill driver in 10 s"),
            (13_000, "driver has ended"),
            (13_000, "unlock"),
        ])
    );
    assert!(host.state.is_shutting_down());
}

#[tokio::test(start_paused = true)]
async fn a_group_gets_no_more_than_its_time() {
    let host = Host::new(&[
        ("hangs", 0, 3600, 0),
        ("unmounts", 0, 1, 3600),
        ("driver", CRITICAL, 3600, 0),
    ]);
    host.run_for(60, (30, 10), script(&host, &[(0, DOWN)], &[60]))
        .await;
    let last = host.logged().split_off(5);
    assert_eq!(
        last,
        entries(&[
            (0, "kill hangs in 20 s"),
            (0, "kill unmounts in 20 s"),
            (1000, "unmounts has ended"),
            (20_000, "kill driver in 10 s"),
            (30_000, "unlock"),
        ])
    );
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_shutdown_makes_the_node_ready_again() {
    let host = Host::new(&[]);
    let events = [(1, DOWN), (5, CANCELLED), (9, CANCELLED), (11, DOWN)];
    let watched = host.clone();
    let watching = tokio::spawn(async move {
        let mut seen = Vec::new();
        for _ in 0..3 {
            sleep(Duration::from_secs(4)).await;
            let pods = [];
            let pod = pod("new", 0);
            let admitted = watched.state.admit(&PodAdmitAttributes::new(&pod, &pods)).await;
            seen.push((watched.state.problems(), admitted));
        }
        seen
    });
    host.run_for(13, (30, 10), script(&host, &events, &[30])).await;
    let down = (
        vec!["node is shutting down".to_owned()],
        Err(Rejection::new(
            "NodeShutdown",
            "Pod was rejected as the node is shutting down.",
        )),
    );
    assert_eq!(watching.await.unwrap(), [down.clone(), (vec![], Ok(())), down]);
    let cancelled = "NodeShutdown: Shutdown manager detected shutdown cancellation";
    let mut locks = host.logged();
    locks.retain(|(_, what)| what == "lock" || what == "unlock" || what == cancelled);
    assert_eq!(
        locks,
        entries(&[
            (0, "lock"),
            (1000, "unlock"),
            (5000, cancelled),
            (5000, "lock"),
            (9000, cancelled),
            (9000, "lock"),
            (9000, "unlock"),
            (11_000, "unlock"),
        ])
    );
}

#[tokio::test(start_paused = true)]
async fn the_host_is_asked_to_wait_longer_if_it_must() {
    let host = Host::new(&[]);
    host.run_for(1, (30, 10), script(&host, &[], &[5, 5, 5, 30]))
        .await;
    assert_eq!(
        host.logged(),
        entries(&[
            (0, "connect"),
            (0, "delay is 5 s"),
            (0, "ask for 30 s"),
            (0, "delay is 5 s"),
            (100, "delay is 5 s"),
            (300, "delay is 30 s"),
            (300, "lock"),
            (1000, "unlock"),
        ])
    );
    // It does not take effect: from the start, again and again.
    let host = Host::new(&[]);
    host.run_for(3, (30, 10), script(&host, &[], &[5])).await;
    let at = |what: &str| -> Vec<u128> {
        let logged = host.logged();
        let those = logged.iter().filter(|(_, logged)| logged == what);
        those.map(|(at, _)| *at).collect()
    };
    assert_eq!(at("connect"), [0, 2500]);
    assert_eq!(
        at("delay is 5 s"),
        [0, 0, 100, 300, 700, 1500, 2500, 2500, 2600, 2800]
    );
    assert!(at("lock").is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_lost_connection_is_made_again() {
    let host = Host::new(&[("a", 0, 1, 0)]);
    host.run_for(9, (30, 10), script(&host, &[(2, None), (5, DOWN)], &[30]))
        .await;
    let mut connections = host.logged();
    connections.retain(|(_, what)| ["connect", "lock", "unlock"].contains(&what.as_str()));
    assert_eq!(
        connections,
        entries(&[
            (0, "connect"),
            (0, "lock"),
            (3000, "connect"),
            // The first lock is held until then.
            (3000, "lock"),
            (3000, "unlock"),
            (6000, "unlock"),
        ])
    );
}

#[tokio::test(start_paused = true)]
async fn a_source_that_cannot_be_watched_is_tried_more_and_more_rarely() {
    let host = Host::new(&[]);
    host.run_for(1000, (30, 10), script(&host, &[], &[])).await;
    let seconds: Vec<u128> = host.logged().iter().map(|(at, _)| at / 1000).collect();
    assert_eq!(seconds, [0, 1, 3, 7, 15, 31, 63, 127, 255, 511, 811]);
}

#[tokio::test(start_paused = true)]
async fn a_call_shuts_a_node_down_whose_logind_does_not_answer() {
    let host = Host::new(&[("a", 0, 5, 0)]);
    let (trigger, shutdown) = (ShutdownTrigger::new(), CancellationToken::new());
    let periods = ShutdownGracePeriods::new(Duration::from_secs(30), Duration::ZERO);
    let manager = host.manager(periods).calls(&trigger);
    let running = tokio::spawn(manager.run(script(&host, &[], &[]), shutdown.clone()));
    let began = Instant::now();
    trigger.shut_down().await;
    assert_eq!(began.elapsed(), Duration::from_secs(5));
    assert!(host.state.is_shutting_down());
    shutdown.cancel();
    running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_call_ends_with_the_manager() {
    let host = Host::new(&[("a", 0, 3600, 0)]);
    let (trigger, shutdown) = (ShutdownTrigger::new(), CancellationToken::new());
    let periods = ShutdownGracePeriods::new(Duration::from_secs(7200), Duration::ZERO);
    let running = tokio::spawn(
        host.manager(periods.clone())
            .run(trigger.clone(), shutdown.clone()),
    );
    let caller = trigger.clone();
    let call = tokio::spawn(async move { caller.shut_down().await });
    sleep(Duration::from_secs(10)).await;
    assert!(!call.is_finished());
    shutdown.cancel();
    running.await.unwrap();
    call.await.unwrap();
    // Nobody serves it.
    trigger.shut_down().await;
    // A manager that never runs.
    let unused = host.manager(periods).calls(&trigger);
    let caller = trigger.clone();
    let call = tokio::spawn(async move { caller.shut_down().await });
    sleep(Duration::from_secs(1)).await;
    assert!(!call.is_finished());
    drop(unused);
    call.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn without_grace_periods_nothing_is_watched() {
    for periods in [(0, 0), (5, 6)] {
        let host = Host::new(&[]);
        host.run_for(60, periods, script(&host, &[(1, DOWN)], &[30]))
            .await;
        assert_eq!(host.logged(), []);
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_shuts_a_node_down_that_has_no_logind() {
    let host = Host::new(&[("a", 0, 5, 0)]);
    let (trigger, shutdown) = (ShutdownTrigger::new(), CancellationToken::new());
    let folder = tempfile::tempdir().unwrap();
    let parts =
        ShutdownParts::new(Arc::new(host.clone()), Arc::new(host.clone())).state_folder(folder.path());
    let periods = ShutdownGracePeriods::new(Duration::from_secs(30), Duration::ZERO);
    let manager = ShutdownManager::new(periods, parts, host.state.clone());
    let running = tokio::spawn(manager.run(trigger.clone(), shutdown.clone()));
    for _ in 0..2 {
        let began = Instant::now();
        trigger.shut_down().await;
        assert_eq!(began.elapsed(), Duration::from_secs(5));
        assert!(host.state.is_shutting_down());
    }
    let stored = std::fs::read_to_string(folder.path().join("graceful_node_shutdown_state")).unwrap();
    assert!(!stored.contains("0001-01-01"), "{stored}");
    trigger.cancel();
    while host.state.is_shutting_down() {
        tokio::task::yield_now().await;
    }
    shutdown.cancel();
    running.await.unwrap();
}

/// What the test's logind was asked for.
struct Login {
    delay: Arc<Mutex<u64>>,
    calls: mpsc::UnboundedSender<String>,
    locks: Mutex<Vec<std::io::PipeReader>>,
}

#[zbus::interface(name = "org.freedesktop.login1.Manager")]
impl Login {
    #[zbus(property, name = "InhibitDelayMaxUSec")]
    fn inhibit_delay_max(&self) -> u64 {
        *self.delay.lock()
    }

    fn inhibit(&self, what: String, who: String, why: String, mode: String) -> zbus::OwnedFd {
        self.calls
            .send(format!("inhibit {what} {who} {mode}: {why}"))
            .unwrap();
        let (reader, writer) = std::io::pipe().unwrap();
        self.locks.lock().push(reader);
        std::os::fd::OwnedFd::from(writer).into()
    }

    #[zbus(signal)]
    async fn prepare_for_shutdown(
        emitter: &zbus::object_server::SignalEmitter<'_>,
        start: bool,
    ) -> zbus::Result<()>;
}

/// The service manager: it makes logind read its configuration.
struct Systemd {
    delay: Arc<Mutex<u64>>,
    calls: mpsc::UnboundedSender<String>,
}

#[zbus::interface(name = "org.freedesktop.systemd1.Manager")]
impl Systemd {
    fn kill_unit(&self, unit: String, who: String, signal: i32) {
        self.calls.send(format!("kill {unit} {who} {signal}")).unwrap();
        *self.delay.lock() = 30_000_000;
    }
}

#[tokio::test]
async fn logind_waits_for_the_lock() {
    let folder = tempfile::tempdir().unwrap();
    let address = format!("unix:path={}", folder.path().join("bus").display());
    let daemon = tokio::process::Command::new("dbus-daemon")
        .args(["--session", "--nofork", "--print-address", "--address", &address])
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn();
    let Ok(mut daemon) = daemon else {
        assert!(std::env::var_os("CI").is_none(), "there is no dbus-daemon");
        println!("SKIPPED: there is no dbus-daemon");
        return;
    };
    let mut lines = BufReader::new(daemon.stdout.take().unwrap()).lines();
    lines.next_line().await.unwrap().unwrap();

    let (calls, mut called) = mpsc::unbounded_channel();
    let delay = Arc::new(Mutex::new(5_000_000));
    let login = Login {
        delay: delay.clone(),
        calls: calls.clone(),
        locks: Mutex::default(),
    };
    let path = "/org/freedesktop/login1";
    let bus = zbus::connection::Builder::address(address.as_str())
        .serve_at(path, login)
        .serve_at("/org/freedesktop/systemd1", Systemd { delay, calls })
        .name("org.freedesktop.login1")
        .name("org.freedesktop.systemd1")
        .build()
        .await
        .unwrap();

    let host = Host::new(&[("a", 0, 0, 0)]);
    let config = folder.path().join("logind.conf.d");
    let shutdown = CancellationToken::new();
    let manager = host.manager(ShutdownGracePeriods::new(
        Duration::from_secs(30),
        Duration::from_secs(10),
    ));
    let running = tokio::spawn(manager.run(Logind::at(&address, &config), shutdown.clone()));
    assert_eq!(called.recv().await.unwrap(), "kill systemd-logind.service all 1");
    assert_eq!(
        std::fs::read_to_string(config.join("99-kubelet.conf")).unwrap(),
        "# Kubelet logind override\n[Login]\nInhibitDelayMaxSec=30\n"
    );
    let inhibited = "inhibit shutdown kubelet delay: Kubelet needs time to handle node shutdown";
    assert_eq!(called.recv().await.unwrap(), inhibited);

    let served = bus.object_server().interface::<_, Login>(path).await.unwrap();
    Login::prepare_for_shutdown(served.signal_emitter(), true)
        .await
        .unwrap();
    // The lock is released: its pipe ends.
    let mut lock = served.get().await.locks.lock().pop().unwrap();
    let ended = tokio::task::spawn_blocking(move || std::io::Read::read(&mut lock, &mut [0]));
    assert_eq!(ended.await.unwrap().unwrap(), 0);
    assert!(host.state.is_shutting_down());
    assert!(host.logged().iter().any(|(_, what)| what == "a has ended"));

    // Another connection than that of logind may report it, too.
    let other = zbus::connection::Builder::address(address.as_str());
    let (other, manager) = (other.build().await.unwrap(), "org.freedesktop.login1.Manager");
    let cancelled = other.emit_signal(None::<&str>, path, manager, "PrepareForShutdown", &false);
    cancelled.await.unwrap();
    assert_eq!(called.recv().await.unwrap(), inhibited);
    assert!(!host.state.is_shutting_down());
    shutdown.cancel();
    running.await.unwrap();
    daemon.kill().await.unwrap();
}
