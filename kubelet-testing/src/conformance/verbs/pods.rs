//! Pods that begin and end. Optional: `pods`.

use std::sync::Arc;

use kubelet_cri::verbs::{ContainerKey, ContainerRuntime, ErrorClass, Pod, PodKey, PodSpec, Pods};

use crate::conformance::bench::Bench;
use crate::conformance::cut_short::cut_short;
use crate::conformance::program::Program;
use crate::conformance::verdict::{During, Outcome, Seen, ensure};

/// The maximum number of awaits at which a call is dropped.
const AWAITS: u32 = 12;

pub(super) async fn a_pod_that_began_is_listed_until_it_ends(bench: &mut Bench) -> Outcome {
    let pods = OfPods::new(bench)?;
    let key = pods.key();
    let began = pods.begin(&key).await?;
    ensure!(began.key == key, "the begin of {key} gave {began:?}");
    pods.is_there(&began).await?;
    pods.end(&key).await?;
    pods.is_gone(&key).await
}

pub(super) async fn a_key_begun_twice_is_one_pod(bench: &mut Bench) -> Outcome {
    let pods = OfPods::new(bench)?;
    let key = pods.key();
    let (first, second) = (pods.begin(&key).await?, pods.begin(&key).await?);
    ensure!(
        first == second,
        "the first begin gave {first:?}, the second {second:?}"
    );
    pods.is_there(&first).await?;
    pods.end(&key).await?;
    pods.is_gone(&key).await
}

pub(super) async fn the_next_attempt_is_a_pod_of_its_own(bench: &mut Bench) -> Outcome {
    let pods = OfPods::new(bench)?;
    let first = pods.key();
    let next = PodKey::new(first.uid.clone(), 1);
    pods.begin(&first).await?;
    let began = pods.begin(&next).await?;
    pods.end(&first).await?;
    pods.is_gone(&first).await?;
    pods.is_there(&began).await?;
    pods.end(&next).await?;
    pods.is_gone(&next).await
}

pub(super) async fn an_end_kills_what_still_runs(bench: &mut Bench) -> Outcome {
    let (ends, runs) = (
        bench.start(&Program::Forever).await?,
        bench.start(&Program::Forever).await?,
    );
    OfPods::new(bench)?.end(&pod_of(&ends)).await?;
    match bench.listed(&ends).await? {
        Some(container) => ensure!(
            !container.is_running(),
            "after the end of its pod it is {container:?}"
        ),
        None => return Err(Seen::new("the list lost it with its pod")),
    }
    bench
        .runs_once(&runs)
        .await
        .during("the container of another pod")?;
    bench.remove(&ends).await?;
    bench.is_gone(&ends).await
}

pub(super) async fn end_of_what_is_not_there_is_a_success(bench: &mut Bench) -> Outcome {
    let pods = OfPods::new(bench)?;
    let key = pods.key();
    pods.end(&key).await?;
    pods.begin(&key).await?;
    pods.end(&key).await?;
    pods.end(&key).await
}

pub(super) async fn a_begin_cut_short_can_be_ended(bench: &mut Bench) -> Outcome {
    let pods = OfPods::new(bench)?;
    for polls in 1..=AWAITS {
        let key = pods.key();
        let spec = PodSpec::new(key.clone());
        let begin = cut_short(pods.of_runtime()?.begin(&spec), polls);
        let answer = bench.answer("begin", begin).await?;
        pods.end(&key).await?;
        pods.is_gone(&key)
            .await
            .during("ended after a begin that was cut short")?;
        let began = pods.begin(&key).await.during("begun again")?;
        pods.is_there(&began).await?;
        if answer.is_some() {
            break;
        }
    }
    Ok(())
}

pub(super) async fn an_end_cut_short_can_be_tried_again(bench: &mut Bench) -> Outcome {
    for polls in 1..=AWAITS {
        let key = bench.start(&Program::Forever).await?;
        let (pods, pod) = (OfPods::new(bench)?, pod_of(&key));
        let end = cut_short(pods.of_runtime()?.end(&pod), polls);
        let answer = bench.answer("end", end).await?;
        pods.end(&pod).await.during("ended again")?;
        pods.is_gone(&pod).await?;
        let container = bench.inspect(&key).await?;
        ensure!(!container.is_running(), "after the end it is {container:?}");
        if answer.is_some() {
            break;
        }
    }
    Ok(())
}

fn pod_of(container: &ContainerKey) -> PodKey {
    PodKey::new(container.pod.clone(), 0)
}

/// Steps with the pods of a runtime.
struct OfPods<'a> {
    bench: &'a Bench,
    runtime: Arc<dyn ContainerRuntime>,
}

impl<'a> OfPods<'a> {
    fn new(bench: &'a Bench) -> Outcome<Self> {
        let runtime = bench.verbs()?;
        Ok(Self { bench, runtime })
    }

    fn of_runtime(&self) -> Outcome<&dyn Pods> {
        self.runtime.pods().ok_or_else(|| Seen::new("it begins no pods"))
    }

    /// A new pod.
    fn key(&self) -> PodKey {
        PodKey::new(self.bench.uid(), 0)
    }

    async fn begin(&self, key: &PodKey) -> Outcome<Pod> {
        let spec = PodSpec::new(key.clone());
        let begin = self.of_runtime()?.begin(&spec);
        self.bench.answer("begin", begin).await?.during("begin")
    }

    async fn end(&self, key: &PodKey) -> Outcome {
        let end = self.of_runtime()?.end(key);
        self.bench.answer("end", end).await?.during("end")
    }

    async fn listed(&self, key: &PodKey) -> Outcome<Vec<Pod>> {
        let list = self.of_runtime()?.list();
        let mut list = self.bench.answer("list", list).await?.during("list")?;
        list.retain(|pod| pod.key == *key);
        Ok(list)
    }

    async fn is_there(&self, pod: &Pod) -> Outcome {
        let listed = self.listed(&pod.key).await?;
        ensure!(listed == [pod.clone()], "begin gave {pod:?}, the list {listed:?}");
        let inspect = self.of_runtime()?.inspect(&pod.key);
        let inspected = self.bench.answer("inspect", inspect).await?.during("inspect")?;
        ensure!(inspected == *pod, "begin gave {pod:?}, inspect {inspected:?}");
        Ok(())
    }

    async fn is_gone(&self, key: &PodKey) -> Outcome {
        let listed = self.listed(key).await?;
        ensure!(listed.is_empty(), "the list still has {listed:?}");
        let inspect = self.of_runtime()?.inspect(key);
        match self.bench.answer("inspect", inspect).await? {
            Err(error) if error.class == ErrorClass::Gone => Ok(()),
            other => Err(Seen::new(format!("inspect gave {other:?}, not Gone"))),
        }
    }
}
