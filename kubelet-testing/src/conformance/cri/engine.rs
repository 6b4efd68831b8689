//! The engine on a runtime: `CriRuntime`, and between it and the two services a wrapper that injects faults.

use std::collections::BTreeSet;
use std::sync::Arc;

use kubelet_core::runtime::PodStatus;
use kubelet_cri::v1;

use super::steps::of_pod;
use super::wrapper::Wrapper;
use crate::conformance::bench::{Bench, Services};
use crate::conformance::engine::Engine;
use crate::conformance::faults::{Fault, Faults};
use crate::conformance::under_engine::{Height, at_height, is_ended_in_spite_of, runs_once_in_spite_of};
use crate::conformance::verdict::{Outcome, ensure};

pub(super) struct Cri;

impl Height for Cri {
    const START: &'static str = "StartContainer";
    const STOP: &'static str = "StopContainer";
    const REMOVE: &'static str = "RemoveContainer";

    async fn rig(bench: &Bench) -> Outcome<(Engine, Arc<Faults>)> {
        let faults = Arc::new(Faults::giving_up_after(bench.pace()));
        let services = bench.services();
        let wrapper = Wrapper {
            runtime: services.runtime,
            faults: faults.clone(),
        };
        let services = Services {
            runtime: Arc::new(wrapper),
            images: services.images,
        };
        Ok((bench.engine(&services, 20 * bench.pace()).await?, faults))
    }

    async fn running(bench: &Bench, status: &PodStatus) -> Outcome<usize> {
        let filter = v1::ContainerFilter {
            state: Some(v1::ContainerStateValue {
                state: v1::ContainerState::ContainerRunning as i32,
            }),
            label_selector: of_pod(status.uid.as_str()),
            ..Default::default()
        };
        let running = bench.list_containers(filter).await?;
        let names: BTreeSet<_> = running
            .iter()
            .filter_map(|container| Some(&container.metadata.as_ref()?.name))
            .collect();
        ensure!(
            names.len() == running.len(),
            "several instances of one container run: {running:?}"
        );
        Ok(running.len())
    }
}

at_height!(Cri:
    a_pod_runs_and_ends
    a_container_that_ended_is_restarted
    a_lost_reply_of_start_is_one_container
    a_start_that_fails_or_hangs_is_tried_again
    a_stop_that_fails_or_hangs_is_tried_again
    a_removal_that_fails_or_hangs_is_tried_again
    slow_calls_only_take_time
    a_runtime_that_was_away_finds_its_pods_as_they_were
    what_the_lists_omitted_is_found_again_and_ended
    a_list_that_names_each_twice_changes_nothing
    the_order_of_the_list_means_nothing
    another_agent_takes_over_what_runs
    an_agent_that_dies_between_create_and_start_leaves_one_container
);

pub(super) async fn a_sandbox_whose_run_fails_or_hangs_is_tried_again(bench: &mut Bench) -> Outcome {
    let faults = [Fault::ReplyLost, Fault::HangsWhenDone, Fault::Refused];
    runs_once_in_spite_of::<Cri>(bench, "RunPodSandbox", &faults).await
}

pub(super) async fn a_creation_that_fails_or_hangs_is_tried_again(bench: &mut Bench) -> Outcome {
    let faults = [Fault::ReplyLost, Fault::HangsWhenDone, Fault::Refused];
    runs_once_in_spite_of::<Cri>(bench, "CreateContainer", &faults).await
}

pub(super) async fn a_sandbox_whose_stop_or_removal_fails_or_hangs_is_tried_again(
    bench: &mut Bench,
) -> Outcome {
    let faults = [Fault::ReplyLost, Fault::HangsWhenDone, Fault::Refused];
    is_ended_in_spite_of::<Cri>(bench, "StopPodSandbox", &faults).await?;
    is_ended_in_spite_of::<Cri>(bench, "RemovePodSandbox", &faults).await
}
