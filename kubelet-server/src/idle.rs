//! When a connection has had no request for a while.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

/// The requests of one connection. Clones share the data.
#[derive(Clone)]
pub(crate) struct Requests(Arc<Mutex<Seen>>);

struct Seen {
    open: usize,
    /// When the last request ended, or the connection began.
    idle_since: Instant,
}

/// A request that goes on, until its last clone is dropped.
#[derive(Clone)]
pub(crate) struct OpenRequest(#[expect(dead_code, reason = "it is only dropped")] Arc<Open>);

struct Open(Requests);

impl Requests {
    /// A connection begins now.
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new(Seen {
            open: 0,
            idle_since: Instant::now(),
        })))
    }

    pub(crate) fn begin(&self) -> OpenRequest {
        self.0.lock().open += 1;
        OpenRequest(Arc::new(Open(self.clone())))
    }

    /// Waits until no request was open for so long.
    pub(crate) async fn idle_for(&self, limit: Duration) {
        loop {
            let until = {
                let seen = self.0.lock();
                match seen.open {
                    0 => seen.idle_since + limit,
                    // It cannot be idle for so long earlier than this.
                    _ => Instant::now() + limit,
                }
            };
            if until <= Instant::now() {
                return;
            }
            sleep_until(until).await;
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let mut seen = self.0.0.lock();
        seen.open -= 1;
        seen.idle_since = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn time_counts_from_the_end_of_the_last_request() {
        let seconds = Duration::from_secs;
        let (begun, requests) = (Instant::now(), Requests::new());
        requests.idle_for(seconds(90)).await;
        assert_eq!(begun.elapsed(), seconds(90));

        let idle = {
            let requests = requests.clone();
            tokio::spawn(async move { requests.idle_for(seconds(90)).await })
        };
        for _ in 0..10 {
            let request = requests.begin();
            let clone = request.clone();
            tokio::time::sleep(seconds(1)).await;
            drop(request);
            tokio::time::sleep(seconds(29)).await;
            drop(clone);
            tokio::time::sleep(seconds(60)).await;
        }
        assert!(!idle.is_finished());
        idle.await.unwrap();
        assert_eq!(begun.elapsed(), seconds(90 + 10 * 90 + 30));
    }
}
