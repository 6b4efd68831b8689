//! The conformance kit. There are no stop signals and no commands in a module, and modules end with the agent.

use std::path::Path;
use std::sync::Arc;

use kubelet_cri::verbs::ContainerRuntime as _;
use kubelet_testing::conformance::{Fixture, Opened, Program, Subject, Workload};
use wasm_node::WasmRuntime;

use crate::{KIT, modules};

struct Wasm(Arc<WasmRuntime>);

#[async_trait::async_trait]
impl Fixture for Wasm {
    async fn open(dir: &Path) -> Opened<Self> {
        let wasm = WasmRuntime::builder(dir).modules(modules()).open()?;
        wasm.images().ok_or("no images")?.pull(KIT).await?;
        Ok(Some(Self(Arc::new(wasm))))
    }

    fn subject(&self) -> Subject {
        Subject::verbs(self.0.clone())
    }

    async fn close(&mut self) {
        self.0.shutdown().await;
    }

    fn workload(&self, program: &Program) -> Workload {
        let image = if *program == Program::Missing { "file/missing.wat" } else { KIT };
        let mut workload = Workload::new::<String>(image, []);
        workload.args = program.words();
        workload
    }
}

kubelet_testing::conformance!(verbs: Wasm, offers: [logs, stats, images, events]);
