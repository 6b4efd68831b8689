//! The runtime's stream of hints: opened, read, and opened again, without end.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt};
use futures::stream::{BoxStream, StreamExt};
use kubelet_core::{Error, Jitter, PodUid, Result, RuntimeReader};
use tokio::time::{Instant, Sleep, sleep};

use crate::metrics;

/// The first and the longest wait before the stream is opened again. Each wait is twice the one before; a hint starts them
/// over.
const BACK_OFF: Duration = Duration::from_secs(1);
const MAX_BACK_OFF: Duration = Duration::from_secs(30);
/// The waits are lengthened by up to this part of themselves.
const JITTER: f64 = 0.5;
/// A runtime without hints may be upgraded to one that has them.
const UNSUPPORTED_RETRY: Duration = Duration::from_secs(5 * 60);

type Hints = BoxStream<'static, Result<PodUid>>;

/// What happened to the stream.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// It is open.
    Connected,
    /// A pod changed.
    Hint(PodUid),
    /// It could not be opened, or has ended.
    Broken,
    /// The runtime has no hints.
    Unsupported,
}

pub(crate) struct Connection {
    runtime: Arc<dyn RuntimeReader>,
    jitter: Jitter,
    state: State,
    /// How often it could not be opened, or broke, since the last hint.
    failures: u32,
    /// Whether the open stream has had no item yet.
    fresh: bool,
}

enum State {
    Waiting(Pin<Box<Sleep>>),
    /// Without a deadline: some servers answer only with the first event.
    Asking(Instant, BoxFuture<'static, Result<Option<Hints>>>),
    Open(Hints),
}

impl Connection {
    pub(crate) fn new(runtime: Arc<dyn RuntimeReader>, jitter: Jitter) -> Self {
        Self {
            runtime,
            jitter,
            state: State::Waiting(Box::pin(sleep(Duration::ZERO))),
            failures: 0,
            fresh: true,
        }
    }

    /// Waits for the next news of the stream; there is always more.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub(crate) async fn next(&mut self) -> News {
        loop {
            match &mut self.state {
                State::Waiting(wait) => {
                    wait.await;
                    let runtime = self.runtime.clone();
                    let asking = async move { runtime.pod_hints().await }.boxed();
                    self.state = State::Asking(Instant::now(), asking);
                }
                State::Asking(since, asking) => match asking.await {
                    Ok(Some(hints)) => {
                        metrics::connected(since.elapsed());
                        self.state = State::Open(hints);
                        self.fresh = true;
                        return News::Connected;
                    }
                    Ok(None) | Err(Error::Unsupported { .. }) => return self.unsupported(),
                    Err(error) => return self.broken(Some(&error)),
                },
                State::Open(hints) => {
                    let item = hints.next().await;
                    let first = std::mem::replace(&mut self.fresh, false);
                    match item {
                        Some(Ok(uid)) => {
                            self.failures = 0;
                            return News::Hint(uid);
                        }
                        Some(Err(Error::Unsupported { .. })) if first => return self.unsupported(),
                        Some(Err(error)) => return self.broken(Some(&error)),
                        None => return self.broken(None),
                    }
                }
            }
        }
    }

    /// Closes the stream, to open a new one.
    pub(crate) fn give_up(&mut self) {
        tracing::warn!("the hints of the runtime miss changes; opening a new stream");
        self.wait();
    }

    fn broken(&mut self, error: Option<&Error>) -> News {
        metrics::connection_failed();
        match error {
            Some(error) => tracing::warn!(%error, "the stream of hints failed; opening it again later"),
            None => tracing::warn!("the stream of hints ended; opening it again later"),
        }
        self.wait();
        News::Broken
    }

    fn unsupported(&mut self) -> News {
        tracing::debug!("the runtime has no stream of hints");
        self.state = State::Waiting(Box::pin(sleep(UNSUPPORTED_RETRY)));
        News::Unsupported
    }

    fn wait(&mut self) {
        let wait = self.jitter.apply(back_off(self.failures), JITTER);
        self.failures = self.failures.saturating_add(1);
        self.state = State::Waiting(Box::pin(sleep(wait)));
    }
}

fn back_off(failures: u32) -> Duration {
    BACK_OFF
        .saturating_mul(2u32.saturating_pow(failures))
        .min(MAX_BACK_OFF)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn back_off_grows_to_its_cap() {
        let seconds: Vec<u64> = (0..8).map(|failures| back_off(failures).as_secs()).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 16, 30, 30, 30]);
        assert_eq!(back_off(u32::MAX), MAX_BACK_OFF);
    }
}
