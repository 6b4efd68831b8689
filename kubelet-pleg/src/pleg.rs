//! What both PLEGs have: their settings, their handle, and their run.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use kubelet_core::{Clock, PlegHandle, PodCache, PodLifecycleEventGenerator, RuntimeReader};
use tokio_util::sync::CancellationToken;

use crate::engine::Engine;
use crate::evented::Hints;
use crate::inspector::Inspector;
use crate::settings::Settings;
use crate::shared::{Owner, Shared};

/// A pod lifecycle event generator. `H` says whether it uses the runtime's hints: see [`GenericPleg`] and
/// [`EventedPleg`], which share these settings.
///
/// [`GenericPleg`]: crate::GenericPleg
/// [`EventedPleg`]: crate::EventedPleg
pub struct Pleg<H> {
    runtime: Arc<dyn RuntimeReader>,
    cache: PodCache,
    settings: Settings,
    owner: Owner,
    pub(crate) hints: H,
}

impl<H> Pleg<H> {
    pub(crate) fn with_hints(runtime: Arc<dyn RuntimeReader>, cache: PodCache, hints: H) -> Self {
        let settings = Settings::default();
        Self {
            runtime,
            cache,
            owner: Owner(Arc::new(Shared::new(settings.relist_threshold))),
            settings,
            hints,
        }
    }

    /// Sets the wait from the end of one list to the start of the next. The default is 1 s. An
    /// [`EventedPleg`](crate::EventedPleg) waits longer while it trusts the hints.
    #[must_use]
    pub fn with_relist_period(mut self, period: Duration) -> Self {
        self.settings.relist_period = period;
        self
    }

    /// Sets how old the last list may be before the PLEG reports that it is not healthy. The default is 3 min. A list
    /// that takes longer than this is cancelled and tried again.
    #[must_use]
    pub fn with_relist_threshold(mut self, threshold: Duration) -> Self {
        self.settings.relist_threshold = threshold;
        self.owner.0.set_threshold(threshold);
        self
    }

    /// Sets how many status calls run at once, and how many lists of single pods. The default is 16, the minimum 1. A
    /// call that takes longer than a relist period is not counted any more, so that calls that hang do not stop the
    /// others.
    #[must_use]
    pub fn with_max_concurrent_inspections(mut self, count: usize) -> Self {
        self.settings.max_concurrent_inspections = count;
        self
    }

    /// Sets how long one status call may take. The default is 2 min.
    #[must_use]
    pub fn with_inspection_deadline(mut self, deadline: Duration) -> Self {
        self.settings.inspection_deadline = deadline;
        self
    }

    /// Sets the clock for the metric `kubelet_pleg_last_seen_seconds`. The default is the clock of the system.
    #[must_use]
    pub fn with_clock(mut self, clock: Clock) -> Self {
        self.settings.clock = clock;
        self
    }

    /// Returns a handle: subscribe to events, request a relist, ask whether the PLEG is healthy. You may take it before
    /// [`run`](Self::run) and keep it longer than the PLEG. Subscriptions end with the PLEG.
    pub fn handle(&self) -> Arc<dyn PlegHandle> {
        self.owner.0.clone()
    }

    /// Returns an inspector: it reports the state of the PLEG while it runs.
    pub fn inspector(&self) -> Inspector {
        Inspector(self.owner.0.clone())
    }
}

impl<H: Into<Option<Hints>>> Pleg<H> {
    /// Watches the runtime until `shutdown`, then cancels the calls that are under way and returns. Nothing runs on
    /// after that.
    ///
    /// This future makes all calls to the runtime. A runtime that blocks its thread instead of waiting blocks this
    /// future too.
    ///
    /// # Cancel safety
    ///
    /// You may drop the future at any time. The cache keeps what it has.
    pub async fn run(self, shutdown: CancellationToken) {
        let engine = Engine {
            runtime: self.runtime,
            cache: self.cache,
            settings: self.settings,
            owner: self.owner,
            hints: self.hints.into(),
        };
        engine.run(shutdown).await;
    }
}

#[async_trait]
impl<H: Into<Option<Hints>> + Send + Sync + 'static> PodLifecycleEventGenerator for Pleg<H> {
    fn handle(&self) -> Arc<dyn PlegHandle> {
        Pleg::handle(self)
    }

    async fn run(self: Box<Self>, shutdown: CancellationToken) {
        (*self).run(shutdown).await;
    }
}

impl<H: fmt::Debug> fmt::Debug for Pleg<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pleg")
            .field("settings", &self.settings)
            .field("hints", &self.hints)
            .finish_non_exhaustive()
    }
}
