//! Checks the configuration files of a kubelet. Prints the configuration that the kubelet would use, as `/configz` shows
//! it, or all problems of the files.
//!
//! ```console
//! $ cargo run --example validate-config -- /var/lib/kubelet/config.yaml --config-dir /etc/kubernetes/kubelet.conf.d
//! ```

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use kubelet_config::kubelet_configuration::validation::Host;
use kubelet_config::kubelet_configuration::{ConfigurationLoader, Decoding, LoadedConfiguration};
use kubelet_config::{ConfigurationStage, Error};

/// Prints the configuration that a kubelet v1.36 would use, or why it would reject it.
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

    /// Validate for this machine instead of a machine with cgroup v2.
    #[arg(long)]
    this_node: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    match load(&args) {
        Ok(loaded) => show(&loaded).map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS),
        Err(error) => {
            complain(&error, &args);
            ExitCode::FAILURE
        }
    }
}

fn load(args: &Args) -> Result<LoadedConfiguration, Error> {
    let host = if args.this_node { Host::detect() } else { Host::default() };
    let decoding = if args.lenient { Decoding::LenientFallback } else { Decoding::Strict };
    let loader = ConfigurationLoader::new().config(&args.config).host(host).decoding(decoding);
    match &args.config_dir {
        None => loader.load(),
        Some(folder) => loader.config_dir(folder).load(),
    }
}

fn show(loaded: &LoadedConfiguration) -> std::io::Result<()> {
    let mut notes = std::io::stderr().lock();
    for ignored in &loaded.ignored {
        writeln!(notes, "ignored: {ignored}")?;
    }
    for skipped in &loaded.skipped_drop_ins {
        writeln!(notes, "skipped: {}: does not end in .conf", skipped.display())?;
    }
    let mut out = std::io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, &loaded.config.masked().configz())?;
    writeln!(out)
}

/// One line for each problem: the file, the stage that found it, the field and the problem.
fn complain(error: &Error, args: &Args) {
    let mut lines = std::io::stderr().lock();
    let (stage, file, problems) = match error {
        Error::Configuration { stage, file, problems, .. } => (*stage, file.clone(), problems.clone()),
        Error::Validation(invalid) => {
            let problems = invalid.errors().iter().map(ToString::to_string).collect();
            (ConfigurationStage::Validate, None, problems)
        }
        other => {
            _ = writeln!(lines, "{other}");
            return;
        }
    };
    // The problem may come from the file or from a drop-in.
    let file = file.unwrap_or_else(|| args.config.clone());
    for problem in problems {
        _ = writeln!(lines, "{}: {stage}: {problem}", file.display());
    }
}
