//! Filters of lists.

use kubelet_cri::v1;
use kubelet_cri::v1::{ContainerState, PodSandboxState};

use super::steps::of_pod;
use crate::conformance::bench::Bench;
use crate::conformance::program::Program;
use crate::conformance::verdict::{Outcome, ensure};

pub(super) async fn containers_are_found_by_what_they_are(bench: &mut Bench) -> Outcome {
    let (sandbox, running) = bench.start_pod(&Program::Forever).await?;
    let created = bench.create_as(&sandbox, "created", 0, &Program::Forever).await?;
    let (other, ended, _) = bench.run_pod(&Program::Exits(0)).await?;
    let state = |state: ContainerState| v1::ContainerFilter {
        state: Some(v1::ContainerStateValue { state: state as i32 }),
        ..Default::default()
    };
    let of_sandbox = |id: &str| v1::ContainerFilter {
        pod_sandbox_id: id.to_owned(),
        ..Default::default()
    };
    let both = v1::ContainerFilter {
        pod_sandbox_id: sandbox.id.clone(),
        ..state(ContainerState::ContainerRunning)
    };
    let labels = |uid: &str| v1::ContainerFilter {
        label_selector: of_pod(uid),
        ..Default::default()
    };
    for (filter, expected) in [
        (v1::ContainerFilter::default(), vec![&running, &created, &ended]),
        (
            v1::ContainerFilter {
                id: created.clone(),
                ..Default::default()
            },
            vec![&created],
        ),
        (state(ContainerState::ContainerRunning), vec![&running]),
        (state(ContainerState::ContainerCreated), vec![&created]),
        (state(ContainerState::ContainerExited), vec![&ended]),
        (of_sandbox(&sandbox.id), vec![&running, &created]),
        (of_sandbox(&other.id), vec![&ended]),
        (labels(other.uid()), vec![&ended]),
        (labels("nobody"), vec![]),
        (both, vec![&running]),
    ] {
        let list = bench.list_containers(filter.clone()).await?;
        let mut found: Vec<_> = list.iter().map(|container| &container.id).collect();
        let mut expected = expected;
        found.sort();
        expected.sort();
        ensure!(
            found == expected,
            "there are {expected:?} of {filter:?}; the list has {found:?}"
        );
    }
    Ok(())
}

pub(super) async fn sandboxes_are_found_by_what_they_are(bench: &mut Bench) -> Outcome {
    let (ready, stopped) = (bench.sandbox().await?, bench.sandbox().await?);
    bench.stop_sandbox_and_wait(&stopped.id).await?;
    let state = |state: PodSandboxState| v1::PodSandboxFilter {
        state: Some(v1::PodSandboxStateValue { state: state as i32 }),
        ..Default::default()
    };
    let labels = |uid: &str| v1::PodSandboxFilter {
        label_selector: of_pod(uid),
        ..Default::default()
    };
    for (filter, mut expected) in [
        (v1::PodSandboxFilter::default(), vec![&ready.id, &stopped.id]),
        (
            v1::PodSandboxFilter {
                id: stopped.id.clone(),
                ..Default::default()
            },
            vec![&stopped.id],
        ),
        (state(PodSandboxState::SandboxReady), vec![&ready.id]),
        (state(PodSandboxState::SandboxNotready), vec![&stopped.id]),
        (labels(ready.uid()), vec![&ready.id]),
        (labels("nobody"), vec![]),
    ] {
        let list = bench.list_sandboxes(filter.clone()).await?;
        let mut found: Vec<_> = list.iter().map(|sandbox| &sandbox.id).collect();
        found.sort();
        expected.sort();
        ensure!(
            found == expected,
            "there are {expected:?} of {filter:?}; the list has {found:?}"
        );
    }
    Ok(())
}
