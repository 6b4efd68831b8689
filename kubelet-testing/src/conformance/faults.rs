//! Faults that a wrapper around a runtime injects into calls.

use std::future::pending;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::sleep;

/// A fault of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It does not reach the runtime, and never returns.
    Hangs,
    /// The runtime processes it, but it never returns.
    HangsWhenDone,
    /// The runtime processes it, but it returns an error.
    ReplyLost,
    /// It does not reach the runtime, and returns an error.
    Refused,
    /// It returns after this additional time.
    Slow(Duration),
}

/// A fault of lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lie {
    /// All are empty.
    Empty,
    /// The first item is missing.
    FirstMissing,
    /// Each item is there twice.
    Doubled,
    /// The order is reversed.
    Reversed,
}

impl Lie {
    fn apply<T: Clone>(self, mut list: Vec<T>) -> Vec<T> {
        match self {
            Self::Empty => list.clear(),
            Self::FirstMissing => drop(list.drain(..list.len().min(1))),
            Self::Doubled => list.extend(list.clone()),
            Self::Reversed => list.reverse(),
        }
        list
    }
}

/// The error of a call that the wrapper fails.
#[derive(Debug)]
pub(crate) enum Lost {
    /// It failed on its way.
    Failed,
    /// There was no answer within this time.
    NoAnswer(Duration),
}

/// The faults of one wrapper. Calls have the names of their interface.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    state: Mutex<State>,
    hanging: Notify,
    gives_up_after: Option<Duration>,
}

#[derive(Debug, Default)]
struct State {
    /// For the next calls of that name, in order.
    scripted: Vec<(&'static str, Fault)>,
    every: Option<Fault>,
    lie: Option<Lie>,
}

impl Faults {
    /// The caller gives up a call that hangs after this time, as a client with a timeout does. Calls without a fault have no
    /// timeout: a runtime on a busy host may be slow.
    pub(crate) fn giving_up_after(deadline: Duration) -> Self {
        Self {
            gives_up_after: Some(deadline),
            ..Self::default()
        }
    }

    /// Adds a fault for the next call of this name. Several faults for one name apply one after the other.
    pub(crate) fn next(&self, call: &'static str, fault: Fault) {
        self.state.lock().scripted.push((call, fault));
    }

    /// Sets the fault of all calls from now on, or `None`.
    pub(crate) fn every(&self, fault: Option<Fault>) {
        self.state.lock().every = fault;
    }

    /// Sets the fault of all lists from now on, or `None`.
    pub(crate) fn lie(&self, lie: Option<Lie>) {
        self.state.lock().lie = lie;
    }

    /// Whether all scripted faults were applied.
    pub(crate) fn all_met(&self) -> bool {
        self.state.lock().scripted.is_empty()
    }

    /// A list with the fault applied.
    pub(crate) fn list<T: Clone>(&self, list: Vec<T>) -> Vec<T> {
        match self.state.lock().lie {
            None => list,
            Some(lie) => lie.apply(list),
        }
    }

    /// A list of sandboxes, empty or reversed. An engine that sees containers without their sandbox, or two ready
    /// sandboxes, must end what runs.
    pub(crate) fn list_of_sandboxes<T: Clone>(&self, list: Vec<T>) -> Vec<T> {
        match self.state.lock().lie {
            None | Some(Lie::FirstMissing | Lie::Doubled) => list,
            Some(lie) => lie.apply(list),
        }
    }

    /// Makes a call with its fault.
    pub(crate) async fn call<T>(&self, name: &'static str, call: impl Future<Output = T>) -> Result<T, Lost> {
        match self.take(name) {
            None => Ok(call.await),
            Some(Fault::Hangs) => self.hang().await,
            Some(Fault::HangsWhenDone) => {
                call.await;
                self.hang().await
            }
            Some(Fault::ReplyLost) => {
                call.await;
                Err(Lost::Failed)
            }
            Some(Fault::Refused) => Err(Lost::Failed),
            Some(Fault::Slow(time)) => {
                let answer = call.await;
                sleep(time).await;
                Ok(answer)
            }
        }
    }

    /// Waits for a call that hangs.
    pub(crate) async fn hangs(&self) {
        self.hanging.notified().await;
    }

    async fn hang<T>(&self) -> Result<T, Lost> {
        self.hanging.notify_one();
        match self.gives_up_after {
            Some(deadline) => {
                sleep(deadline).await;
                Err(Lost::NoAnswer(deadline))
            }
            None => pending().await,
        }
    }

    fn take(&self, name: &'static str) -> Option<Fault> {
        let mut state = self.state.lock();
        let at = state.scripted.iter().position(|(call, _)| *call == name);
        at.map(|at| state.scripted.remove(at).1).or(state.every)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lies() {
        for (lie, expected) in [
            (Lie::Empty, vec![]),
            (Lie::FirstMissing, vec![2, 3]),
            (Lie::Doubled, vec![1, 2, 3, 1, 2, 3]),
            (Lie::Reversed, vec![3, 2, 1]),
        ] {
            let faults = Faults::default();
            faults.lie(Some(lie));
            assert_eq!(faults.list(vec![1, 2, 3]), expected, "{lie:?}");
            faults.lie(None);
            assert_eq!(faults.list(vec![1]), [1]);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn faults_are_met_in_order() {
        let faults = Faults::default();
        faults.next("start", Fault::ReplyLost);
        faults.next("start", Fault::Refused);
        faults.next("stop", Fault::Hangs);
        let done = Mutex::new(0);
        let call = || faults.call("start", async { *done.lock() += 1 });
        assert!(call().await.is_err() && call().await.is_err() && call().await.is_ok());
        assert_eq!(*done.lock(), 2);
        let hanging = faults.call("stop", async { *done.lock() += 1 });
        assert!(
            tokio::time::timeout(Duration::from_secs(9), hanging)
                .await
                .is_err()
        );
        assert!(faults.all_met() && *done.lock() == 2);
    }
}
