//! What a runtime told last.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::timeout;

use crate::error::BoxError;

/// How long a runtime may take to answer: the rest of the node's status, `NotReady` above all, waits so long.
const DEADLINE: Duration = Duration::from_secs(2);

/// An answer of the runtime, kept for when it gives none.
pub(crate) struct Told<T> {
    last: Mutex<Option<T>>,
}

impl<T> Default for Told<T> {
    fn default() -> Self {
        Self {
            last: Mutex::new(None),
        }
    }
}

impl<T: Clone> Told<T> {
    /// The answer, or the last one before it if it fails or is long in coming; `None` if there never was one.
    pub(crate) async fn ask(
        &self,
        what: &str,
        asking: impl Future<Output = Result<T, BoxError>>,
    ) -> Option<T> {
        match timeout(DEADLINE, asking).await {
            Ok(Ok(told)) => {
                *self.last.lock() = Some(told.clone());
                return Some(told);
            }
            Ok(Err(error)) => tracing::debug!(what, %error, "the runtime does not tell"),
            Err(_) => tracing::debug!(what, "the runtime does not answer in time"),
        }
        self.last.lock().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_was_told_last_stands_in_for_an_answer() {
        let told = Told::default();
        assert_eq!(told.ask("a", async { Err("down".into()) }).await, None);
        assert_eq!(told.ask("a", async { Ok(1) }).await, Some(1));
        assert_eq!(told.ask("a", async { Err("down".into()) }).await, Some(1));
        assert_eq!(told.ask("a", std::future::pending()).await, Some(1));
        assert_eq!(told.ask("a", async { Ok(2) }).await, Some(2));
    }
}
