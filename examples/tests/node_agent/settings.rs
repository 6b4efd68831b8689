//! The configuration file changes while the agent runs.

use rustix::process::Signal;

use super::cluster::Cluster;
use crate::standalone::Agent;

#[tokio::test]
async fn a_changed_configuration_is_applied_or_named() {
    let cluster = Cluster::on_processes().await;
    // Writes the file, too.
    let with = |changed: &str| {
        cluster.command(&format!("enableServer: false\nfileCheckFrequency: 100ms\n{changed}"))
    };
    let mut agent = Agent::spawn(&mut with(""));
    agent.logs(&["Starting kubelet"]).await;

    drop(with("imageGCHighThresholdPercent: 91"));
    agent.logs(&["The changed configuration is in force", "imageGCHighThresholdPercent"]).await;
    drop(with("imageGCHighThresholdPercent: 92\nmaxPods: 7\nlogging:\n  verbosity: 4"));
    agent.logs(&["in force in part", "needs_restart=[\"maxPods\"]", "logging.verbosity"]).await;
    drop(with("imageGCHighThresholdPercent: 200"));
    agent.logs(&["not valid", "imageGCHighThresholdPercent"]).await;

    agent.signal(Signal::TERM);
    assert!(agent.ended().await.0.success());
    cluster.end().await;
}
