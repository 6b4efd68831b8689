//! Checks the configuration files of a kubelet. Prints the configuration that the agent would use, as `/configz` shows
//! it, or all for which it would not start.
//!
//! ```console
//! $ cargo run -p node-agent --example validate-config -- /var/lib/kubelet/config.yaml --config-dir /etc/kubernetes/kubelet.conf.d
//! $ cargo run -p node-agent --example validate-config -- config.yaml --this-node -- --kubeconfig=/etc/kubernetes/kubelet.conf
//! ```

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use kubelet_agent::program::{Machine, problems};
use kubelet_agent::{Origin, Problem};
use kubelet_config::flags::{CommandLine, KubeletServer};
use kubelet_config::kubelet_configuration::Decoding;
use kubelet_config::kubelet_configuration::validation::Host;
use kubelet_config::{ConfigurationStage, Error};

/// Prints the configuration that a kubelet v1.36 would use, or all for which it would not start.
#[derive(Parser)]
#[command(name = "validate-config")]
struct Args {
    /// The kubelet's configuration file, YAML or JSON.
    config: PathBuf,

    /// A folder of drop-ins.
    #[arg(long, value_name = "DIR")]
    config_dir: Option<PathBuf>,

    /// Only warn about unknown and duplicate fields, as the kubelet does.
    #[arg(long)]
    lenient: bool,

    /// Check for this machine: its cgroups, CPUs, memory, files and folders. Without `--kubeconfig` among the flags, the node has no
    /// cluster. By default, the machine is any one with cgroup v2, and the node is in a cluster.
    #[arg(long)]
    this_node: bool,

    /// Flags of the kubelet, which go before the files.
    #[arg(last = true, value_name = "FLAGS")]
    flags: Vec<OsString>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let args = Args::parse();
    let server = match load(&args) {
        Ok(server) => server,
        Err(error) => {
            complain(&error, &args);
            return ExitCode::FAILURE;
        }
    };
    let machine = if args.this_node { Machine::This } else { Machine::Any };
    let found = problems(&server, machine).await;
    if found.is_empty() {
        return show(&server).map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS);
    }
    for problem in &found {
        report(problem, &args);
    }
    ExitCode::FAILURE
}

fn load(args: &Args) -> Result<KubeletServer, Error> {
    let host = if args.this_node { Host::detect() } else { Host::default() };
    let decoding = if args.lenient { Decoding::LenientFallback } else { Decoding::Strict };
    let mut flags = vec![OsString::from("--config"), args.config.clone().into()];
    if let Some(folder) = &args.config_dir {
        flags.extend([OsString::from("--config-dir"), folder.clone().into()]);
    }
    flags.extend(args.flags.iter().cloned());
    CommandLine::parse(flags)?.examine(&host, decoding)
}

fn show(server: &KubeletServer) -> std::io::Result<()> {
    let mut notes = std::io::stderr().lock();
    for ignored in &server.ignored {
        writeln!(notes, "ignored: {ignored}")?;
    }
    for skipped in &server.skipped_drop_ins {
        writeln!(notes, "skipped: {}: does not end in .conf", skipped.display())?;
    }
    let mut out = std::io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, &server.configuration.masked().configz())?;
    writeln!(out)
}

/// One line: the file that set the field, what found the problem, the field, the problem, and the line of the file. A field that nobody
/// has set has its default from the configuration file.
fn report(problem: &Problem, args: &Args) {
    let found_by = problem.found_by;
    let mut lines = std::io::stderr().lock();
    _ = match &problem.origin {
        Some(Origin::File { path, line }) => {
            writeln!(lines, "{}: {found_by}: {problem} (line {line})", path.display())
        }
        Some(origin) => writeln!(lines, "{origin}: {found_by}: {problem}"),
        None => writeln!(lines, "{}: {found_by}: {problem}", args.config.display()),
    };
}

/// One line for each problem of files that cannot be read: the file, the stage that found it, and the problem.
fn complain(error: &Error, args: &Args) {
    let mut lines = std::io::stderr().lock();
    let (stage, file, problems) = match error {
        Error::Configuration { stage, file, problems, .. } => (*stage, file.clone(), problems.clone()),
        Error::FeatureGates { problems } => (ConfigurationStage::FeatureGates, None, problems.clone()),
        other => {
            _ = writeln!(lines, "{other}");
            return;
        }
    };
    let file = file.unwrap_or_else(|| args.config.clone());
    for problem in problems {
        _ = writeln!(lines, "{}: {stage}: {problem}", file.display());
    }
}
