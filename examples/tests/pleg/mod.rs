//! The PLEG on real runtimes: it sees changes of containers, through lists and through events.
//!
//! The tests print how long this takes, but do not check it. They check by which list or event it came.

mod agent;
mod evented;
mod generic;
mod observed;
mod stage;

/// Longer than anything here takes; only a failing test gets there.
const GUARD: std::time::Duration = std::time::Duration::from_secs(120);

/// Polls for something without a notification.
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

/// Prints durations: the median and the maximum.
fn show(what: &str, mut took: Vec<std::time::Duration>) {
    took.sort();
    let (median, slowest) = (took[took.len() / 2], took[took.len() - 1]);
    #[expect(clippy::print_stdout, reason = "how long it took is shown, not judged")]
    {
        println!("{what}: median {median:?}, slowest {slowest:?} of {}", took.len());
    }
}
