//! The checks after the chaos, and the report.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use tokio::time::sleep;

use crate::cluster::Cluster;
use crate::convergence::{problems, running};
use crate::journal::Journal;
use crate::leftovers;
use crate::runs::{AllRuns, Comparison, Downs};
use crate::witness::Witness;
use crate::workload::Workload;

/// How long the node may take until all is as it should be.
const CONVERGED_WITHIN: Duration = Duration::from_secs(60);
/// How long the watch may take until it has all pods.
const WATCHED_WITHIN: Duration = Duration::from_secs(30);
/// How long an agent may take until it reports the restart of a container.
const COUNTED_WITHIN: Duration = Duration::from_secs(30);
/// How long deleted pods may take to go.
const GONE_WITHIN: Duration = Duration::from_secs(60);
/// A kubelet collects the garbage of the runtime each minute: containers first, then sandboxes and logs.
const CLEAN_WITHIN: Duration = Duration::from_secs(180);
/// For how much longer a check goes on after it failed, to report when it would have succeeded.
const PATIENCE: Duration = Duration::from_secs(240);
/// How many items of a list are reported.
const SHOWN: usize = 12;

/// Checks everything, deletes all pods, and reports. Whether there was no fault.
pub(crate) async fn reach(
    cluster: &Cluster,
    workload: &mut Workload,
    witness: &Witness,
    downs: &Downs,
    journal: &Journal,
    may_end: bool,
) -> bool {
    let static_pods = workload.static_pods();
    let converged = until_empty("converged", CONVERGED_WITHIN, journal, async || {
        problems(&cluster.administrator, &cluster.runtime, &static_pods).await
    })
    .await;
    until_empty("seen by the watch", WATCHED_WITHIN, journal, async || {
        match cluster.administrator.pods().await {
            Ok(pods) => unseen(&pods, witness),
            Err(error) => vec![error],
        }
    })
    .await;
    compare(&AllRuns::read(journal, downs), witness, journal).await;

    workload.end().await;
    let gone = until_empty("gone", GONE_WITHIN, journal, async || {
        let mut left = match cluster.administrator.pods().await {
            Ok(pods) => pods.into_iter().filter_map(|pod| pod.metadata.name).collect(),
            Err(error) => vec![error],
        };
        match running(&cluster.runtime).await {
            Ok((sandboxes, _)) => left.extend(sandboxes.iter().map(|pod| format!("sandbox of {pod}"))),
            Err(error) => left.push(error),
        }
        left
    })
    .await;
    let clean = until_empty("clean", CLEAN_WITHIN, journal, async || leftovers::find(cluster).await).await;
    let of_others = leftovers::of_others(cluster).await;

    let runs = AllRuns::read(journal, downs);
    let comparison = compare(&runs, witness, journal).await;
    let (pods, restarts) = witness.totals();
    let ended = cluster.agent.ended_by_itself();
    let evidence = Evidence { starts: runs.starts(), pods, compared: comparison.compared };
    evidence.faults().into_iter().for_each(|fault| journal.fault(fault));
    if ended > 0 && !may_end {
        journal.fault(format!("the agent ended by itself, {ended} times"));
    }
    let minutes = journal.elapsed().as_secs_f64() / 60.0;
    let shown = |took: Option<Duration>| {
        took.map_or_else(|| "never".to_owned(), |took| format!("{:.0} s", took.as_secs_f64()))
    };
    println!("\n| | |\n|---|---|");
    println!("| minutes | {minutes:.1} |");
    println!("| pods in the API | {pods} |");
    println!("| starts of containers | {} |", runs.starts());
    println!("| restarts in the API | {restarts} |");
    println!("| containers with runs and restart count compared | {} |", comparison.compared);
    println!("| containers without a last restart count | {} |", comparison.unknown);
    println!("| the agent ended by itself | {ended} times |");
    println!("| converged after | {} |", shown(converged));
    println!("| all pods gone after | {} |", shown(gone));
    println!("| nothing left after | {} |", shown(clean));
    let of_others = if of_others.is_empty() { "nothing".to_owned() } else { of_others.join(", ") };
    println!("| left by runtime and CSI driver | {of_others} |");
    let faults = journal.faults();
    println!("| faults | {} |\n", faults.len());
    faults.iter().for_each(|fault| println!("FAULT {fault}"));
    println!("{}", if faults.is_empty() { "passed" } else { "failed" });
    faults.is_empty()
}

