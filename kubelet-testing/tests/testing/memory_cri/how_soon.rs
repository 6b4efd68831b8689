//! How fast a whole agent starts a pod, sees its end and removes it: no slower with events than with lists, even if
//! lists are rare then.

use std::time::Duration;

use kubelet_core::PodExt;
use kubelet_testing::{MemoryCri, PodBuilder, Run, wait_until};
use tokio::time::{Instant, sleep_until};

use super::agent::{Agent, Pleg, clock, is};

/// The durations of the steps of one pod's life.
#[derive(Clone, Copy, Debug)]
struct Life {
    created_to_running: Duration,
    ended_to_restarted: Duration,
    deleted_to_gone: Duration,
    /// For another pod, whose container exits by itself.
    ended_to_succeeded: Duration,
}

/// Runs two pods. Each step begins at the same time after the agent's start, however long the earlier steps took,
/// because the agent has periodic work: it checks for deleted pods every other second.
async fn live(pleg: Pleg, moment: Duration) -> Life {
    let clock = clock();
    let begun = Instant::now();
    let at = |seconds| sleep_until(begun + Duration::from_secs(seconds) + moment);
    let runtime = MemoryCri::new(clock);
    let takes = Duration::from_secs(20);
    runtime.script("job", [Run::exits(0).after(takes)]);
    runtime.script("main", [Run::forever().stop_takes(Duration::from_millis(300), 0)]);
    let agent = Agent::start(runtime.clone(), clock, pleg).await;
    let warm_up = PodBuilder::new("warm-up")
        .container("warm-up", "busybox:1.36", |c| c)
        .build();
    agent.pods.send_replace(vec![warm_up.clone()]);
    agent.until(&warm_up.uid(), "the first runs", is("Running")).await;
    at(30).await;

    let web = PodBuilder::new("web")
        .container("main", "busybox:1.36", |c| c)
        .container("side", "busybox:1.36", |c| c)
        .build();
    let created = Instant::now();
    agent.pods.send_replace(vec![warm_up.clone(), web.clone()]);
    agent.until(&web.uid(), "web runs", is("Running")).await;
    let created_to_running = created.elapsed();

    at(40).await;
    let ended = Instant::now();
    assert_eq!(runtime.end(&web.uid(), "side", 1), 1);
    agent
        .until(&web.uid(), "side was restarted", |status| {
            let mut containers = status.container_statuses.iter().flatten();
            containers.any(|it| {
                it.restart_count == 1 && it.state.as_ref().is_some_and(|state| state.running.is_some())
            })
        })
        .await;
    let ended_to_restarted = ended.elapsed();

    at(60).await;
    let deleted = Instant::now();
    agent.pods.send_replace(vec![warm_up.clone()]);
    let uid = web.uid();
    let gone = wait_until(agent.sink.watch(), "web is gone", |pods| !pods.contains_key(&uid));
    gone.await.unwrap();
    let deleted_to_gone = deleted.elapsed();

    at(80).await;
    let job = PodBuilder::new("job")
        .restart_policy("Never")
        .container("job", "busybox:1.36", |c| c)
        .build();
    agent.pods.send_replace(vec![warm_up, job.clone()]);
    agent.until(&job.uid(), "the job runs", is("Running")).await;
    agent
        .until(&job.uid(), "the job succeeded", is("Succeeded"))
        .await;
    let containers = runtime.containers();
    let ended_at = containers
        .iter()
        .filter(|it| it.metadata.as_ref().is_some_and(|it| it.name == "job"))
        .map(|it| it.finished_at)
        .max()
        .unwrap();
    let now = i64::try_from(clock.now().as_nanosecond()).unwrap();
    let ended_to_succeeded = Duration::from_nanos(u64::try_from(now - ended_at).unwrap());

    agent.stop().await;
    Life {
        created_to_running,
        ended_to_restarted,
        deleted_to_gone,
        ended_to_succeeded,
    }
}

impl Life {
    fn steps(&self) -> [(&'static str, Duration); 4] {
        [
            ("created to Running", self.created_to_running),
            ("ended to restarted", self.ended_to_restarted),
            ("deleted to gone", self.deleted_to_gone),
            ("ended to Succeeded", self.ended_to_succeeded),
        ]
    }
}

#[tokio::test(start_paused = true)]
async fn events_are_no_slower_than_lists_however_rare_these_are() {
    // At various times between two lists of a generic PLEG.
    for moment in [0, 130, 410, 770, 990].map(Duration::from_millis) {
        let listed = live(Pleg::Generic, moment).await;
        for pleg in [Pleg::Evented, Pleg::EventedAlone] {
            let told = live(pleg, moment).await;
            for ((step, told), (_, listed)) in told.steps().into_iter().zip(listed.steps()) {
                assert!(
                    told <= listed,
                    "{step}, {moment:?}: {pleg:?} {told:?}, generic {listed:?}"
                );
            }
            // Nothing waits for a list: these are the latencies of the runtime. It stops the sandbox before the job has succeeded.
            assert!(
                told.ended_to_succeeded < Duration::from_millis(250),
                "{pleg:?} {told:?}"
            );
            assert!(
                told.ended_to_restarted < Duration::from_millis(250),
                "{pleg:?} {told:?}"
            );
        }
    }
}
