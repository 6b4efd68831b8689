//! Steps that many clauses share, for a runtime with the five verbs.

use std::time::Duration;

use kubelet_cri::verbs::{Container, ContainerKey, ContainerSpec, EnvVar, ErrorClass, Exit, PodKey, PodSpec};

use crate::conformance::bench::Bench;
use crate::conformance::program::Program;
use crate::conformance::verdict::{During, Outcome, Seen, ensure};

/// For stops where the grace period does not matter.
pub(super) const NO_GRACE: Duration = Duration::ZERO;
/// Longer than the time limit of a clause, so a clause that waits for its end fails.
pub(super) const LONG_GRACE: Duration = Duration::from_secs(24 * 60 * 60);

impl Bench {
    /// The first container with this name, in a new pod.
    pub(super) fn key(&self, container: &str) -> ContainerKey {
        ContainerKey::new(self.uid(), container, 0)
    }

    /// A spec of a container. Its pod has begun, if the runtime begins pods.
    pub(super) async fn spec(&self, key: &ContainerKey, program: &Program) -> Outcome<ContainerSpec> {
        if let Some(pods) = self.verbs()?.pods() {
            let pod = PodSpec::new(PodKey::new(key.pod.clone(), 0));
            self.answer("begin", pods.begin(&pod)).await?.during("begin")?;
        }
        let workload = self.workload(program);
        let mut spec = ContainerSpec::new(key.clone(), workload.image);
        spec.command = workload.command;
        spec.args = workload.args;
        let env = workload.env.into_iter();
        spec.env = env
            .map(|(name, value)| EnvVar {
                name,
                value: value.into_bytes(),
            })
            .collect();
        spec.pod.namespace = "default".to_owned();
        spec.pod.name = key.pod.to_string();
        spec.log_path = Some(self.log_path(key.pod.as_str(), &key.container, key.attempt)?);
        Ok(spec)
    }

    /// Starts a container of a new pod.
    pub(super) async fn start(&self, program: &Program) -> Outcome<ContainerKey> {
        let key = self.key("main");
        self.start_as(&key, program).await?;
        Ok(key)
    }

    pub(super) async fn start_as(&self, key: &ContainerKey, program: &Program) -> Outcome<Container> {
        let (runtime, spec) = (self.verbs()?, self.spec(key, program).await?);
        self.answer("start", runtime.start(&spec)).await?.during("start")
    }

    /// Starts a container and waits until it ends by itself.
    pub(super) async fn run(&self, program: &Program) -> Outcome<(ContainerKey, Exit)> {
        let key = self.start(program).await?;
        let exit = self.ended(&key).await?;
        Ok((key, exit))
    }

    pub(super) async fn inspect(&self, key: &ContainerKey) -> Outcome<Container> {
        let runtime = self.verbs()?;
        self.answer("inspect", runtime.inspect(key))
            .await?
            .during("inspect")
    }

    /// The container with this key in the list; checks that the list has it at most once.
    pub(super) async fn listed(&self, key: &ContainerKey) -> Outcome<Option<Container>> {
        let runtime = self.verbs()?;
        let mut list = self.answer("list", runtime.list()).await?.during("list")?;
        list.retain(|container| container.key == *key);
        ensure!(
            list.len() <= 1,
            "the list has {key} {} times: {list:?}",
            list.len()
        );
        Ok(list.pop())
    }

    pub(super) async fn stop(&self, key: &ContainerKey, grace: Duration) -> Outcome {
        let runtime = self.verbs()?;
        self.answer("stop", runtime.stop(key, grace))
            .await?
            .during("stop")
    }

    pub(super) async fn remove(&self, key: &ContainerKey) -> Outcome {
        let runtime = self.verbs()?;
        self.answer("remove", runtime.remove(key)).await?.during("remove")
    }

    /// Its exit, if it has ended.
    pub(super) async fn ended(&self, key: &ContainerKey) -> Outcome<Exit> {
        let what = format!("the end of {key}");
        self.until(&what, async || Ok(self.inspect(key).await?.exit().cloned()))
            .await
    }

    /// Waits until a program is ready for its stop signal.
    pub(super) async fn ready(&self, spec: &ContainerSpec) -> Outcome {
        let Some(path) = spec.log_path.as_deref().filter(|_| self.offers("logs")) else {
            return Ok(());
        };
        let ready = async || {
            let log = std::fs::read_to_string(path).unwrap_or_default();
            Ok(log.contains("ready\n").then_some(()))
        };
        self.until("the line `ready` in the log", ready).await
    }

    /// Starts a program that handles or ignores its stop signal, and waits until it is ready for the signal.
    pub(super) async fn start_ready(&self, program: &Program) -> Outcome<ContainerKey> {
        let key = self.key("main");
        let container = self.start_as(&key, program).await?;
        ensure!(container.is_running(), "{key} ended at once: {container:?}");
        self.ready(&self.spec(&key, program).await?).await?;
        Ok(key)
    }

    /// Checks that nothing is left of a container.
    pub(super) async fn is_gone(&self, key: &ContainerKey) -> Outcome {
        let listed = self.listed(key).await?;
        ensure!(listed.is_none(), "the list still has {listed:?}");
        let runtime = self.verbs()?;
        match self.answer("inspect", runtime.inspect(key)).await? {
            Err(error) if error.class == ErrorClass::Gone => Ok(()),
            Err(error) => Err(Seen::new(format!(
                "inspect: {:?}, not Gone: {error}",
                error.class
            ))),
            Ok(container) => Err(Seen::new(format!("inspect still finds {container:?}"))),
        }
    }

    /// Checks that one container runs with this key.
    pub(super) async fn runs_once(&self, key: &ContainerKey) -> Outcome<Container> {
        match self.listed(key).await? {
            Some(container) if container.is_running() => Ok(container),
            Some(container) => Err(Seen::new(format!("it does not run: {container:?}"))),
            None => Err(Seen::new(format!("the list has no {key}"))),
        }
    }
}
