//! The notifiers of a manager, as one.

use std::time::Duration;

use futures::future::{self, FutureExt};
use kubelet_core::stats::Summary;
use tokio::time::Instant;

use crate::notifier::ThresholdNotifier;

/// How often the thresholds of notifiers are updated at most (`notifierRefreshInterval`).
const REFRESH_INTERVAL: Duration = Duration::from_secs(10);

#[derive(Default)]
pub(super) struct Notifiers {
    notifiers: Vec<Entry>,
    updated: Option<Instant>,
}

struct Entry {
    notifier: Box<dyn ThresholdNotifier>,
    /// Without it, the notifier is not waited for: it has not been updated yet, or has failed.
    is_ready: bool,
}

impl Notifiers {
    pub(super) fn add(&mut self, notifier: Box<dyn ThresholdNotifier>) {
        self.notifiers.push(Entry {
            notifier,
            is_ready: false,
        });
    }

    /// Passes on a recent summary, if the last one was longer ago than the interval.
    pub(super) async fn update(&mut self, summary: &Summary) {
        if self
            .updated
            .is_some_and(|updated| updated.elapsed() <= REFRESH_INTERVAL)
        {
            return;
        }
        self.updated = Some(Instant::now());
        for Entry { notifier, is_ready } in &mut self.notifiers {
            let updated = notifier.update_threshold(summary).await;
            *is_ready = updated.is_ok();
            if let Err(error) = updated {
                let notifier = notifier.description();
                tracing::info!(notifier, %error, "Eviction manager: failed to update notifier");
            }
        }
    }

    /// The description of the next notifier whose threshold is crossed. A notifier that fails is left out until it is updated.
    pub(super) async fn crossed(&mut self) -> String {
        loop {
            let waiting = self.notifiers.iter_mut().filter(|entry| entry.is_ready);
            let waiting: Vec<_> = waiting
                .map(|entry| {
                    async move {
                        let crossed = entry.notifier.crossed().await;
                        entry.is_ready = crossed.is_ok();
                        crossed.map(|()| entry.notifier.description()).inspect_err(|error| {
                            let notifier = entry.notifier.description();
                            tracing::info!(notifier, %error, "Eviction manager: error while waiting for the kernel");
                        })
                    }
                    .boxed()
                })
                .collect();
            if waiting.is_empty() {
                return future::pending().await;
            }
            if let (Ok(description), _, _) = future::select_all(waiting).await {
                return description;
            }
        }
    }
}
