//! The engines of an agent: gathered while it is built, run together.

use std::collections::HashMap;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::error::{Error, Result};

type Start = Box<dyn FnOnce(CancellationToken) -> BoxFuture<'static, Result<()>> + Send>;
type Last = Box<dyn FnOnce(CancellationToken, CancellationToken) -> BoxFuture<'static, Result<()>> + Send>;

/// The engines that [`NodeAgent::run`](crate::NodeAgent::run) will run. Each has a name for errors.
#[derive(Default)]
pub(crate) struct Tasks {
    engines: Vec<(&'static str, Start)>,
    last: Vec<(&'static str, Last)>,
}

impl Tasks {
    /// Adds an engine that cannot fail.
    pub(crate) fn add<F>(
        &mut self,
        part: &'static str,
        start: impl FnOnce(CancellationToken) -> F + Send + 'static,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        self.engines
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
        self.engines.push((part, Box::new(|token| start(token).boxed())));
    }

    /// Adds an engine that the others need for their last requests: its first token is cancelled when they have ended. An engine that
    /// fails, but has to go on until then, cancels the second token, which ends the others.
    #[cfg_attr(
        not(feature = "certificates"),
        allow(dead_code, reason = "for the access to a cluster")
    )]
    pub(crate) fn add_last<F>(
        &mut self,
        part: &'static str,
        start: impl FnOnce(CancellationToken, CancellationToken) -> F + Send + 'static,
    ) where
        F: Future<Output = Result<()>> + Send + 'static,
    {
        self.last
            .push((part, Box::new(|ends, failed| start(ends, failed).boxed())));
    }

    /// Runs the engine of this name alone, until it ends, for this long at most. The others never run.
    pub(crate) async fn run_only(self, part: &'static str, limit: Duration) {
        let shutdown = CancellationToken::new();
        let named = self.engines.into_iter().find(|(name, _)| *name == part);
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
        let ends = CancellationToken::new();
        let (mut engines, mut last) = (Running::default(), Running::default());
        for (part, start) in self.last {
            last.spawn(part, start(ends.clone(), shutdown.clone()));
        }
        for (part, start) in self.engines {
            engines.spawn(part, start(shutdown.clone()));
        }
        let engines = async {
            let outcome = engines.join(&shutdown).await;
            ends.cancel();
            outcome
        };
        let (outcome, ended) = tokio::join!(engines, last.join(&shutdown));
        outcome.and(ended)
    }
}

/// Engines that run, and their names.
#[derive(Default)]
struct Running {
    tasks: JoinSet<Result<()>>,
    parts: HashMap<tokio::task::Id, &'static str>,
}

impl Running {
    fn spawn(&mut self, part: &'static str, engine: BoxFuture<'static, Result<()>>) {
        let task = self.tasks.spawn(engine);
        self.parts.insert(task.id(), part);
    }

    /// Waits for all. A failure cancels `shutdown`.
    async fn join(mut self, shutdown: &CancellationToken) -> Result<()> {
        let mut outcome = Ok(());
        while let Some(ended) = self.tasks.join_next_with_id().await {
            let ended = match ended {
                Ok((_, ended)) => ended,
                Err(source) => {
                    let part = self.parts.get(&source.id()).copied().unwrap_or_default();
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

    #[tokio::test(start_paused = true)]
    async fn what_ends_last_outlives_the_others() {
        let (order, ended) = std::sync::mpsc::channel();
        let (of_last, mut tasks) = (order.clone(), Tasks::default());
        tasks.add_last("access", |ends, _| async move {
            ends.cancelled().await;
            of_last.send("access").unwrap();
            Ok(())
        });
        tasks.add("statuses", |shutdown| async move {
            shutdown.cancelled().await;
            tokio::time::sleep(Duration::from_secs(5)).await;
            order.send("statuses").unwrap();
        });
        let shutdown = CancellationToken::new();
        shutdown.cancel();
        tasks.run(shutdown).await.unwrap();
        assert_eq!(ended.iter().collect::<Vec<_>>(), ["statuses", "access"]);
    }

    #[tokio::test]
    async fn what_ends_last_ends_the_others_when_it_fails() {
        let mut tasks = Tasks::default();
        tasks.add("waits", |shutdown| async move { shutdown.cancelled().await });
        tasks.add_last("goes on", |ends, failed| async move {
            failed.cancel();
            ends.cancelled().await;
            Err(Error::Misconfigured {
                problems: vec!["port".to_owned()],
            })
        });
        tasks.add_last("fails", |_, _| async {
            Err(Error::Misconfigured {
                problems: vec!["certificate".to_owned()],
            })
        });
        assert!(tasks.run(CancellationToken::new()).await.is_err());
    }
}
