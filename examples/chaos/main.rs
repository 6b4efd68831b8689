//! Chaos on a real node: pods of every kind come and go while the parts of the node are killed.
//!
//! `cargo run --release -p chaos -- --programs FOLDER AGENT` starts etcd, kube-apiserver, kube-controller-manager,
//! kube-scheduler, containerd, a CSI driver (`hostpathplugin` and `csi-node-driver-registrar`, if they are found) and the
//! agent, each in its own process. An agent is any program with a kubelet's command line, the Go kubelet among them. Everything
//! runs in namespaces, a cgroup and a folder of its own, so that the host and other runs are not touched:
//!
//! | of the host | in a run |
//! |---|---|
//! | folders with fixed names, such as `/var/lib/kubelet` | folders of the run; those that the host lacks are made, and stay empty on the host |
//! | the kernel's settings that an agent changes, such as `vm.overcommit_memory` | files with the host's values; the kernel keeps its settings |
//! | the folder | must be new or empty; it is removed after a run without faults |
//! | cgroups | a new one, `chaos-PID`; it is removed at the end |
//!
//! For an hour (`--minutes`) some 60 pods (`--pods`) are created, scaled, rolled out and deleted. Meanwhile the agent, containerd,
//! kube-apiserver and the CSI driver are killed with SIGKILL, and the network between agent and API server refuses or is
//! silent. The seed that is printed repeats the schedule of the faults and of the changes (`--seed`), as far as a real host repeats anything.
//!
//! Then the faults end, and it checks:
//!
//! | checked | by |
//! |---|---|
//! | all pods are as they should be within a minute | the API, the runtime |
//! | no container ran twice at once, and no pod of a stateful set beside one of the same name | a lock that each container holds |
//! | no container ran again that should not: with the restart policy `Never`, or `OnFailure` after success; not if the agent was killed while it started the first one | what each container writes |
//! | no restart count fell; no phase left `Succeeded` or `Failed` | a watch of the API |
//! | the last restart count of a container covers each of its runs, also if its pod is gone; not after a forced deletion, and not if the watch missed the deletion | the same watch, what each container writes |
//! | the agent never ended by itself, unless `--may-end` is given | its process |
//! | after all pods are deleted, they are gone within a minute | the API, the runtime |
//! | then nothing is left of them: files, logs, mounts, cgroups, sandboxes, containers | the host, the runtime |
//!
//! A check that saw nothing is a fault, too, and so is a containerd that does not start again.
//!
//! Ctrl-C ends the chaos early, and the checks begin. A second one, SIGTERM or SIGHUP ends the run with all its processes. So does
//! SIGKILL, but then the cgroup stays.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a program that is run by hand"
)]

mod api;
mod args;
mod certificates;
mod cgroups;
mod cluster;
mod convergence;
mod faults;
mod folder;
mod journal;
mod kernel;
mod leftovers;
mod namespaces;
mod network;
mod pods;
mod runs;
mod service;
mod stop;
mod verdict;
mod witness;
mod workload;

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use fastrand::Rng;

use crate::args::Args;
use crate::cluster::Cluster;
use crate::faults::Counts;
use crate::journal::Journal;
use crate::namespaces::Stage;
use crate::runs::Downs;
use crate::witness::Witness;
use crate::workload::Workload;

fn main() -> ExitCode {
    let args = Args::parse();
    match Stage::of_this_process() {
        Stage::Outside => outside(&args),
        Stage::First => namespaces::be_first(),
        Stage::Inside => inside(&args),
    }
}

fn runtime() -> tokio::runtime::Runtime {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.worker_threads(2).enable_all().build().unwrap()
}

fn outside(args: &Args) -> ExitCode {
    if !rustix::process::geteuid().is_root() {
        println!("chaos needs root");
        return ExitCode::FAILURE;
    }
    if let Some(part) = args.spare.iter().find(|part| !faults::KINDS.contains(&part.as_str())) {
        println!("--spare {part}: the parts are {}", faults::KINDS.join(", "));
        return ExitCode::FAILURE;
    }
    match runtime().block_on(namespaces::enter(args.folder.as_deref(), args.keep)) {
        Ok(code) => code,
        Err(error) => {
            println!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn inside(args: &Args) -> ExitCode {
    let is_good = runtime().block_on(run(args));
    if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Whether no fault was found.
async fn run(args: &Args) -> bool {
    let journal = Journal::new();
    let seed = args.seed.unwrap_or_else(|| fastrand::u64(..1 << 32));
    let agent = args.agent.display();
    journal.note(format!("{agent}: {} pods, {} minutes, --seed {seed}", args.pods, args.minutes));
    let mut rng = Rng::with_seed(seed);
    runs::prepare();
    let cluster = Cluster::start(args, &journal).await;
    journal.note("the node is ready");

    let witness = Witness::new(journal.clone());
    tokio::spawn(witness.clone().run(cluster.administrator.clone()));
    let has_csi = cluster.csi.is_some();
    let mut workload = Workload::new(
        cluster.administrator.clone(),
        witness.clone(),
        journal.clone(),
        rng.fork(),
        has_csi,
        args.pods,
    );
    workload.begin().await;
    let (counts, downs) = (Counts::default(), Downs::default());
    let chaos = Duration::from_secs_f64(args.minutes * 60.0);
    {
        let faults = faults::make(&cluster, &mut rng, &args.spare, &journal, &counts, &downs);
        tokio::select! {
            _ = async { tokio::join!(workload.churn(), faults) } => {}
            () = tokio::time::sleep(chaos) => {}
            () = stop::asked_to_end() => {}
        }
    }
    faults::heal(&cluster, &journal, &downs).await;
    journal.note(format!("the chaos ends: {}; {} changes", counts.summary(), workload.changes()));
    verdict::reach(&cluster, &mut workload, &witness, &downs, &journal, args.may_end).await
}
