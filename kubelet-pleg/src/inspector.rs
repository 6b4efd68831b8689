//! How a running PLEG does, for humans.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use kubelet_core::PodUid;

use crate::shared::Shared;

/// Asks a running PLEG how it does. Clones ask the same one.
#[derive(Clone, Debug)]
pub struct Inspector(pub(crate) Arc<Shared>);

impl Inspector {
    /// How the PLEG does now. Waits until it runs; `None` once it has ended.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn inspect(&self) -> Option<Inspection> {
        self.0.ask_inspection().await.ok()
    }
}

/// How a PLEG does. Its text is for humans: one line, and one more for each call that hangs.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Inspection {
    /// Pods known.
    pub pods: usize,
    /// Pods whose status could not be read, or is being read.
    pub unsettled_pods: usize,
    /// How long ago the last list that succeeded was begun; `None` before the first.
    pub last_relist: Option<Duration>,
    /// From the end of a list to the next, as things are.
    pub relist_period: Duration,
    /// What makes the PLEG look at a pod.
    pub mode: Mode,
    /// How long the oldest request or hint for a single pod has been waiting for its list to begin; zero when
    /// none waits.
    pub lag: Duration,
    /// How many of them wait.
    pub waiting_relists: usize,
    /// Changed pods that a list found and no hint told of, since the PLEG began.
    pub missed_changes: u64,
    /// Calls of the runtime that have had no answer for longer than the (generic) relist period, the longest
    /// first.
    pub hanging: Vec<HangingCall>,
}

/// What makes a PLEG look at a pod, besides requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mode {
    /// Lists alone.
    Generic,
    /// Lists, and hints that have yet to prove themselves.
    Unproven,
    /// Hints, and lists that find nothing else.
    Evented,
}

/// A call of the runtime that has no answer yet.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HangingCall {
    /// The call, by the kubelet's name: `GetPods`, `GetPod` or `GetPodStatus`.
    pub call: &'static str,
    /// The pod it is about; `None` for the list of all.
    pub pod: Option<PodUid>,
    /// For how long.
    pub elapsed: Duration,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Mode::Generic => "generic",
            Mode::Unproven => "evented, unproven",
            Mode::Evented => "evented",
        })
    }
}

impl fmt::Display for Inspection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} pods", self.mode, self.pods)?;
        if self.unsettled_pods > 0 {
            write!(f, " ({} unsettled)", self.unsettled_pods)?;
        }
        match self.last_relist {
            Some(elapsed) => write!(f, ", last relist {elapsed:.1?} ago")?,
            None => f.write_str(", not listed yet")?,
        }
        write!(
            f,
            ", relist period {:?}, lag {:.1?}",
            self.relist_period, self.lag
        )?;
        if self.missed_changes > 0 {
            write!(f, ", {} changes missed by hints", self.missed_changes)?;
        }
        for hanging in &self.hanging {
            write!(f, "\n{hanging}")?;
        }
        Ok(())
    }
}

impl fmt::Display for HangingCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} hangs for {:.1?}", self.call, self.elapsed)?;
        match &self.pod {
            Some(pod) => write!(f, ", pod {pod}"),
            None => Ok(()),
        }
    }
}
