//! Calls that their caller drops, as at a deadline. The engine finds what they leave by its labels, and removes it.

use kubelet_cri::v1;
use kubelet_cri::v1::ContainerState;

use super::steps::{NO_GRACE, Sandbox, run_request};
use crate::conformance::bench::Bench;
use crate::conformance::cut_short::cut_short;
use crate::conformance::program::Program;
use crate::conformance::verdict::{During, Outcome, Seen, ensure};

/// The maximum number of awaits at which a call is dropped.
const AWAITS: u32 = 6;

/// Removes a pod until nothing is left. A runtime may need a while to list what an interrupted call made.
async fn cleared_away(bench: &Bench, sandbox: &Sandbox) -> Outcome {
    bench
        .until("nothing is left of a pod whose call was cut short", async || {
            Ok(bench.clear_away(sandbox.uid()).await?.then_some(()))
        })
        .await
}

pub(super) async fn a_run_of_a_sandbox_cut_short_can_be_tried_again(bench: &mut Bench) -> Outcome {
    for polls in 1..=AWAITS {
        let services = bench.services();
        let config = bench.sandbox_config();
        let run = cut_short(services.runtime.run_pod_sandbox(run_request(&config)), polls);
        let answer = bench.answer("RunPodSandbox", run).await?;
        let finished = answer.is_some();
        if let Some(answer) = answer {
            answer?;
        }
        let mut sandbox = Sandbox {
            id: String::new(),
            config,
        };
        // What the first call made may block this one for a while. It must appear in the list and then be removed.
        sandbox.id = bench
            .until("another run of the sandbox", async || {
                bench.clear_away(sandbox.uid()).await?;
                let request = run_request(&sandbox.config);
                Ok(services
                    .runtime
                    .run_pod_sandbox(request)
                    .await
                    .ok()
                    .map(|made| made.pod_sandbox_id))
            })
            .await?;
        let id = bench.create(&sandbox, &Program::Forever).await?;
        bench.start_container(&id).await?;
        bench.container_is(&id, ContainerState::ContainerRunning).await?;
        cleared_away(bench, &sandbox).await?;
        if finished {
            break;
        }
    }
    Ok(())
}

pub(super) async fn a_creation_cut_short_leaves_no_name_taken(bench: &mut Bench) -> Outcome {
    for polls in 1..=AWAITS {
        let (services, sandbox) = (bench.services(), bench.sandbox().await?);
        let request = bench.create_request(&sandbox, "main", 0, &Program::Forever)?;
        let create = cut_short(services.runtime.create_container(request.clone()), polls);
        let answer = bench.answer("CreateContainer", create).await?;
        let filter = v1::ContainerFilter {
            pod_sandbox_id: sandbox.id.clone(),
            ..Default::default()
        };
        // The container is in the list, or can be created. One in the list may be incomplete: containerd gives it the
        // namespaces of a process that it had no time to look up. Then it does not start, but it can be removed and
        // created again.
        let running = async || {
            let listed = bench.list_containers(filter.clone()).await?.pop();
            let id = match listed {
                Some(listed) => listed.id,
                None => match services.runtime.create_container(request.clone()).await {
                    Ok(created) => created.container_id,
                    Err(_) => return Ok(None),
                },
            };
            if bench.start_container(&id).await.is_err() {
                bench.remove_container(&id).await?;
                return Ok(None);
            }
            Ok(Some(id))
        };
        let id = bench
            .until("the container in the list, or another creation, started", running)
            .await?;
        bench.container_is(&id, ContainerState::ContainerRunning).await?;
        let list = bench.list_containers(filter).await?;
        ensure!(list.len() == 1, "one container was made; the list has {list:?}");
        cleared_away(bench, &sandbox).await?;
        if answer.is_some() {
            break;
        }
    }
    Ok(())
}

pub(super) async fn a_start_cut_short_shows_what_it_came_to(bench: &mut Bench) -> Outcome {
    for polls in 1..=AWAITS {
        let (services, sandbox) = (bench.services(), bench.sandbox().await?);
        let id = bench.create(&sandbox, &Program::Forever).await?;
        let request = v1::StartContainerRequest {
            container_id: id.clone(),
        };
        let start = cut_short(services.runtime.start_container(request), polls);
        let answer = bench.answer("StartContainer", start).await?;
        // It is created, running or ended, but it is in the list. The next attempt runs once it is removed.
        let listed = bench.listed_container(&id).await?;
        ensure!(listed.is_some(), "an interrupted start made it disappear");
        let mut last = String::new();
        let removed = bench.until(
            "the removal of a container whose start was interrupted",
            async || {
                let stopped = bench.stop_container(&id, NO_GRACE).await;
                let removed = stopped.and(bench.remove_container(&id).await);
                Ok(removed.map_err(|seen| last = seen.into_text()).ok())
            },
        );
        let removed = removed.await;
        removed.map_err(|seen| Seen::new(format!("{}; the last answer: {last}", seen.into_text())))?;
        bench.container_is_gone(&id).await?;
        let next = bench.create_as(&sandbox, "main", 1, &Program::Forever).await?;
        bench.start_container(&next).await?;
        bench
            .container_is(&next, ContainerState::ContainerRunning)
            .await?;
        cleared_away(bench, &sandbox).await?;
        bench.container_is_gone(&id).await.during("later")?;
        if answer.is_some() {
            break;
        }
    }
    Ok(())
}

pub(super) async fn a_stop_cut_short_can_be_tried_again(bench: &mut Bench) -> Outcome {
    for polls in 1..=AWAITS {
        let (sandbox, id) = bench.start_pod(&Program::Forever).await?;
        let services = bench.services();
        let request = v1::StopContainerRequest {
            container_id: id.clone(),
            timeout: NO_GRACE,
        };
        let stop = cut_short(services.runtime.stop_container(request), polls);
        let answer = bench.answer("StopContainer", stop).await?;
        bench.stop_container(&id, NO_GRACE).await?;
        bench.container_is(&id, ContainerState::ContainerExited).await?;
        let request = v1::StopPodSandboxRequest {
            pod_sandbox_id: sandbox.id.clone(),
        };
        let stop = cut_short(services.runtime.stop_pod_sandbox(request), polls);
        bench.answer("StopPodSandbox", stop).await?;
        cleared_away(bench, &sandbox).await?;
        if answer.is_some() {
            break;
        }
    }
    Ok(())
}
