//! The PLEG on real runtimes: what happens to a container is seen, through a list and through the runtime's events.
//!
//! How long it takes is printed and not judged. What is judged is what brought it: which list, or none.

mod agent;
mod evented;
mod generic;
mod observed;
mod stage;

/// Far longer than anything here takes; it only ends tests that fail.
const GUARD: std::time::Duration = std::time::Duration::from_secs(120);

/// Waits for something outside, of which nobody tells.
async fn until<T>(what: &str, mut reached: impl AsyncFnMut() -> Option<T>) -> T {
    let looking = async {
        loop {
            if let Some(found) = reached().await {
                return found;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    within(what, looking).await
}

/// Waits for it, patiently.
async fn within<T>(what: &str, waiting: impl Future<Output = T>) -> T {
    match tokio::time::timeout(GUARD, waiting).await {
        Ok(found) => found,
        Err(_) => panic!("{what}: not within {GUARD:?}"),
    }
}

/// Shows how long things took: the middle one, and the slowest.
fn show(what: &str, mut took: Vec<std::time::Duration>) {
    took.sort();
    let (median, slowest) = (took[took.len() / 2], took[took.len() - 1]);
    #[expect(clippy::print_stdout, reason = "how long it took is shown, not judged")]
    {
        println!("{what}: median {median:?}, slowest {slowest:?} of {}", took.len());
    }
}
