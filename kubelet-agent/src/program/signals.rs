//! The signal that the host shuts down.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::agent::NodeAgent;
use crate::error::{Error, Result};

/// How long the agent runs on when its pods have ended, so that the node's status, the statuses of pods and events reach the
/// API server. The kubelet runs until the host ends it.
const LAST_REPORTS: Duration = Duration::from_secs(5);

/// Runs the agent. Upon SIGPWR, its pods end in order, and then the agent.
pub(super) async fn run(agent: NodeAgent, shutdown: CancellationToken) -> Result<()> {
    use rustix::process::Signal;
    use tokio::signal::unix::{SignalKind, signal};

    let handle = agent.handle();
    if !handle.delays_shut_down() {
        return agent.run(shutdown).await;
    }
    let power = signal(SignalKind::from_raw(Signal::POWER.as_raw()));
    let mut power = power.map_err(|source| Error::Io {
        what: "cannot handle SIGPWR".to_owned(),
        source,
    })?;
    let (ends, reports) = (shutdown.clone(), handle.joins_cluster);
    let upon_signal = async {
        power.recv().await;
        tracing::info!("SIGPWR: the host shuts down");
        handle.shut_down().await;
        if reports {
            tokio::time::sleep(LAST_REPORTS).await;
        }
        ends.cancel();
        std::future::pending::<()>().await;
    };
    tokio::select! {
        biased;
        ended = agent.run(shutdown) => ended,
        () = upon_signal => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;
    use k8s_openapi::api::core::v1::{Event, Node};
    use kubelet_core::{Clock, Disk};
    use kubelet_testing::{ApiServer, MemoryRuntime, User, eventually};
    use rustix::process::{Signal, getpid, kill_process};
    use std::sync::Arc;

    #[tokio::test(start_paused = true)]
    async fn the_cluster_receives_the_last_reports() {
        let (folder, server) = (tempfile::tempdir().unwrap(), ApiServer::new());
        let mut settings = Settings::new(folder.path());
        settings.node_name = "node-1".to_owned();
        settings.node_ip = "127.0.0.1".to_owned();
        settings.configuration.shutdown_grace_period = "2s".parse().unwrap();
        let agent = NodeAgent::builder(settings)
            .containers(Arc::new(MemoryRuntime::new(Clock::system())))
            .client(server.client_as(User::node("node-1")))
            .configure_node(|node| node.ready_check(Vec::new))
            .disk(Disk::inline())
            .build()
            .await
            .unwrap();
        let running = tokio::spawn(run(agent, CancellationToken::new()));
        let node = || server.get::<Node>("", "node-1").unwrap();
        eventually!(node(), |node| node.is_some());
        server.faults().on_any_call().slow(Duration::from_secs(1));
        kill_process(getpid(), Signal::POWER).unwrap();
        running.await.unwrap().unwrap();

        let conditions = node().unwrap().status.unwrap().conditions.unwrap();
        let ready = conditions.iter().find(|it| it.type_ == "Ready").unwrap();
        assert_eq!(ready.status, "False");
        let message = ready.message.as_deref().unwrap_or_default();
        assert!(message.contains("node is shutting down"), "{message}");
        let events = server.list::<Event>().unwrap();
        let has_event = events
            .iter()
            .any(|it| it.reason.as_deref() == Some("NodeShutdown"));
        assert!(has_event, "{events:?}");
    }
}
