//! Why a node cannot join its cluster.

use std::io::Write as _;

use kubelet_core::Clock;

use super::Program;
use crate::error::{Error, Result};
use crate::rooms::cluster::certificates;
use crate::rooms::machine::HostMachine;
use crate::rooms::node;

impl Program {
    /// Prints why the node cannot join its cluster, and how to fix it. Returns whether it can.
    ///
    /// # Errors
    ///
    /// Without `--kubeconfig`, or if the node's settings are not valid.
    pub async fn preflight(&self) -> Result<bool> {
        let settings = self.settings()?;
        let machine = HostMachine::new(Clock::system());
        let local = node::local(&settings, &machine, None)?.build();
        let Some(access) = certificates::access(&settings)? else {
            return Err(Error::Program("preflight needs --kubeconfig".to_owned()));
        };
        let findings = access
            .preflight(&local, settings.configuration.server_tls_bootstrap)
            .await?;
        let mut text = String::new();
        for finding in &findings {
            text += &format!("{finding}\n    {}\n", finding.advice());
        }
        if findings.is_empty() {
            text = format!("no problem found for node {}\n", local.name());
        }
        let written = std::io::stdout().write_all(text.as_bytes());
        written.map_err(|source| Error::Io {
            what: "cannot write to stdout".to_owned(),
            source,
        })?;
        Ok(findings.is_empty())
    }
}
