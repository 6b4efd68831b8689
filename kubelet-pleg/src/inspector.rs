//! The state of a running PLEG, for humans.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use kubelet_core::PodUid;

use crate::shared::Shared;

/// Reports the state of a running PLEG. All clones report about the same PLEG.
#[derive(Clone, Debug)]
pub struct Inspector(pub(crate) Arc<Shared>);

impl Inspector {
    /// Returns the state of the PLEG now. Waits until the PLEG runs; returns `None` once it has ended.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn inspect(&self) -> Option<Inspection> {
        self.0.ask_inspection().await.ok()
    }
}

/// The state of a PLEG. Its text is for humans: one line, and one more line for each call that hangs.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Inspection {
    /// How many pods are known.
    pub pods: usize,
    /// How many of them have a status that could not be read, or is being read.
    pub unsettled_pods: usize,
    /// How long ago the last successful list began; `None` before the first.
    pub last_relist: Option<Duration>,
    /// The current wait from the end of a list to the start of the next.
    pub relist_period: Duration,
    /// What makes the PLEG look at a pod.
    pub mode: Mode,
    /// How long the oldest request or hint for a single pod has waited for its list; zero if none waits.
    pub lag: Duration,
    /// How many requests and hints wait.
    pub waiting_relists: usize,
    /// How many changes a list found and no hint reported, since the PLEG started.
    pub missed_changes: u64,
    /// Calls to the runtime that have waited for an answer for longer than a relist period, the longest first.
    pub hanging: Vec<HangingCall>,
}

/// What makes a PLEG look at a pod, besides requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mode {
    /// Only lists.
    Generic,
    /// Lists, and hints that have not proven themselves yet.
    Unproven,
    /// Hints. Lists are rare, and find nothing that the hints did not report.
    Evented,
}

/// A call to the runtime that has no answer yet.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HangingCall {
    /// The call, by the kubelet's name: `GetPods`, `GetPod` or `GetPodStatus`.
    pub call: &'static str,
    /// The pod of the call; `None` for the list of all pods.
    pub pod: Option<PodUid>,
    /// How long it has waited.
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
