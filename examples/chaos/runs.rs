//! What the containers wrote about their own runs.
//!
//! The strictest witness: each container holds a lock for as long as it lives, and writes when it starts and ends. So two that
//! run at the same time are seen, and so is a run that the agent does not know of.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::folder::folder;
use crate::journal::Journal;
use crate::witness::Witness;

/// What happened to a container this short before a part was killed may be lost, in seconds: its end, or that it was started.
const UNHANDLED: f64 = 5.0;
const SCRIPT: &str = include_str!("container.sh");

/// Makes the folder that all containers mount: the script that they run, the lock program with its libraries, and a page.
pub(crate) fn prepare() {
    let root = folder().join("witness");
    for name in ["locks", "lib", "www"] {
        fs::create_dir_all(root.join(name)).unwrap();
    }
    fs::write(root.join("www/index.html"), "here\n").unwrap();
    let write = |name: &str, text: &str| {
        let path = root.join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    };
    write("run", SCRIPT);
    // The image has no flock, so that of the host is taken along with its libraries.
    let program = find("flock");
    fs::copy(&program, root.join("lib/flock")).unwrap();
    let needed = Command::new("ldd").arg(&program).output().expect("ldd is missing");
    let needed = String::from_utf8_lossy(&needed.stdout).into_owned();
    let libraries: Vec<&Path> =
        needed.split_whitespace().filter(|word| word.starts_with('/')).map(Path::new).collect();
    let mut loader = None;
    for library in libraries {
        let name = library.file_name().unwrap();
        fs::copy(library, root.join("lib").join(name)).unwrap();
        if name.to_string_lossy().starts_with("ld-") {
            loader = Some(name.to_string_lossy().into_owned());
        }
    }
    let lib = "/witness/lib";
    let command = match loader {
        Some(loader) => format!("{lib}/{loader} --library-path {lib} {lib}/flock"),
        None => format!("{lib}/flock"),
    };
    write("flock", &format!("#!/bin/sh\nexec {command} \"$@\"\n"));
}

fn find(program: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut paths = std::env::split_paths(&path).map(|folder| folder.join(program));
    paths.find(|path| path.is_file()).unwrap_or_else(|| panic!("{program}, of util-linux, is missing"))
}

/// Whether this is the UID of a static pod: a hash, where the API server's are in groups.
fn is_static(uid: &str) -> bool {
    !uid.contains('-')
}

/// When agent and runtime were down. Clones share the data.
#[derive(Clone, Default)]
pub(crate) struct Downs {
    pub(crate) agent: Outages,
    pub(crate) runtime: Outages,
}

/// When a part was down, in seconds since the host started. Clones share the data.
#[derive(Clone, Default)]
pub(crate) struct Outages(Arc<Mutex<Vec<[f64; 2]>>>);

impl Outages {
    /// It goes down now, if it was up.
    pub(crate) fn begin(&self) {
        self.begin_at(uptime());
    }

    fn begin_at(&self, now: f64) {
        let mut outages = self.0.lock();
        if outages.last().is_none_or(|[_, end]| end.is_finite()) {
            outages.push([now - UNHANDLED, f64::INFINITY]);
        }
    }

    /// It is up again.
    pub(crate) fn end(&self) {
        self.end_at(uptime());
    }

    fn end_at(&self, now: f64) {
        if let Some([_, end]) = self.0.lock().last_mut()
            && end.is_infinite()
        {
            *end = now;
        }
    }

    fn contain(&self, at: f64) -> bool {
        self.0.lock().iter().any(|[begin, end]| (*begin..=*end).contains(&at))
    }
}

fn uptime() -> f64 {
    let text = fs::read_to_string("/proc/uptime").unwrap_or_default();
    text.split(' ').next().and_then(|seconds| seconds.parse().ok()).unwrap_or_default()
}

/// The runs of one container of a pod.
#[derive(Default)]
struct Runs {
    pod: String,
    starts: i32,
    succeeded: bool,
    /// The agent was killed at about the last start, and that run wrote nothing since.
    may_be_broken_off: bool,
}

/// The runs of all containers, by UID of the pod and name of the container.
pub(crate) struct AllRuns(BTreeMap<(String, String), Runs>);

