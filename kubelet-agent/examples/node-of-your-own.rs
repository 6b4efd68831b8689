//! A kubelet with your own container runtime, joined to a cluster. This runtime only pretends; yours starts a microVM, a Wasm
//! module or a batch job. It takes a kubelet's command line and configuration file.
//!
//! `cargo run -p kubelet-agent --features program --example node-of-your-own -- --config … --kubeconfig …`

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kubelet_agent::NodeAgent;
use kubelet_agent::program::{Command, Program, signalled};
use kubelet_core::Clock;
use kubelet_cri::verbs::{
    Container, ContainerKey, ContainerRuntime, ContainerSpec, Exec, ExecOutput, Result, RuntimeError,
};
use parking_lot::Mutex;

#[derive(Default)]
struct Pretend(Mutex<BTreeMap<ContainerKey, Container>>);

#[async_trait::async_trait]
impl ContainerRuntime for Pretend {
    fn name(&self) -> &str {
        "pretend"
    }
    async fn list(&self) -> Result<Vec<Container>> {
        Ok(self.0.lock().values().cloned().collect())
    }
    async fn start(&self, spec: &ContainerSpec) -> Result<Container> {
        let (now, mut containers) = (Clock::system().now(), self.0.lock());
        if let (None, Some(log)) = (containers.get(&spec.key), &spec.log_path) {
            let line = format!("{now} stdout F {} pretends to run\n", spec.image);
            std::fs::write(log, line)
                .map_err(|error| RuntimeError::transient(&spec.key, error.to_string()))?;
        }
        let started = || Container::running(spec.key.clone(), now);
        Ok(containers.entry(spec.key.clone()).or_insert_with(started).clone())
    }
    async fn stop(&self, key: &ContainerKey, _grace: Duration) -> Result<()> {
        if let Some(container) = self.0.lock().get_mut(key) {
            container.exited(0, Clock::system().now());
        }
        Ok(())
    }
    async fn remove(&self, key: &ContainerKey) -> Result<()> {
        self.0.lock().remove(key);
        Ok(())
    }
    fn exec(&self) -> Option<&dyn Exec> {
        Some(self)
    }
}

#[async_trait::async_trait]
impl Exec for Pretend {
    async fn exec_sync(&self, _: &ContainerKey, command: &[String]) -> Result<ExecOutput> {
        let (stdout, exit_code) = (format!("{command:?}\n").into(), i32::from(command == ["false"]));
        Ok(ExecOutput { stdout, exit_code, ..Default::default() })
    }
}

#[tokio::main]
async fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let Command::Run(program) = Program::parse("node-of-your-own", std::env::args_os().skip(1))? else {
        return Ok(());
    };
    program.start_log()?;
    let agent = NodeAgent::builder(program.settings()?).containers(Arc::new(Pretend::default()));
    Ok(program.run(agent.build(), signalled()?).await?)
}
