//! A node agent: it runs the pods of a cluster, of a folder and of a URL. It takes a kubelet's command line and
//! configuration file.
//!
//! ```console
//! # node-agent --config /var/lib/kubelet/config.yaml --kubeconfig /etc/kubernetes/kubelet.conf
//! # node-agent preflight --config …   # reports why the node cannot join its cluster, and how to fix it
//! ```
//!
//! Without `--kubeconfig` it runs static pods only. SIGTERM and Ctrl-C end the agent but not its containers;
//! the next agent takes them over.

#[cfg(feature = "profiling")]
mod profiler;

use std::io::Write as _;
use std::process::ExitCode;

use kubelet_agent::program::{Command, Program, signalled};
use kubelet_agent::{Error, NodeAgent};

/// It returns free memory to the system after half a second and has one arena, as `.cargo/config.toml` sets it. With 110 pods the
/// agent is 2 MB smaller than with glibc's allocator.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

#[tokio::main(worker_threads = 2)]
async fn main() -> ExitCode {
    run().await.unwrap_or_else(|error| {
        // Not with `tracing`, which may not be set up yet.
        let _ = writeln!(std::io::stderr(), "node-agent: {error}");
        ExitCode::FAILURE
    })
}

async fn run() -> Result<ExitCode, Error> {
    let program = match Program::parse("node-agent", std::env::args_os().skip(1))? {
        Command::Run(program) => program,
        Command::Preflight(program) => {
            // What is wrong with its settings is among the problems.
            drop(program.start_log());
            return Ok(if program.preflight().await? { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
        _ => return Ok(ExitCode::SUCCESS),
    };
    let verbosity = program.start_log()?;
    program.warn();
    let agent =
        NodeAgent::builder(program.settings()?).cri().verbosity(verbosity).metrics(program.start_metrics()?);
    #[cfg(feature = "profiling")]
    let agent = agent.profiler(std::sync::Arc::new(profiler::AgentProfiler::new()));
    program.run(agent.build(), signalled()?).await?;
    Ok(ExitCode::SUCCESS)
}