impl AllRuns {
    /// Reads what the containers wrote, and judges it.
    pub(crate) fn read(journal: &Journal, downs: &Downs) -> Self {
        let text = fs::read_to_string(folder().join("witness/runs")).unwrap_or_else(|error| {
            journal.fault(format!("what the containers wrote cannot be read: {error}"));
            String::new()
        });
        Self::judge(&text, journal, downs)
    }

    fn judge(text: &str, journal: &Journal, downs: &Downs) -> Self {
        let mut all = BTreeMap::<_, Runs>::new();
        for line in text.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let [at, uid, pod, container, policy, step, rest @ ..] = words.as_slice() else {
                journal.fault(format!("a line of the containers is unreadable: {line}"));
                continue;
            };
            let runs = all.entry(((*uid).to_owned(), (*container).to_owned())).or_default();
            (*pod).clone_into(&mut runs.pod);
            let at_seconds = at.parse().unwrap_or_default();
            let fault = |what: &str| {
                journal.fault(format!("{pod} ({uid}): container {container} {what}, at {at} s of uptime"))
            };
            // One that came to its end had started.
            runs.may_be_broken_off &= *step == "start";
            match *step {
                "twice" => fault("ran twice at once"),
                // The kubelet does the same when the manifest changes while it is down: it starts the new pod, and then finds
                // the containers of the old one.
                "twice-of-a-name" if is_static(uid) => {
                    journal.note(format!(
                        "{pod} ({uid}): began beside its earlier version, at {at} s of uptime"
                    ));
                }
                "twice-of-a-name" => fault("ran beside that of another pod of the same name"),
                "start" => {
                    runs.starts += 1;
                    // A runtime breaks off a start whose caller is gone. The process may have begun, and yet the container counts as
                    // created. A kubelet starts such a container anew.
                    let was_broken_off =
                        std::mem::replace(&mut runs.may_be_broken_off, downs.agent.contain(at_seconds));
                    match *policy {
                        "Never" if runs.starts > 1 && !was_broken_off => {
                            fault("ran again with the restart policy Never");
                        }
                        "OnFailure" if runs.succeeded => fault("ran again after it had succeeded"),
                        _ => {}
                    }
                }
                // A runtime that was down when a container ended reports another exit code.
                "end" if rest == ["0"] => runs.succeeded = !downs.runtime.contain(at_seconds),
                _ => {}
            }
        }
        Self(all)
    }

    /// How often containers started.
    pub(crate) fn starts(&self) -> i32 {
        self.0.values().map(|runs| runs.starts).sum()
    }

    /// The containers whose restart count does not cover each run, and how many have a count.
    pub(crate) fn compare(&self, witness: &Witness) -> Comparison {
        let mut comparison = Comparison::default();
        for ((uid, container), runs) in &self.0 {
            // The same manifest may come back: its pod has the same UID and begins anew.
            if is_static(uid) {
                continue;
            }
            let Some(count) = witness.restarts(uid, container) else {
                comparison.unknown += 1;
                continue;
            };
            comparison.compared += 1;
            if runs.starts > count + 1 {
                let Runs { pod, starts, .. } = runs;
                comparison.uncovered.push(format!(
                    "{pod} ({uid}): {container} started {starts} times, and its restart count is {count}"
                ));
            }
        }
        comparison
    }
}

