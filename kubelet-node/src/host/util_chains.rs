//! The iptables chains of `makeIPTablesUtilChains` (`pkg/kubelet/kubelet_network_linux.go`).

use std::time::Duration;

use futures::future::join_all;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::Iptables;
use crate::Result;

/// Its existence shows other components which iptables the host uses: legacy or nft (`KubeIPTablesHintChain`).
const HINT: &str = "KUBE-IPTABLES-HINT";
/// Drops packets from outside to loopback addresses (`KubeFirewallChain`).
const FIREWALL: &str = "KUBE-FIREWALL";
/// When it is gone, somebody has flushed the rules.
const CANARY: &str = "KUBE-KUBELET-CANARY";
/// The tables that have a canary. The first one is watched.
const CANARY_TABLES: [&str; 3] = ["mangle", "nat", "filter"];
/// How often the canary is checked (`initNetworkUtil`).
const PERIOD: Duration = Duration::from_secs(60);
/// How long a flush may take once it was noticed (`iptablesFlushTimeout`), and how often that is checked
/// (`iptablesFlushPollTime`).
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);
const FLUSH_POLL: Duration = Duration::from_millis(100);
/// kube-proxy creates an identical copy of this rule, so it must stay as it is.
const DROP_MARTIANS: [&str; 16] = [
    "-m",
    "comment",
    "--comment",
    "block incoming localnet connections",
    "--dst",
    "127.0.0.0/8",
    "!",
    "--src",
    "127.0.0.0/8",
    "-m",
    "conntrack",
    "!",
    "--ctstate",
    "RELATED,ESTABLISHED,DNAT",
    "-j",
    "DROP",
];

/// Makes the chains and rules that other components rely on, and makes them again when somebody flushes the rules
/// (`initNetworkUtil`):
///
/// | chain | table | what for |
/// |---|---|---|
/// | `KUBE-IPTABLES-HINT` | mangle | shows which iptables the host uses: legacy or nft |
/// | `KUBE-FIREWALL`, called by `INPUT` and `OUTPUT` | filter, IPv4 | drops packets from outside to loopback addresses |
/// | `KUBE-KUBELET-CANARY` | mangle, nat, filter | shows that nobody has flushed the rules |
///
/// It needs the program `iptables`, and root. A host without iptables is left as it is.
#[derive(Debug)]
pub struct UtilChains {
    families: Vec<Iptables>,
    period: Duration,
}

impl UtilChains {
    /// Keeps the chains of these families.
    pub fn new(families: Vec<Iptables>) -> Self {
        Self {
            families,
            period: PERIOD,
        }
    }

    /// How often the rules are checked; each minute by default.
    #[must_use]
    pub fn period(mut self, period: Duration) -> Self {
        self.period = period;
        self
    }

    /// Keeps the chains until `shutdown`. They stay, because other components use them. If a call of iptables fails, it logs a
    /// warning, and tries again after a period.
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any time; a program that runs is killed.
    pub async fn run(self, shutdown: CancellationToken) {
        if self.families.is_empty() {
            tracing::info!("No iptables support on this system; not creating the {HINT} chain");
            return;
        }
        let families = join_all(self.families.iter().map(|family| keep(family, self.period)));
        shutdown.run_until_cancelled(families).await;
    }
}

/// Keeps the chains of one family.
async fn keep(family: &Iptables, period: Duration) {
    let mut last_problem = String::new();
    loop {
        match make(family).await {
            Ok(()) => {
                last_problem.clear();
                tracing::info!(ipv6 = family.is_ipv6(), "Initialized iptables rules.");
                wait_for_flush(family, period).await;
                tracing::info!(ipv6 = family.is_ipv6(), "Reloading after iptables flush");
            }
            Err(error) => {
                let problem = error.to_string();
                // A kernel without one of the tables fails in the same way each minute.
                if problem != last_problem {
                    tracing::warn!(%error, "Failed to initialize iptables rules; some functionality may be missing.");
                }
                last_problem = problem;
                sleep(period).await;
            }
        }
    }
}

/// Makes what is missing (`syncIPTablesRules`), the canaries at the end: only complete rules have canaries.
async fn make(family: &Iptables) -> Result<()> {
    family.ensure_chain("mangle", HINT).await?;
    // Only IPv4 has a whole network of loopback addresses.
    if !family.is_ipv6() {
        family.ensure_chain("filter", FIREWALL).await?;
        for chain in ["OUTPUT", "INPUT"] {
            family.prepend_rule("filter", chain, &["-j", FIREWALL]).await?;
        }
        family.append_rule("filter", FIREWALL, &DROP_MARTIANS).await?;
    }
    for table in CANARY_TABLES {
        family.ensure_chain(table, CANARY).await?;
    }
    Ok(())
}

/// Returns when the rules have been flushed (`Monitor`).
async fn wait_for_flush(family: &Iptables, period: Duration) {
    let [watched, others @ ..] = CANARY_TABLES;
    loop {
        sleep(period).await;
        match family.chain_exists(watched, CANARY).await {
            Ok(true) => {}
            Ok(false) => break,
            Err(error) => tracing::warn!(%error, "Could not check for iptables canary"),
        }
    }
    // Whoever flushes one table is about to flush the others. New rules must come after that.
    let noticed = Instant::now();
    for table in others {
        while !matches!(family.chain_exists(table, CANARY).await, Ok(false)) {
            if noticed.elapsed() >= FLUSH_TIMEOUT {
                tracing::info!("Inconsistent iptables state detected");
                return;
            }
            sleep(FLUSH_POLL).await;
        }
    }
}
