//! The engine on a runtime: `CriRuntime` on `CriAdapter`, and between it and the runtime a wrapper that injects
//! faults.

use std::collections::BTreeSet;
use std::sync::Arc;

use kubelet_core::runtime::PodStatus;

use super::wrapper::Wrapper;
use crate::conformance::bench::Bench;
use crate::conformance::engine::Engine;
use crate::conformance::faults::Faults;
use crate::conformance::under_engine::{Height, at_height};
use crate::conformance::verdict::{Outcome, ensure};

pub(super) struct Verbs;

impl Height for Verbs {
    const START: &'static str = "start";
    const STOP: &'static str = "stop";
    const REMOVE: &'static str = "remove";

    async fn rig(bench: &Bench) -> Outcome<(Engine, Arc<Faults>)> {
        let faults = Arc::new(Faults::default());
        let wrapper = Wrapper {
            runtime: bench.verbs()?,
            faults: faults.clone(),
        };
        let services = bench.adapt_within(Arc::new(wrapper), bench.pace());
        Ok((bench.engine(&services, 20 * bench.pace()).await?, faults))
    }

    async fn running(bench: &Bench, status: &PodStatus) -> Outcome<usize> {
        let list = bench.answer("list", bench.verbs()?.list()).await??;
        let of_pod = list
            .into_iter()
            .filter(|container| container.key.pod == status.uid);
        let running: Vec<_> = of_pod.filter(|container| container.is_running()).collect();
        let names: BTreeSet<_> = running.iter().map(|container| &container.key.container).collect();
        ensure!(
            names.len() == running.len(),
            "several instances of one container run: {running:?}"
        );
        Ok(running.len())
    }
}

at_height!(Verbs:
    a_pod_runs_and_ends
    a_container_that_ended_is_restarted
    a_lost_reply_of_start_is_one_container
    a_start_that_fails_or_hangs_is_tried_again
    a_stop_that_fails_or_hangs_is_tried_again
    a_removal_that_fails_or_hangs_is_tried_again
    slow_calls_only_take_time
    a_runtime_that_was_away_finds_its_pods_as_they_were
    a_list_that_omits_one_starts_no_second
    a_list_that_names_each_twice_changes_nothing
    the_order_of_the_list_means_nothing
    another_agent_takes_over_what_runs
    an_agent_that_dies_between_create_and_start_leaves_one_container
);