/// Runs and restart counts.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Comparison {
    /// Containers that started more often than their restart count says.
    pub(crate) uncovered: Vec<String>,
    /// How many containers were compared.
    pub(crate) compared: usize,
    /// How many have no last count.
    pub(crate) unknown: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "0b2c-11";

    fn faults(text: &str, downs: &Downs) -> Vec<String> {
        let journal = Journal::new();
        AllRuns::judge(text, &journal, downs);
        journal.faults()
    }

    #[test]
    fn an_outage_contains_what_the_runtime_may_have_missed() {
        let outages = Outages::default();
        outages.begin_at(100.0);
        assert!(!outages.contain(94.0) && outages.contain(96.0) && outages.contain(1e9));
        outages.end_at(110.0);
        assert!(outages.contain(110.0) && !outages.contain(111.0));
    }

    #[test]
    fn a_restart_that_failed_leaves_one_outage_that_ends() {
        let outages = Outages::default();
        outages.begin_at(100.0);
        // The restart failed, and the runtime is killed again.
        outages.begin_at(200.0);
        outages.end_at(210.0);
        assert!(outages.contain(150.0));
        assert!(!outages.contain(211.0));
        outages.begin_at(300.0);
        outages.end_at(310.0);
        outages.end_at(400.0);
        assert!(outages.contain(305.0) && !outages.contain(250.0) && !outages.contain(390.0));
    }

    #[test]
    fn a_container_that_succeeded_must_not_run_again() {
        let text = format!(
            "50.0 {UID} job main OnFailure start\n60.0 {UID} job main OnFailure end 0\n70.0 {UID} job main OnFailure start\n"
        );
        let downs = Downs::default();
        let found = faults(&text, &downs);
        assert!(
            matches!(&found[..], [fault] if fault.contains("ran again after it had succeeded")),
            "{found:?}"
        );
        // Its end may have been lost.
        downs.runtime.begin_at(58.0);
        downs.runtime.end_at(62.0);
        assert_eq!(faults(&text, &downs), Vec::<String>::new());
        assert_eq!(faults(&text.replace("end 0", "end 1"), &Downs::default()), Vec::<String>::new());
    }

    #[test]
    fn a_start_that_the_agent_began_before_it_was_killed_may_be_made_again() {
        let start = |at: u32| format!("{at} {UID} pod main Never start\n");
        let downs = Downs::default();
        downs.agent.begin_at(60.0);
        downs.agent.end_at(61.0);
        assert_eq!(faults(&(start(58) + &start(64)), &downs), Vec::<String>::new());
        assert_eq!(faults(&(start(50) + &start(58)), &downs).len(), 1, "the first was not broken off");
        assert_eq!(faults(&(start(58) + &start(64) + &start(65)), &downs).len(), 1, "nor was the second");
        let ended = format!("59 {UID} pod main Never end 0\n");
        assert_eq!(faults(&(start(58) + &ended + &start(64)), &downs).len(), 1, "it came to its end");
        let of_runtime = Downs { runtime: downs.agent.clone(), ..Downs::default() };
        assert_eq!(faults(&(start(58) + &start(64)), &of_runtime).len(), 1);
    }

    #[test]
    fn two_at_once_second_runs_of_never_and_unreadable_lines_are_faults() {
        let text = format!(
            "1 {UID} pod main Never start\n2 {UID} pod main Never start\n3 {UID} pod main Always twice\n\
             4 {UID} state-0 main Always twice-of-a-name\n5 {UID}\n"
        );
        assert_eq!(faults(&text, &Downs::default()).len(), 4);
        // The same manifest came back.
        let of_static = "4 0b2c11 static main Always twice-of-a-name\n";
        assert_eq!(faults(of_static, &Downs::default()), Vec::<String>::new());
    }

    #[test]
    fn a_restart_count_covers_each_run() {
        let journal = Journal::new();
        let start = |uid: &str, container: &str| format!("1 {uid} pod {container} Always start\n");
        let text = [start(UID, "main"), start(UID, "main"), start(UID, "other"), start("0b2c11", "main")];
        let runs = AllRuns::judge(&text.concat(), &journal, &Downs::default());
        assert_eq!(runs.starts(), 4);
        let witness = Witness::new(journal.clone());
        assert_eq!(runs.compare(&witness), Comparison { unknown: 2, ..Comparison::default() });
        witness.sees(&pod(0));
        let comparison = runs.compare(&witness);
        assert_eq!((comparison.compared, comparison.unknown), (2, 0));
        assert!(matches!(&comparison.uncovered[..], [it] if it.contains("main started 2 times")));
        witness.sees(&pod(1));
        assert_eq!(runs.compare(&witness).uncovered, Vec::<String>::new());
    }

    fn pod(restarts: i32) -> k8s_openapi::api::core::v1::Pod {
        let status = serde_json::json!({
            "name": "main", "image": "", "imageID": "", "ready": true, "restartCount": restarts,
        });
        let pod = serde_json::json!({"metadata": {"uid": UID}, "status": {"containerStatuses": [status]}});
        serde_json::from_value(pod).unwrap()
    }
}
