//! The path of every call: recording, latency, faults, crashes.

use std::future::pending;
use std::sync::Arc;

use kubelet_cri::{Code, Error};
use tokio::time::{Instant, sleep};

use super::call::Answer;
use super::faults::{CallFault, Trouble};
use super::{Call, CriCall, LOST, MemoryCri, Subject};

type Result<T> = std::result::Result<T, Error>;

impl MemoryCri {
    /// Answers a call. `work` does the work if there is no fault.
    pub(super) async fn serve<Q, A>(
        &self,
        call: Call,
        about: Subject,
        request: &Q,
        work: impl Future<Output = Result<A>>,
    ) -> Result<A>
    where
        Q: Clone + Send + Sync + 'static,
    {
        let inner = &self.inner;
        let number = (inner.record_looks || !call.only_looks()).then(|| {
            let request = Arc::new(request.clone());
            inner
                .calls
                .record(CriCall::new(call, about.clone(), inner.clock.now(), request))
        });
        let mut crashes = inner.crashes.subscribe();
        let answer = tokio::select! {
            biased;
            _ = crashes.changed() => Err(Error::call(Code::Unavailable, call.name(), "", LOST)),
            answer = self.with_faults(call, &about, work) => answer,
        };
        if let Some(number) = number {
            let outcome = match &answer {
                Ok(_) => Answer::Ok,
                Err(error) => Answer::Failed(error.clone()),
            };
            inner.calls.amend(number, |call| call.answer = outcome);
        }
        answer
    }

    async fn with_faults<A>(
        &self,
        call: Call,
        about: &Subject,
        work: impl Future<Output = Result<A>>,
    ) -> Result<A> {
        self.reachable(call)?;
        let fault = self.inner.faults.of_call(call, about);
        let (before, after) = match fault {
            None => (None, None),
            Some(CallFault {
                after_work: false,
                trouble,
            }) => (Some(trouble), None),
            Some(CallFault { trouble, .. }) => (None, Some(trouble)),
        };
        if let Some(trouble) = before {
            if matches!(trouble, Trouble::Fails(..)) {
                self.latency(call).await;
            }
            self.meet(call, trouble).await?;
        }
        let answer = work.await;
        if !call.only_looks() {
            self.inner.changes.send_replace(());
        }
        if let Some(trouble) = after {
            self.meet(call, trouble).await?;
        }
        answer
    }

    async fn meet(&self, call: Call, trouble: Trouble) -> Result<()> {
        match trouble {
            Trouble::Fails(code, message) => Err(Error::call(code, call.name(), "", message)),
            Trouble::Delay(by) => {
                sleep(by).await;
                Ok(())
            }
            Trouble::Hangs => match self.inner.request_timeout {
                None => pending().await,
                Some(after) => {
                    sleep(after).await;
                    Err(Error::call(
                        Code::DeadlineExceeded,
                        call.name(),
                        "",
                        "context deadline exceeded",
                    ))
                }
            },
            Trouble::Crash(away) => {
                self.crash_for(away);
                // A crash ends this call, like all others.
                pending().await
            }
        }
    }

    /// Waits for the latency of a call.
    pub(super) async fn latency(&self, call: Call) {
        let takes = self.inner.latency.get(call);
        if !takes.is_zero() {
            sleep(takes).await;
        }
    }

    fn reachable(&self, call: Call) -> Result<()> {
        if self.inner.state.lock().is_away(Instant::now()) {
            let message = "connection error: the runtime is away";
            return Err(Error::call(Code::Unavailable, call.name(), "", message));
        }
        Ok(())
    }
}
