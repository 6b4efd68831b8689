//! The host name and the node's name.

use std::path::Path;

use crate::{Error, Result};

/// The host name, or the value of `--hostname-override` if it is not empty; trimmed and in lower case
/// (`GetHostname`). It is also the node's name, unless a cloud provider sets another.
///
/// ```
/// assert_eq!(kubelet_node::hostname(" Node-1 ")?, "node-1");
/// assert!(!kubelet_node::hostname("")?.is_empty());
/// # Ok::<(), kubelet_node::Error>(())
/// ```
///
/// # Errors
///
/// The name is empty, or the host name cannot be read.
pub fn hostname(override_: &str) -> Result<String> {
    // Go's `os.Hostname` reads the same file.
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
