//! The engines of an agent: gathered while it is built, run together.

use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::{Error, Result};

type Start = Box<dyn FnOnce(CancellationToken) -> BoxFuture<'static, Result<()>> + Send>;

/// The engines that [`NodeAgent::run`](crate::NodeAgent::run) will run. Each has a name for errors.
#[derive(Default)]
pub(crate) struct Tasks(Vec<(&'static str, Start)>);

impl Tasks {
    /// Adds an engine that cannot fail.
    pub(crate) fn add<F>(
        &mut self,
        part: &'static str,
        start: impl FnOnce(CancellationToken) -> F + Send + 'static,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        self.0
            .push((part, Box::new(|token| start(token).map(Ok).boxed())));
    }

    /// Adds an engine whose failure ends the agent.
    pub(crate) fn add_fallible<F>(
        &mut self,
        part: &'static str,
        start: impl FnOnce(CancellationToken) -> F + Send + 'static,
    ) where
        F: Future<Output = Result<()>> + Send + 'static,
    {
        self.0.push((part, Box::new(|token| start(token).boxed())));
    }

    /// Runs all until `shutdown`. If one fails, the others are stopped.
    pub(crate) async fn run(self, shutdown: CancellationToken) -> Result<()> {
        let mut running = JoinSet::new();
        for (part, start) in self.0 {
            let task = start(shutdown.clone());
            // A task of its own for each, so that a panic has the name of its part.
            running.spawn(async move {
                let mut alone = JoinSet::new();
                alone.spawn(task);
                let ended = alone.join_next().await;
                ended.map_or(Ok(()), |ended| {
                    ended.map_err(|source| Error::Panicked { part, source }).flatten()
                })
            });
        }
        let mut outcome = Ok(());
        while let Some(ended) = running.join_next().await {
            let ended = ended
                .map_err(|source| Error::Panicked {
                    part: "agent",
                    source,
                })
                .flatten();
            if let Err(error) = ended {
                tracing::error!(%error, "a part of the agent has failed");
                shutdown.cancel();
                outcome = outcome.and(Err(error));
            }
        }
        outcome
    }
}
