//! The engines of an agent: gathered while it is built, run together.

use std::collections::HashMap;
use std::time::Duration;

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

    /// Runs the engine of this name alone, until it ends, for this long at most. The others never run.
    pub(crate) async fn run_only(self, part: &'static str, limit: Duration) {
        let shutdown = CancellationToken::new();
        let named = self.0.into_iter().find(|(name, _)| *name == part);
        // Dropping the others drops what they hold.
        let Some((_, start)) = named else { return };
        match tokio::time::timeout(limit, start(shutdown)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, part, "a part of the agent has failed"),
            Err(_) => tracing::warn!(part, "a part of the agent has not ended in time"),
        }
    }

    /// Runs all until `shutdown`. If one fails, the others are stopped.
    pub(crate) async fn run(self, shutdown: CancellationToken) -> Result<()> {
        let (mut running, mut parts) = (JoinSet::new(), HashMap::new());
        for (part, start) in self.0 {
            let task = running.spawn(start(shutdown.clone()));
            parts.insert(task.id(), part);
        }
        let mut outcome = Ok(());
        while let Some(ended) = running.join_next_with_id().await {
            let ended = match ended {
                Ok((_, ended)) => ended,
                Err(source) => {
                    let part = parts.get(&source.id()).copied().unwrap_or_default();
                    Err(Error::Panicked { part, source })
                }
            };
            if let Err(error) = ended {
                tracing::error!(%error, "a part of the agent has failed");
                shutdown.cancel();
                outcome = outcome.and(Err(error));
            }
        }
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_part_that_fails_ends_the_others_and_is_named() {
        let mut tasks = Tasks::default();
        tasks.add("waits", |shutdown| async move { shutdown.cancelled().await });
        tasks.add("breaks", |_| async { panic!("on purpose") });
        let error = tasks.run(CancellationToken::new()).await.unwrap_err();
        assert!(matches!(error, Error::Panicked { part: "breaks", .. }), "{error}");
    }
}
