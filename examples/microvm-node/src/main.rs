//! A node whose pods are virtual machines.
//!
//! ```console
//! $ cargo run -- --images ~/images --api 127.0.0.1:6443     # a node without a cluster, for kubectl
//! # microvm-node --images /var/lib/microvm/images --config /var/lib/kubelet/config.yaml --kubeconfig /etc/kubernetes/kubelet.conf
//! ```
//!
//! With `--kubeconfig` and the other flags of a kubelet, it is a node of a cluster.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use kubelet_agent::program::{Command, Program, signalled};
use kubelet_agent::{NodeAgent, Settings};
use microvm_node::{MicrovmRuntime, Subnet};
use pico_args::Arguments;
use tokio_util::sync::CancellationToken;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

#[tokio::main]
async fn main() -> Result<()> {
    let mut arguments = Arguments::from_env();
    match arguments.opt_value_from_str("--api")? {
        Some(address) => without_cluster(arguments, address).await,
        None => of_cluster(arguments).await,
    }
}

/// A node with an API server in its own process. It ends with Ctrl-C, and its virtual machines with it.
async fn without_cluster(mut arguments: Arguments, address: SocketAddr) -> Result<()> {
    let root: Option<PathBuf> = arguments.opt_value_from_str("--root-dir")?;
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".local/state/microvm-node"));
    let settings = Settings::new(std::path::absolute(root.or_else(home).ok_or("--root-dir is missing")?)?);
    let vms = Flags::parse(&mut arguments)?.open(&settings).await?;
    if let [unknown, ..] = &arguments.finish()[..] {
        return Err(format!("unknown argument {unknown:?}").into());
    }
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_max_level(tracing::Level::WARN).init();
    let agent = NodeAgent::builder(settings).containers(vms.clone()).serve_kubectl(address).build().await?;
    let (handle, shutdown) = (agent.handle(), CancellationToken::new());
    let api = handle.api_server().ok_or("no API server")?;
    writeln!(std::io::stdout(), "export KUBECONFIG={}", api.kubeconfig().display())?;
    let running = tokio::spawn(agent.run(shutdown.clone()));
    signalled()?.await;
    shutdown.cancel();
    running.await??;
    vms.shutdown().await;
    Ok(())
}

/// A kubelet: with its flags, its configuration and its kubeconfig. When it ends, its virtual machines go on.
async fn of_cluster(mut arguments: Arguments) -> Result<()> {
    let flags = Flags::parse(&mut arguments)?;
    let Command::Run(program) = Program::parse("microvm-node", arguments.finish())? else { return Ok(()) };
    let (verbosity, metrics) = (program.start_log()?, program.start_metrics()?);
    let settings = program.settings()?;
    let vms = flags.open(&settings).await?;
    let agent = NodeAgent::builder(settings).containers(vms).verbosity(verbosity).metrics(metrics);
    program.run(agent.build(), signalled()?).await?;
    Ok(())
}

/// The flags that a kubelet does not have.
struct Flags {
    images: PathBuf,
    engine: PathBuf,
    subnet: Option<Subnet>,
}

impl Flags {
    fn parse(arguments: &mut Arguments) -> Result<Self> {
        Ok(Self {
            images: arguments.value_from_str("--images")?,
            engine: arguments.opt_value_from_str("--engine")?.unwrap_or_else(|| "cloud-hypervisor".into()),
            subnet: arguments.opt_value_from_str("--subnet")?,
        })
    }

    async fn open(self, settings: &Settings) -> Result<Arc<MicrovmRuntime>> {
        let mut runtime =
            MicrovmRuntime::builder(settings.root_dir.join("vm"), self.images).engine(self.engine);
        if let Some(subnet) = self.subnet {
            runtime = runtime.subnet(subnet);
        }
        Ok(Arc::new(runtime.open().await?))
    }
}