/// How much the checks saw. Without it they find no fault.
struct Evidence {
    /// Starts of containers.
    starts: i32,
    /// Pods in the watch.
    pods: usize,
    /// Containers whose runs and restart count were compared.
    compared: usize,
}

impl Evidence {
    fn faults(&self) -> Vec<String> {
        let missing = [
            (self.starts == 0, "no container wrote that it started"),
            (self.pods == 0, "the watch saw no pod"),
            (self.compared == 0, "no restart count was compared with the runs of its container"),
        ];
        missing.iter().filter(|(is_missing, _)| *is_missing).map(|(_, fault)| (*fault).to_owned()).collect()
    }
}

/// The pods in the API that the watch does not have.
fn unseen(pods: &[Pod], witness: &Witness) -> Vec<String> {
    let is_unseen = |pod: &&Pod| !witness.has_seen(pod.metadata.uid.as_deref().unwrap_or_default());
    pods.iter().filter(is_unseen).filter_map(|pod| pod.metadata.name.clone()).collect()
}

/// Restart counts cover each run, soon after the runs.
async fn compare(runs: &AllRuns, witness: &Witness, journal: &Journal) -> Comparison {
    let begun = Instant::now();
    loop {
        let comparison = runs.compare(witness);
        if comparison.uncovered.is_empty() || begun.elapsed() > COUNTED_WITHIN {
            comparison.uncovered.iter().for_each(|fault| journal.fault(fault));
            return comparison;
        }
        sleep(Duration::from_secs(1)).await;
    }
}

/// Looks each second until the list is empty, and returns how long that took. Too long is a fault.
async fn until_empty(
    what: &str,
    within: Duration,
    journal: &Journal,
    list: impl AsyncFn() -> Vec<String>,
) -> Option<Duration> {
    let begun = Instant::now();
    let mut is_late = false;
    loop {
        let items = list().await;
        let took = begun.elapsed();
        if items.is_empty() {
            journal.note(format!("{what} after {:.0} s", took.as_secs_f64()));
            return Some(took);
        }
        if took > within && !is_late {
            is_late = true;
            journal.fault(format!("not {what} within {within:?}: {} items", items.len()));
            items.iter().take(SHOWN).for_each(|item| journal.note(format!("  {item}")));
        }
        if took > within + PATIENCE {
            journal.fault(format!("never {what}"));
            items.iter().take(SHOWN).for_each(|item| journal.note(format!("  {item}")));
            return None;
        }
        sleep(Duration::from_secs(1)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_that_saw_nothing_is_a_fault() {
        let enough = Evidence { starts: 1, pods: 1, compared: 1 };
        assert_eq!(enough.faults(), Vec::<String>::new());
        for nothing in [
            Evidence { starts: 0, ..enough },
            Evidence { pods: 0, ..enough },
            Evidence { compared: 0, ..enough },
        ] {
            assert_eq!(nothing.faults().len(), 1);
        }
    }

    #[test]
    fn a_pod_that_the_watch_lacks_is_named() {
        let witness = Witness::new(Journal::new());
        let pod = |uid: &str| {
            let mut pod = Pod::default();
            pod.metadata.uid = Some(uid.to_owned());
            pod.metadata.name = Some(format!("pod-{uid}"));
            pod
        };
        witness.sees(&pod("1"));
        assert_eq!(unseen(&[pod("1"), pod("2")], &witness), ["pod-2"]);
    }
}
