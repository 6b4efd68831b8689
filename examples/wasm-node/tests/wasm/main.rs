//! The tests of the runtime: alone, under the kubelet, and with the conformance kit.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod conformance;
mod containers;
mod guide;
mod images;
mod layout;
mod node;
mod registry;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use kubelet_cri::verbs::{Container, ContainerKey, ContainerRuntime as _, ContainerSpec, Exit};
use tempfile::TempDir;
use wasm_node::WasmRuntime;

/// The image of what the tests run.
const KIT: &str = "file/kit.wat";

/// The folder of the test's modules.
fn modules() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/wasm"))
}

/// A runtime with the image of the kit, in a folder of its own.
struct Stage {
    wasm: Arc<WasmRuntime>,
    dir: TempDir,
}

impl Stage {
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let wasm = WasmRuntime::builder(dir.path().join("wasm")).modules(modules()).open().unwrap();
        let wasm = Arc::new(wasm);
        wasm.images().unwrap().pull(KIT).await.unwrap();
        Self { wasm, dir }
    }

    /// What runs the kit with these arguments, and logs to the file `log`.
    fn spec(&self, args: &[&str]) -> ContainerSpec {
        let mut spec = ContainerSpec::new(ContainerKey::new("uid", "main", 0), KIT);
        spec.args = args.iter().map(|arg| (*arg).to_owned()).collect();
        spec.log_path = Some(self.dir.path().join("log"));
        spec
    }

    /// Runs a container to its end.
    async fn run(&self, spec: &ContainerSpec) -> Exit {
        let mut ends = self.wasm.events().unwrap().watch();
        self.wasm.start(spec).await.unwrap();
        assert_eq!(ends.next().await.as_ref(), Some(&spec.key));
        self.exit(spec).await
    }

    async fn exit(&self, spec: &ContainerSpec) -> Exit {
        let container: Container = self.wasm.inspect(&spec.key).await.unwrap();
        container.exit().cloned().expect("it runs")
    }

    /// The lines of the log, without their times.
    fn log(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
        text.lines().map(|line| line.split_once(' ').unwrap().1.to_owned()).collect()
    }
}

/// Waits until the value is there.
async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let found = async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), found).await.unwrap_or_else(|_| panic!("waited for {what}"))
}
