//! The last answer of a runtime.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::timeout;

use crate::error::BoxError;

/// How long to wait for the runtime. The rest of the node's status, `NotReady` above all, waits as long.
const DEADLINE: Duration = Duration::from_secs(2);

/// The last answer to a request, used when the runtime does not answer.
pub(crate) struct LastAnswer<T> {
    last: Mutex<Option<T>>,
}

impl<T> Default for LastAnswer<T> {
    fn default() -> Self {
        Self {
            last: Mutex::new(None),
        }
    }
}

impl<T: Clone> LastAnswer<T> {
    /// The answer or, if the request fails or takes too long, the last one; `None` if there is none yet.
    pub(crate) async fn ask(
        &self,
        what: &str,
        asking: impl Future<Output = Result<T, BoxError>>,
    ) -> Option<T> {
        match timeout(DEADLINE, asking).await {
            Ok(Ok(answer)) => {
                *self.last.lock() = Some(answer.clone());
                return Some(answer);
            }
            Ok(Err(error)) => {
                tracing::debug!(what, %error, "the runtime returned an error; using its last answer")
            }
            Err(_) => tracing::debug!(what, "the runtime did not answer in time; using its last answer"),
        }
        self.last.lock().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_last_answer_is_used_when_there_is_no_new_one() {
        let last = LastAnswer::default();
        assert_eq!(last.ask("a", async { Err("down".into()) }).await, None);
        assert_eq!(last.ask("a", async { Ok(1) }).await, Some(1));
        assert_eq!(last.ask("a", async { Err("down".into()) }).await, Some(1));
        assert_eq!(last.ask("a", std::future::pending()).await, Some(1));
        assert_eq!(last.ask("a", async { Ok(2) }).await, Some(2));
    }
}
