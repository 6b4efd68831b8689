//! The streams that go on after their requests were answered.

use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The open streams of a server: commands, attached containers, forwarded ports. Clones share them.
///
/// A stream begins when the answer `101 Switching Protocols` was sent, so it cannot be part of the answer's future. It
/// runs as a task. [`Server`](crate::Server) ends and joins its streams. If you serve a [`NodeApi`](crate::NodeApi)
/// yourself, put a `Sessions` into the extensions of each request, and [`end`](Self::end) it with your server.
#[derive(Clone, Debug, Default)]
pub struct Sessions {
    tasks: TaskTracker,
    ended: CancellationToken,
}

impl Sessions {
    /// No streams yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The number of open streams.
    pub fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Whether no stream is open.
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// Ends all streams, and waits until they have ended.
    ///
    /// # Cancel safety
    ///
    /// The future may be dropped; the streams end all the same.
    pub async fn end(&self) {
        self.ended.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Runs a stream until it ends by itself or [`end`](Self::end) is called.
    pub(crate) fn run(&self, session: BoxFuture<'static, ()>) {
        let ended = self.ended.clone();
        self.tasks.spawn(async move {
            ended.run_until_cancelled(session).await;
        });
    }

    /// Ends all streams when the guard is dropped.
    pub(crate) fn guard(&self) -> tokio_util::sync::DropGuard {
        self.ended.clone().drop_guard()
    }
}
