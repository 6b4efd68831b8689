//! The signal that the host shuts down.

use tokio_util::sync::CancellationToken;

use crate::{NodeAgent, Result};

/// Runs the agent. Upon SIGPWR, its pods end in order, and then the agent.
#[cfg(feature = "shutdown")]
pub(super) async fn run(agent: NodeAgent, shutdown: CancellationToken) -> Result<()> {
    use rustix::process::Signal;
    use tokio::signal::unix::{SignalKind, signal};

    let handle = agent.handle();
    if !handle.delays_shut_down() {
        return agent.run(shutdown).await;
    }
    let power = signal(SignalKind::from_raw(Signal::POWER.as_raw()));
    let mut power = power.map_err(|source| crate::Error::Io {
        what: "cannot handle SIGPWR".to_owned(),
        source,
    })?;
    let ends = shutdown.clone();
    let upon_signal = async {
        power.recv().await;
        tracing::info!("SIGPWR: the host shuts down");
        handle.shut_down().await;
        ends.cancel();
        std::future::pending::<()>().await;
    };
    tokio::select! {
        biased;
        ended = agent.run(shutdown) => ended,
        () = upon_signal => Ok(()),
    }
}

/// Runs the agent.
#[cfg(not(feature = "shutdown"))]
pub(super) async fn run(agent: NodeAgent, shutdown: CancellationToken) -> Result<()> {
    agent.run(shutdown).await
}
