//! A wrapper between the adapter and a runtime. It injects faults.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use kubelet_cri::verbs::{
    Attach, Container, ContainerKey, ContainerRuntime, ContainerSpec, Events, Exec, Images, Logs, Pods,
    PortForward, Result, RuntimeError, Stats,
};

use crate::conformance::faults::{Faults, Lost};

pub(super) struct Wrapper {
    pub(super) runtime: Arc<dyn ContainerRuntime>,
    pub(super) faults: Arc<Faults>,
}

impl Wrapper {
    async fn call<T>(&self, name: &'static str, call: impl Future<Output = Result<T>>) -> Result<T> {
        match self.faults.call(name, call).await {
            Ok(answer) => answer,
            Err(Lost::Failed | Lost::NoAnswer(_)) => {
                Err(RuntimeError::transient("", format!("{name} failed on its way")))
            }
        }
    }
}

#[async_trait]
impl ContainerRuntime for Wrapper {
    fn name(&self) -> &str {
        self.runtime.name()
    }

    fn version(&self) -> &str {
        self.runtime.version()
    }

    async fn list(&self) -> Result<Vec<Container>> {
        let list = self.call("list", self.runtime.list()).await?;
        Ok(self.faults.list(list))
    }

    async fn inspect(&self, key: &ContainerKey) -> Result<Container> {
        self.call("inspect", self.runtime.inspect(key)).await
    }

    async fn start(&self, spec: &ContainerSpec) -> Result<Container> {
        self.call("start", self.runtime.start(spec)).await
    }

    async fn stop(&self, key: &ContainerKey, grace: Duration) -> Result<()> {
        self.call("stop", self.runtime.stop(key, grace)).await
    }

    async fn remove(&self, key: &ContainerKey) -> Result<()> {
        self.call("remove", self.runtime.remove(key)).await
    }

    fn data_dir(&self) -> Option<&Path> {
        self.runtime.data_dir()
    }

    fn pods(&self) -> Option<&dyn Pods> {
        self.runtime.pods()
    }

    fn exec(&self) -> Option<&dyn Exec> {
        self.runtime.exec()
    }

    fn attach(&self) -> Option<&dyn Attach> {
        self.runtime.attach()
    }

    fn port_forward(&self) -> Option<&dyn PortForward> {
        self.runtime.port_forward()
    }

    fn logs(&self) -> Option<&dyn Logs> {
        self.runtime.logs()
    }

    fn stats(&self) -> Option<&dyn Stats> {
        self.runtime.stats()
    }

    fn images(&self) -> Option<&dyn Images> {
        self.runtime.images()
    }

    fn events(&self) -> Option<&dyn Events> {
        self.runtime.events()
    }
}
