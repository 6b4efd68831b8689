//! A pod's status as it is kept: whole while the sink is told of it, packed from then on.

use std::sync::Arc;

use k8s_openapi::api::core::v1::PodStatus as ApiPodStatus;
use kubelet_core::PackedStatus;

use crate::equality::same_news;
use crate::imprint::Imprint;
use crate::status_ext::{is_terminal, phase};

/// The status reported last. What is asked of it again and again stands beside it.
pub(crate) struct Kept {
    packed: PackedStatus,
    whole: Option<Arc<ApiPodStatus>>,
    imprint: Imprint,
    observed_generation: Option<i64>,
    has_started: bool,
    is_terminal: bool,
}

impl Kept {
    pub(crate) fn new(status: ApiPodStatus) -> Self {
        let whole = Arc::new(status);
        Self {
            packed: PackedStatus::of(&whole),
            imprint: Imprint::of(&whole),
            observed_generation: whole.observed_generation,
            has_started: whole.start_time.is_some(),
            is_terminal: is_terminal(phase(&whole)),
            whole: Some(whole),
        }
    }

    /// The status.
    pub(crate) fn get(&self) -> Arc<ApiPodStatus> {
        self.whole.clone().unwrap_or_else(|| self.packed.unpack())
    }

    pub(crate) fn packed(&self) -> &PackedStatus {
        &self.packed
    }

    /// It will not be asked for in a while.
    pub(crate) fn rest(&mut self) {
        self.whole = None;
    }

    /// Its phase is one that never leaves.
    pub(crate) fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    /// Whether this status is the known one, once it is given the known one's start time and generation.
    pub(crate) fn says_the_same_as(&self, status: &ApiPodStatus) -> bool {
        self.has_started
            && status.observed_generation <= self.observed_generation
            && (self.imprint.is_of(status) || same_news(&self.get(), status))
    }
}
