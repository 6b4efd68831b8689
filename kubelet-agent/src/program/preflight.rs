//! Why a node would not start, and why it cannot join its cluster.

use std::io::Write as _;

use kubelet_core::Clock;

use super::{Machine, Program, problems};
use crate::error::{Error, Result};
use crate::rooms::cluster::certificates;
use crate::rooms::machine::HostMachine;
use crate::rooms::node;

impl Program {
    /// Prints all for which the agent would not start on this machine, each with where it was set; and with `--kubeconfig` why the
    /// node cannot join its cluster, and how to fix it. Returns whether nothing was found.
    ///
    /// # Errors
    ///
    /// If it cannot be printed.
    pub async fn preflight(&self) -> Result<bool> {
        let mut text = String::new();
        let found = problems(&self.server, Machine::This).await;
        for problem in &found {
            match &problem.origin {
                Some(origin) => text += &format!("{origin}: {problem}\n"),
                None => text += &format!("{problem}\n"),
            }
        }
        // A kubeconfig that cannot be used is among the problems.
        let usable = |field: &&str| !found.iter().any(|problem| problem.field == **field);
        let joins = ["--kubeconfig", "--bootstrap-kubeconfig", "--hostname-override"];
        let mut cluster = true;
        if joins.iter().all(usable) {
            let (ok, of_cluster) = self.preflight_of_cluster().await;
            cluster = ok;
            text += &of_cluster;
        }
        let ok = cluster && found.is_empty();
        if ok {
            let node = self.settings()?.hostname()?;
            text = format!("no problem found for node {node}\n");
        }
        let written = std::io::stdout().write_all(text.as_bytes());
        written.map_err(|source| Error::Io {
            what: "cannot write to stdout".to_owned(),
            source,
        })?;
        Ok(ok)
    }

    /// Whether the node can join its cluster, and if not, why. Without a cluster there is nothing to join.
    async fn preflight_of_cluster(&self) -> (bool, String) {
        match self.findings().await {
            Ok(findings) => {
                let lines = findings.iter();
                let lines = lines.map(|finding| format!("{finding}\n    {}\n", finding.advice()));
                (findings.is_empty(), lines.collect())
            }
            Err(error) => (false, format!("{error}\n")),
        }
    }

    async fn findings(&self) -> Result<Vec<kubelet_node::Finding>> {
        let (settings, _) = crate::settings::Settings::examine(&self.server);
        let Some(access) = certificates::access(&settings)? else {
            return Ok(Vec::new());
        };
        let machine = HostMachine::new(Clock::system());
        let local = node::local(&settings, &machine, None)?.build();
        let bootstrap = settings.configuration.server_tls_bootstrap;
        Ok(access.preflight(&local, bootstrap).await?)
    }
}
