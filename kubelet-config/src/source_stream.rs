//! A source at work, as a stream.

use std::future::{self, Future};

use futures::stream::{self, BoxStream, StreamExt};
use kubelet_core::SourceUpdate;
use tokio::sync::mpsc;

/// The stream of what `work` says. The work goes on while the stream is polled and ends when it is dropped: there is
/// no task that could outlive it. It waits until each word is taken.
pub(crate) fn source_stream<W>(work: impl FnOnce(Words) -> W) -> BoxStream<'static, SourceUpdate>
where
    W: Future<Output = ()> + Send + 'static,
{
    let (words, mut said) = mpsc::channel(1);
    let working = stream::once(work(Words(words))).filter_map(|()| future::ready(None));
    let said = stream::poll_fn(move |context| said.poll_recv(context));
    stream::select(working, said).boxed()
}

/// Where a source at work says what it has to say.
pub(crate) struct Words(mpsc::Sender<SourceUpdate>);

impl Words {
    /// Waits until there is room for it.
    pub(crate) async fn say(&self, word: SourceUpdate) {
        // The receiver holds the stream that runs the work. Without a receiver the work does not run.
        let _ = self.0.send(word).await;
    }
}
