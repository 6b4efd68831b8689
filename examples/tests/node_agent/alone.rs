//! Without an API server; and the features for service managers.

use std::fs;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::process::Signal;
use serde_json::json;
use tokio::net::UnixDatagram;

use super::cluster::Cluster;
use super::pods::{IMAGE, SERVER};
use crate::standalone::{Agent, until};

#[tokio::test]
async fn alone_it_runs_static_pods_and_notifies_systemd() {
    let cluster = Cluster::on_processes().await;
    let manifest = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "static", "uid": "1-2"}, "spec": {
        "hostNetwork": true,
        "containers": [{"name": "main", "image": IMAGE, "command": ["sh", "-c", SERVER]}]}});
    fs::write(cluster.path("manifests/static.json"), manifest.to_string()).unwrap();
    let systemd = UnixDatagram::bind(cluster.path("notify")).unwrap();
    // Another agent has the lock.
    let lock = fs::File::create(cluster.path("lock")).unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    let mut command = cluster.command("logging: {format: json}");
    command.env("NOTIFY_SOCKET", cluster.path("notify")).env("WATCHDOG_USEC", "1200000");
    command.arg("--lock-file").arg(cluster.path("lock")).arg("--exit-on-lock-contention");
    // Nobody reviews tokens and permissions.
    command.args([
        "--authentication-token-webhook=false",
        "--authorization-mode=AlwaysAllow",
        "--anonymous-auth",
    ]);
    let mut agent = Agent::spawn(&mut command);
    agent.logs(&["Acquiring file lock"]).await;
    assert_eq!(cluster.healthz("/healthz").await, None);
    drop(lock);

    let told = async || {
        let mut word = [0; 64];
        let length =
            tokio::time::timeout(Duration::from_secs(10), systemd.recv(&mut word)).await.ok()?.ok()?;
        Some(String::from_utf8_lossy(&word[..length]).into_owned())
    };
    assert_eq!(until("systemd is notified", told).await, "READY=1");
    assert_eq!(until("the watchdog is notified", told).await, "WATCHDOG=1");
    agent.logs(&["\"phase\":\"Running\"", "\"pod\":\"default/static-"]).await;
    let log = agent.told().log;
    let is_json = |line: &String| serde_json::from_str::<serde_json::Value>(line).is_ok();
    assert!(log.iter().all(is_json), "{log:#?}");
    // Without the privilege to set it, which is ordinary, the log has a line at the level info.
    let is_alarm = |line: &&String| line.contains("OOM score") && !line.contains("\"level\":\"INFO\"");
    assert_eq!(log.iter().find(is_alarm), None);
    let healthy = async || cluster.healthz("/healthz").await.filter(|(status, _)| *status == 200);
    until("it is healthy", healthy).await;

    // Another agent wants it.
    fs::File::open(cluster.path("lock")).unwrap();
    let (status, told) = agent.ended().await;
    assert!(status.success(), "{told:#?}");
    cluster.end().await;
}

#[tokio::test]
async fn what_is_wrong_with_its_configuration_is_said_at_once() {
    let cluster = Cluster::on_processes().await;
    for (config, args, words) in [
        ("maxPods: -1", vec![], "maxPods"),
        ("", vec!["--exit-on-lock-contention"], "no lock file specified"),
        ("", vec!["--kubeconfig", "/nowhere"], "/nowhere"),
        ("", vec!["--no-such-flag"], "no-such-flag"),
        // Without an API server nobody can review tokens. It is reported before the agent waits for its runtime.
        (
            "",
            vec!["--container-runtime-endpoint", "unix:///nowhere.sock"],
            "cannot use webhook authentication",
        ),
    ] {
        let mut agent = Agent::spawn(cluster.command(config).args(&args));
        let (status, told) = agent.ended().await;
        assert!(!status.success());
        assert!(told.log.iter().any(|line| line.contains(words)), "{words}: {told:#?}");
    }
    // It waits for a runtime that is not there yet, and ends when it is asked to.
    let mut command = cluster.command("enableServer: false");
    let mut agent = Agent::spawn(command.args(["--container-runtime-endpoint", "unix:///nowhere.sock"]));
    agent.logs(&["does not answer yet"]).await;
    agent.signal(Signal::TERM);
    assert!(agent.ended().await.0.success());
    cluster.end().await;
}
