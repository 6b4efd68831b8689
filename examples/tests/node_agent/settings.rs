//! The configuration file changes while the agent runs.

use std::fs;

use rustix::process::Signal;

use super::cluster::Cluster;
use crate::standalone::Agent;

#[tokio::test]
async fn a_changed_configuration_is_applied_or_named() {
    let cluster = Cluster::on_processes().await;
    let drop_ins = cluster.path("config.d");
    fs::create_dir(&drop_ins).unwrap();
    let mut command = cluster.command("enableServer: false\nfileCheckFrequency: 100ms");
    let mut agent =
        Agent::spawn(command.arg("--config-dir").arg(&drop_ins).env("KUBELET_CONFIG_DROPIN_DIR_ALPHA", "1"));
    agent.logs(&["Starting kubelet"]).await;
    let drop_in = |text: &str| {
        let header = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";
        // It is there as a whole or not at all.
        let (new, file) = (cluster.path("new.conf"), drop_ins.join("10-change.conf"));
        fs::write(&new, format!("{header}{text}\n")).unwrap();
        fs::rename(new, file).unwrap();
    };

    drop_in("imageGCHighThresholdPercent: 91");
    agent.logs(&["The changed configuration is in force", "imageGCHighThresholdPercent"]).await;
    drop_in("imageGCHighThresholdPercent: 92\nmaxPods: 7\nlogging:\n  verbosity: 4");
    agent.logs(&["in force in part", "needs_restart=[\"maxPods\"]", "logging.verbosity"]).await;
    drop_in("imageGCHighThresholdPercent: 200");
    agent.logs(&["not valid", "imageGCHighThresholdPercent"]).await;

    agent.signal(Signal::TERM);
    assert!(agent.ended().await.0.success());
    cluster.end().await;
}
