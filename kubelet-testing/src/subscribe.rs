//! The subscriber of one test among others of its program.

use tracing::subscriber::{DefaultGuard, NoSubscriber, set_default};
use tracing::{Dispatch, Subscriber};

/// Makes a subscriber the default of this thread until the guard is dropped, and loses no event to tests on other threads.
///
/// With [`tracing::subscriber::set_default`] alone, events can be lost. While a program has only one subscriber, `tracing` asks the subscriber of the
/// thread that first comes to a log statement, and keeps the answer for all threads. A thread without a subscriber answers that nobody wants the
/// event. With a second subscriber, which sees nothing, `tracing` asks both. The guard keeps it, too.
///
/// ```
/// # #[derive(Default)]
/// # struct Counts;
/// # impl tracing::Subscriber for Counts {
/// #     fn enabled(&self, _: &tracing::Metadata<'_>) -> bool { true }
/// #     fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id { tracing::span::Id::from_u64(1) }
/// #     fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
/// #     fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
/// #     fn event(&self, _: &tracing::Event<'_>) {}
/// #     fn enter(&self, _: &tracing::span::Id) {}
/// #     fn exit(&self, _: &tracing::span::Id) {}
/// # }
/// let _collecting = kubelet_testing::subscribe(Counts::default());
/// tracing::warn!("cannot read the manifest");
/// ```
#[must_use = "the subscriber is the default only until the guard is dropped"]
pub fn subscribe(subscriber: impl Subscriber + Send + Sync + 'static) -> Subscribed {
    let second = Dispatch::new(NoSubscriber::new());
    Subscribed {
        _default: set_default(subscriber),
        _second: second,
    }
}

/// Keeps the subscriber of [`subscribe`] until it is dropped.
#[derive(Debug)]
pub struct Subscribed {
    _default: DefaultGuard,
    _second: Dispatch,
}
