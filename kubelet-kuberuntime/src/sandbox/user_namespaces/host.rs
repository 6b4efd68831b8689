//! The ids that this host has for user namespaces (`getKubeletMappings`).

use std::fs;
use std::io;
use std::process::Command;

use kubelet_core::{Disk, Error, Result};

use super::UserNamespaceIds;

/// The user with the subordinate ids (`kubeletUser`).
const KUBELET_USER: &str = "kubelet";
const GETSUBIDS: &str = "getsubids";

impl UserNamespaceIds {
    /// The ids of this host: the subordinate ids of the user `kubelet`, if this user is in `/etc/passwd` and the
    /// program `getsubids` exists; otherwise all ids except the first `per_pod`. There must be enough for `max_pods`
    /// pods.
    ///
    /// # Errors
    ///
    /// Those of [`new`](Self::new); [`Error::Misconfigured`] if there are too few, or if UIDs and GIDs differ;
    /// [`Error::Io`] if `getsubids` fails.
    ///
    /// # Cancel safety
    ///
    /// May be dropped and called again.
    pub async fn of_this_host(per_pod: u32, max_pods: u32, disk: Disk) -> Result<Self> {
        let found = disk.run(subordinate_ids).await;
        let found = found.map_err(|error| Error::io(GETSUBIDS, None, error))?;
        let ids = match found {
            Some(Output { uids, gids }) if uids == gids => {
                let (first, length) = parse(&uids)?;
                Self::new(first, length, per_pod)?
            }
            Some(_) => {
                return Err(misconfigured(format!(
                    "the UIDs and GIDs of {KUBELET_USER:?} differ"
                )));
            }
            None => Self::new(per_pod, 0_u32.wrapping_sub(per_pod), per_pod)?,
        };
        match ids.pods() < max_pods {
            true => Err(misconfigured(format!(
                "the ids for user namespaces are enough for {} pods, not for {max_pods}",
                ids.pods()
            ))),
            false => Ok(ids),
        }
    }
}

/// The output of the program.
struct Output {
    uids: String,
    gids: String,
}

fn subordinate_ids() -> io::Result<Option<Output>> {
    // The program also fails if there are no ids, so a failure counts as no ids.
    let prefix = format!("{KUBELET_USER}:");
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    if !users.lines().any(|line| line.starts_with(&prefix)) {
        return Ok(None);
    }
    let ask = |args: &[&str]| {
        let output = Command::new(GETSUBIDS).args(args).output()?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => Err(io::Error::other(format!("it ended with {}", output.status))),
        }
    };
    let uids = match ask(&[KUBELET_USER]) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        uids => uids?,
    };
    let gids = ask(&["-g", KUBELET_USER])?;
    Ok(Some(Output { uids, gids }))
}

/// The first id and the number of ids in a line such as `0: kubelet 65536 2147483648`; there must be exactly one line
/// (`parseGetSubIdsOutput`).
fn parse(output: &str) -> Result<(u32, u32)> {
    let mut lines = output.trim_matches('\n').lines();
    let range = (|| {
        let words: Vec<&str> = lines.next()?.split_whitespace().collect();
        let [_, _, first, length] = words[..] else {
            return None;
        };
        (lines.next().is_none()).then_some((first.parse().ok()?, length.parse().ok()?))
    })();
    range.ok_or_else(|| {
        misconfigured(format!(
            "{GETSUBIDS} must print one range, but printed {output:?}"
        ))
    })
}

fn misconfigured(problem: String) -> Error {
    Error::Misconfigured {
        problems: vec![problem],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_range_is_read() {
        for (output, expected) in [
            ("0: kubelet 65536 2147483648", Some((65_536, 2_147_483_648))),
            ("0: kubelet 0 2147483648\n", Some((0, 2_147_483_648))),
            ("0: kubelet 196608 65536\n", Some((196_608, 65_536))),
            ("", None),
            ("0: kubelet 65536 2147483648\n1: kubelet 1 2", None),
            ("0: kubelet 65536", None),
            ("0: kubelet 65536 2147483648 1", None),
            ("0: kubelet a 2147483648", None),
            ("0: kubelet 65536 -1", None),
            ("0: kubelet 65536 4294967296", None),
        ] {
            assert_eq!(parse(output).ok(), expected, "{output}");
        }
    }

    #[tokio::test]
    async fn there_must_be_enough_for_all_pods() {
        let disk = Disk::inline();
        if subordinate_ids().unwrap().is_some() {
            println!("SKIPPED: this host has subordinate ids for the kubelet");
            return;
        }
        assert_eq!(
            UserNamespaceIds::of_this_host(65_536, 110, disk).await.unwrap(),
            UserNamespaceIds::default()
        );
        assert!(UserNamespaceIds::of_this_host(1 << 31, 1, disk).await.is_ok());
        let refused = UserNamespaceIds::of_this_host(1 << 31, 110, disk)
            .await
            .unwrap_err();
        assert!(
            refused.to_string().contains("enough for 1 pods, not for 110"),
            "{refused}"
        );
    }
}
