//! The name that a node goes by.

use std::path::Path;

use crate::{Error, Result};

/// The name of the host, or what `--hostname-override` says in its place, trimmed and in lower case (`GetHostname`). It is
/// the node's name, too, where no cloud provider knows better.
///
/// ```
/// assert_eq!(kubelet_node::hostname(" Node-1 ")?, "node-1");
/// assert!(!kubelet_node::hostname("")?.is_empty());
/// # Ok::<(), kubelet_node::Error>(())
/// ```
///
/// # Errors
///
/// When the name is empty, or the host's cannot be read.
pub fn hostname(override_: &str) -> Result<String> {
    // As `os.Hostname` of Go reads it.
    const FILE: &str = "/proc/sys/kernel/hostname";
    let name = if override_.is_empty() {
        let read = std::fs::read_to_string(FILE);
        read.map_err(|source| Error::File {
            what: "read",
            file: Path::new(FILE).to_owned(),
            source,
        })?
    } else {
        override_.to_owned()
    };
    match name.trim() {
        "" => Err(Error::Invalid {
            what: format!("hostname {name:?}"),
            why: "empty hostname is invalid".to_owned(),
        }),
        name => Ok(name.to_lowercase()),
    }
}
