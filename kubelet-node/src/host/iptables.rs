//! The program `iptables` (`pkg/util/iptables`).

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use tokio::process::Command;

use crate::{Error, Result};

/// How long one call may take. iptables itself waits up to 5 s for its lock.
const DEADLINE: Duration = Duration::from_secs(60);
/// The first version with the option `-w` (`WaitMinVersion`), and with seconds for it (`WaitSecondsMinVersion`).
const WAIT: [u32; 3] = [1, 4, 20];
const WAIT_SECONDS: [u32; 3] = [1, 4, 22];
/// iptables did not get its lock, or the kernel had no memory (`iptablesStatusResourceProblem`).
const RESOURCE_PROBLEM: i32 = 4;

/// The rules of one family of addresses, changed by running `iptables` or `ip6tables`.
#[derive(Clone, Debug)]
pub struct Iptables {
    program: OsString,
    is_ipv6: bool,
    /// The options that make the program wait for its lock.
    wait: &'static [&'static str],
}

/// The answer of one call that ran to its end.
struct Answer {
    /// The exit code; `None` after a signal.
    code: Option<i32>,
    output: String,
}

impl Iptables {
    /// The families that this host supports, IPv4 first; none if the programs are missing or the kernel has no such rules
    /// (`NewBestEffort`).
    ///
    /// # Cancel safety
    ///
    /// May be dropped; a program that runs is killed.
    pub async fn of_this_host() -> Vec<Self> {
        Self::supported("iptables".into(), "ip6tables".into()).await
    }

    /// The same with the programs `iptables` and `ip6tables` of a folder.
    ///
    /// # Cancel safety
    ///
    /// As for [`of_this_host`](Self::of_this_host).
    pub async fn of_folder(folder: &Path) -> Vec<Self> {
        Self::supported(folder.join("iptables").into(), folder.join("ip6tables").into()).await
    }

    async fn supported(ipv4: OsString, ipv6: OsString) -> Vec<Self> {
        let mut supported = Vec::new();
        for (program, is_ipv6) in [(ipv4, false), (ipv6, true)] {
            let mut family = Self {
                program,
                is_ipv6,
                wait: &[],
            };
            match family.find_out().await {
                Ok(()) => supported.push(family),
                Err(error) => tracing::debug!(%error, is_ipv6, "no iptables for a family"),
            }
        }
        supported
    }

    /// Reads the version, and whether the kernel has such rules (`Present`).
    async fn find_out(&mut self) -> Result<()> {
        if let Some(version) = version(&self.call(&["--version"]).await?.output) {
            self.wait = match version {
                version if version >= WAIT_SECONDS => &["-w", "5"],
                version if version >= WAIT => &["-w"],
                _ => &[],
            };
        }
        match self.chain_exists("nat", "POSTROUTING").await? {
            true => Ok(()),
            false => Err(self.failed("list", "POSTROUTING", "nat", "no such chain")),
        }
    }

    /// Whether this is the family IPv6.
    pub fn is_ipv6(&self) -> bool {
        self.is_ipv6
    }

    /// Creates a chain, unless it exists (`EnsureChain`).
    ///
    /// # Errors
    ///
    /// [`Error::Iptables`] if the program cannot run, or fails otherwise than for a chain that exists.
    pub async fn ensure_chain(&self, table: &str, chain: &str) -> Result<()> {
        let answer = self.run("-N", table, chain, &[]).await?;
        match answer.code {
            Some(0 | 1) => Ok(()),
            _ => Err(self.failed("create", chain, table, &answer.output)),
        }
    }

    /// Whether a chain exists (`ChainExists`).
    ///
    /// # Errors
    ///
    /// [`Error::Iptables`] if the program cannot run, or cannot find it out.
    pub async fn chain_exists(&self, table: &str, chain: &str) -> Result<bool> {
        let answer = self.run("-S", table, chain, &[]).await?;
        match answer.code {
            Some(0) => Ok(true),
            None | Some(RESOURCE_PROBLEM) => Err(self.failed("list", chain, table, &answer.output)),
            Some(_) => Ok(false),
        }
    }

