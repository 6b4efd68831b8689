//! Files of the kernel that epoll can wait for.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Registers a file with the runtime, so that a task can wait for it.
///
/// # Errors
///
/// If the file cannot be waited for.
pub(crate) fn register<F: Owner>(file: F, interest: Interest) -> io::Result<AsyncFd<F>> {
    #[allow(
        deprecated,
        reason = "the replacement is unsafe, since another type could close its file while it is registered; an `Owner` does not"
    )]
    AsyncFd::with_interest(file, interest)
}

/// Owns one file from its creation until it is dropped.
pub(crate) trait Owner: AsFd + AsRawFd {}

impl Owner for std::fs::File {}
impl Owner for std::os::fd::OwnedFd {}
