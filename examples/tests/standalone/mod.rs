//! Runs the example `standalone` as a process, reads its output, and ends it.

#![allow(dead_code, unused_imports, reason = "shared: each test program uses its part of it")]
pub(crate) mod agent;
pub(crate) mod manifests;
mod node;
mod port;
pub(crate) mod samples;
mod told;

pub(crate) use agent::Agent;
pub(crate) use node::{Node, Process};
pub(crate) use port::free_port;
pub(crate) use told::{Line, StatusExt};

/// Longer than anything here takes; only a failing test gets there.
pub(crate) const GUARD: std::time::Duration = std::time::Duration::from_secs(180);

/// Polls for something without a notification.
pub(crate) async fn until<T>(what: &str, mut reached: impl AsyncFnMut() -> Option<T>) -> T {
    let looking = async {
        loop {
            if let Some(found) = reached().await {
                return found;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    match tokio::time::timeout(GUARD, looking).await {
        Ok(found) => found,
        Err(_) => panic!("{what}: not within {GUARD:?}"),
    }
}
