//! A node whose pods are WebAssembly modules.
//!
//! ```console
//! $ cargo run -- --api 127.0.0.1:6443     # a node without a cluster, for kubectl
//! # wasm-node --config /var/lib/kubelet/config.yaml --kubeconfig /etc/kubernetes/kubelet.conf
//! ```
//!
//! With `--kubeconfig` and the other flags of a kubelet, it is a node of a cluster.

mod node;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use kubelet_agent::Settings;
use pico_args::Arguments;
use wasm_node::WasmRuntime;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

#[tokio::main]
async fn main() -> Result<()> {
    let mut arguments = Arguments::from_env();
    let address: Option<SocketAddr> = arguments.opt_value_from_str("--api")?;
    let flags = Flags::parse(&mut arguments)?;
    let Some(address) = address else {
        return node::of_cluster(arguments.finish(), |settings| flags.open(settings)).await;
    };
    let root: Option<PathBuf> = arguments.opt_value_from_str("--root-dir")?;
    if let [unknown, ..] = &arguments.finish()[..] {
        return Err(format!("unknown argument {unknown:?}").into());
    }
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".local/state/wasm-node"));
    let root = root.or_else(home).ok_or("--root-dir is missing")?;
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_max_level(tracing::Level::WARN).init();
    let settings = Settings::new(std::path::absolute(root)?);
    let wasm = flags.open(&settings)?;
    node::without_cluster(settings, wasm.clone(), address).await?;
    wasm.shutdown().await;
    Ok(())
}

/// The flags that a kubelet does not have.
struct Flags {
    modules: PathBuf,
    insecure_registries: Vec<String>,
}

impl Flags {
    fn parse(arguments: &mut Arguments) -> Result<Self> {
        let modules = arguments.opt_value_from_str("--modules")?;
        Ok(Self {
            modules: modules.unwrap_or_else(|| concat!(env!("CARGO_MANIFEST_DIR"), "/modules").into()),
            insecure_registries: arguments.values_from_str("--insecure-registry")?,
        })
    }

    fn open(self, settings: &Settings) -> Result<Arc<WasmRuntime>> {
        let runtime = WasmRuntime::builder(settings.root_dir.join("wasm")).modules(self.modules);
        Ok(Arc::new(runtime.insecure_registries(self.insecure_registries).open()?))
    }
}
