//! The iptables chains of the host, with a program that stands for `iptables`: each chain is a file, and each rule a line of it.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kubelet_node::host::{Iptables, UtilChains};
use kubelet_testing::eventually;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

/// It is a file of the repository: a program that a test has just written cannot be executed while another test starts a process.
const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/node/iptables");

struct Host {
    folder: TempDir,
}

impl Host {
    /// A host with these programs.
    fn new(programs: &[&str], version: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for program in programs {
            let state = folder.path().join(format!("of-{program}"));
            fs::create_dir(&state).unwrap();
            for chain in ["nat.POSTROUTING", "filter.INPUT", "filter.OUTPUT"] {
                fs::write(state.join(chain), "").unwrap();
            }
            fs::write(state.join("filter.INPUT"), "-j OTHER\n").unwrap();
            fs::write(state.join("version"), version).unwrap();
            symlink(PROGRAM, folder.path().join(program)).unwrap();
        }
        Self { folder }
    }

    fn state(&self, program: &str) -> PathBuf {
        self.folder.path().join(format!("of-{program}"))
    }

    async fn families(&self) -> Vec<Iptables> {
        Iptables::of_folder(self.folder.path()).await
    }

    /// Keeps the chains until the token is cancelled.
    async fn keep(&self) -> (CancellationToken, tokio::task::JoinHandle<()>) {
        let chains = UtilChains::new(self.families().await).period(Duration::from_millis(5));
        let shutdown = CancellationToken::new();
        let task = tokio::spawn(chains.run(shutdown.clone()));
        (shutdown, task)
    }
}

fn chain(state: &Path, chain: &str) -> Option<String> {
    fs::read_to_string(state.join(chain)).ok()
}

/// The rule that kube-proxy makes, too.
const DROP: &str = "-m comment --comment block incoming localnet connections --dst 127.0.0.0/8 ! --src 127.0.0.0/8 -m conntrack ! \
                    --ctstate RELATED,ESTABLISHED,DNAT -j DROP\n";

#[tokio::test]
async fn the_chains_are_made_and_made_again_after_a_flush() {
    let host = Host::new(&["iptables", "ip6tables"], "v1.8.9");
    let (shutdown, task) = host.keep().await;
    let (ipv4, ipv6) = (host.state("iptables"), host.state("ip6tables"));
    let last = "filter.KUBE-KUBELET-CANARY";
    eventually!(chain(&ipv4, last).zip(chain(&ipv6, last)), |canaries| canaries
        .is_some());

    assert_eq!(chain(&ipv4, "mangle.KUBE-IPTABLES-HINT").as_deref(), Some(""));
    assert_eq!(chain(&ipv4, "filter.KUBE-FIREWALL").as_deref(), Some(DROP));
    assert_eq!(
        chain(&ipv4, "filter.OUTPUT").as_deref(),
        Some("-j KUBE-FIREWALL\n")
    );
    assert_eq!(
        chain(&ipv4, "filter.INPUT").as_deref(),
        Some("-j KUBE-FIREWALL\n-j OTHER\n")
    );
    for table in ["mangle", "nat"] {
        assert!(
            chain(&ipv4, &format!("{table}.KUBE-KUBELET-CANARY")).is_some(),
            "{table}"
        );
    }
    assert!(chain(&ipv6, "mangle.KUBE-IPTABLES-HINT").is_some());
    assert_eq!(chain(&ipv6, "filter.KUBE-FIREWALL"), None);
    let calls = chain(&ipv4, "calls").unwrap();
    assert!(
        calls.lines().skip(1).all(|call| call.starts_with("-w 5 -")),
        "{calls}"
    );

    fs::write(ipv4.join("filter.INPUT"), "").unwrap();
    // Somebody flushes the rules, one table after the other. The one that is watched comes first.
    for table in ["mangle", "nat", "filter"] {
        for entry in fs::read_dir(&ipv4).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            if name.starts_with(table) && name.contains("KUBE") {
                fs::remove_file(&path).unwrap();
            }
        }
    }
    eventually!(chain(&ipv4, last), |canary| canary.is_some());
    eventually!(chain(&ipv4, "filter.INPUT"), |rules| rules.as_deref()
        == Some("-j KUBE-FIREWALL\n"));
    eventually!(chain(&ipv4, "filter.KUBE-FIREWALL"), |rules| rules.as_deref()
        == Some(DROP));
    // The other rule was not flushed, and is not made twice.
    assert_eq!(
        chain(&ipv4, "filter.OUTPUT").as_deref(),
        Some("-j KUBE-FIREWALL\n")
    );

    shutdown.cancel();
    task.await.unwrap();
    assert!(
        chain(&ipv4, "mangle.KUBE-IPTABLES-HINT").is_some(),
        "other components use it"
    );
}

#[tokio::test]
async fn while_iptables_is_locked_it_is_tried_again() {
    let host = Host::new(&["iptables"], "v1.4.21");
    let families = host.families().await;
    assert_eq!(families.len(), 1);
    assert!(!families[0].is_ipv6());
    let state = host.state("iptables");
    fs::write(state.join("locked"), "").unwrap();
    let (shutdown, task) = {
        let shutdown = CancellationToken::new();
        let chains = UtilChains::new(families).period(Duration::from_millis(5));
        (shutdown.clone(), tokio::spawn(chains.run(shutdown)))
    };
    let tries = |calls: Option<String>| calls.unwrap_or_default().matches("-N KUBE-IPTABLES-HINT").count();
    eventually!(tries(chain(&state, "calls")), |tries| *tries > 1);
    assert_eq!(chain(&state, "mangle.KUBE-IPTABLES-HINT"), None);
    fs::remove_file(state.join("locked")).unwrap();
    eventually!(chain(&state, "filter.KUBE-KUBELET-CANARY"), |canary| canary
        .is_some());

    // A locked table is not taken for a flushed one.
    fs::write(state.join("locked"), "").unwrap();
    let checks = |calls: Option<String>| {
        calls
            .unwrap_or_default()
            .matches("-S KUBE-KUBELET-CANARY")
            .count()
    };
    let before = checks(chain(&state, "calls"));
    let made = tries(chain(&state, "calls"));
    eventually!(checks(chain(&state, "calls")), |checks| *checks > before + 1);
    assert_eq!(tries(chain(&state, "calls")), made);
    // This version has an option to wait, but without seconds.
    let calls = chain(&state, "calls").unwrap();
    assert!(
        calls.lines().skip(1).all(|call| call.starts_with("-w -")),
        "{calls}"
    );
    shutdown.cancel();
    task.await.unwrap();
}

#[tokio::test]
async fn a_host_without_iptables_is_left_alone() {
    let host = Host::new(&[], "");
    assert!(host.families().await.is_empty());
    let (_, task) = host.keep().await;
    task.await.unwrap();

    // The program is there, but the kernel has no such rules.
    let host = Host::new(&["iptables"], "v1.8.9");
    fs::remove_file(host.state("iptables").join("nat.POSTROUTING")).unwrap();
    assert!(host.families().await.is_empty());
}
