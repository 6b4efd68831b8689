//! The ends of containers, as hints.

use futures::stream::{self, BoxStream, StreamExt as _};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use super::container::ContainerKey;

/// How many events a slow reader may lag behind before it misses one.
pub(super) const BUFFER: usize = 1024;

/// Reports when a container changed (CRI `GetContainerEvents`). [`Ends`] is one for a runtime that sees its containers end.
pub trait Events: Send + Sync {
    /// A stream of the containers that end from now on, each at least once. An item is only a hint to read the state. A
    /// lost item only delays the reader.
    fn watch(&self) -> BoxStream<'static, ContainerKey>;
}

/// The [`Events`] of a runtime that sees its containers end: what it reports, all who watch get. Clones report to the same.
///
/// ```
/// use futures::StreamExt as _;
/// use kubelet_cri::verbs::{ContainerKey, Ends, Events as _};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let ends = Ends::new();
/// let mut watch = ends.watch();
/// let key = ContainerKey::new("uid", "main", 0);
/// ends.report(key.clone());
/// assert_eq!(watch.next().await, Some(key));
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Ends(broadcast::Sender<ContainerKey>);

impl Ends {
    /// Nobody watches yet.
    pub fn new() -> Self {
        Self(broadcast::Sender::new(BUFFER))
    }

    /// A container has ended, and the runtime lists it as ended. A reader who is 1024 ends behind misses the oldest.
    pub fn report(&self, key: ContainerKey) {
        // An error means that nobody watches.
        let _ = self.0.send(key);
    }
}

impl Default for Ends {
    fn default() -> Self {
        Self::new()
    }
}

impl Events for Ends {
    /// The stream ends when the last clone is dropped.
    fn watch(&self) -> BoxStream<'static, ContainerKey> {
        hints(self.0.subscribe())
    }
}

/// What is sent from now on. A slow reader misses some, which is allowed: they are hints.
pub(super) fn hints<T: Clone + Send + 'static>(receiver: broadcast::Receiver<T>) -> BoxStream<'static, T> {
    let hints = stream::unfold(receiver, async |mut receiver| {
        loop {
            match receiver.recv().await {
                Ok(hint) => return Some((hint, receiver)),
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return None,
            }
        }
    });
    hints.boxed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_reader_that_lags_behind_misses_only_the_oldest() {
        let ends = Ends::new();
        let mut watch = ends.watch();
        let key = |attempt| ContainerKey::new("uid", "main", attempt);
        let count = u32::try_from(BUFFER).unwrap() + 2;
        for attempt in 0..count {
            ends.report(key(attempt));
        }
        drop(ends);
        let seen: Vec<_> = watch.by_ref().collect().await;
        let expected: Vec<_> = (2..count).map(key).collect();
        assert_eq!(seen, expected);
    }
}