    /// Makes a rule the first of a chain, unless the chain has it (`EnsureRule` with `Prepend`).
    ///
    /// # Errors
    ///
    /// [`Error::Iptables`] if the program fails.
    pub async fn prepend_rule(&self, table: &str, chain: &str, rule: &[&str]) -> Result<()> {
        self.ensure_rule("-I", table, chain, rule).await
    }

    /// Adds a rule at the end of a chain, unless the chain has it (`EnsureRule` with `Append`).
    ///
    /// # Errors
    ///
    /// [`Error::Iptables`] if the program fails.
    pub async fn append_rule(&self, table: &str, chain: &str, rule: &[&str]) -> Result<()> {
        self.ensure_rule("-A", table, chain, rule).await
    }

    async fn ensure_rule(&self, add: &str, table: &str, chain: &str, rule: &[&str]) -> Result<()> {
        let answer = self.run("-C", table, chain, rule).await?;
        match answer.code {
            Some(0) => return Ok(()),
            Some(1) => {}
            _ => return Err(self.failed("check a rule of", chain, table, &answer.output)),
        }
        let answer = self.run(add, table, chain, rule).await?;
        match answer.code {
            Some(0) => Ok(()),
            _ => Err(self.failed("add a rule to", chain, table, &answer.output)),
        }
    }

    async fn run(&self, operation: &str, table: &str, chain: &str, rule: &[&str]) -> Result<Answer> {
        let of_chain = [operation, chain, "-t", table];
        let arguments: Vec<&str> = self.wait.iter().chain(&of_chain).chain(rule).copied().collect();
        self.call(&arguments).await
    }

    async fn call(&self, arguments: &[&str]) -> Result<Answer> {
        let failed = |source: io::Error| Error::Iptables {
            what: format!("cannot run {} {}", self.program.display(), arguments.join(" ")),
            why: source.to_string(),
        };
        let mut command = Command::new(&self.program);
        command.args(arguments).stdin(Stdio::null()).kill_on_drop(true);
        let Ok(ended) = tokio::time::timeout(DEADLINE, command.output()).await else {
            let late = format!("no answer within {} s", DEADLINE.as_secs());
            return Err(failed(io::Error::new(io::ErrorKind::TimedOut, late)));
        };
        let Output {
            status,
            stdout,
            stderr,
        } = ended.map_err(failed)?;
        let output = [stdout, stderr].concat();
        Ok(Answer {
            code: status.code(),
            output: String::from_utf8_lossy(&output).trim().to_owned(),
        })
    }

    fn failed(&self, what: &str, chain: &str, table: &str, why: &str) -> Error {
        let program = self.program.display();
        Error::Iptables {
            what: format!("{program}: cannot {what} chain {chain} of table {table}"),
            why: why.to_owned(),
        }
    }
}

/// The version in `iptables v1.8.9 (nf_tables)`.
fn version(text: &str) -> Option<[u32; 3]> {
    let (_, text) = text.split_once(" v")?;
    let numbers = text
        .split(|letter: char| !letter.is_ascii_digit() && letter != '.')
        .next()?;
    let mut version = [0; 3];
    for (place, number) in version.iter_mut().zip(numbers.split('.')) {
        *place = number.parse().ok()?;
    }
    Some(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read() {
        for (text, expected) in [
            ("iptables v1.8.9 (nf_tables)", Some([1, 8, 9])),
            ("iptables v1.4.7", Some([1, 4, 7])),
            ("ip6tables v1.10", Some([1, 10, 0])),
            ("iptables", None),
            ("iptables vx", None),
        ] {
            assert_eq!(version(text), expected, "{text}");
        }
        assert!(WAIT_SECONDS > WAIT && [1, 8, 0] > WAIT_SECONDS);
    }
}
