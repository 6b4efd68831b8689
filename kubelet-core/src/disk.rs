//! Which thread does file work.

use std::io;

/// Runs the file work of a part of the agent: a few folders, links and short reads per pod.
///
/// By default it runs on another thread ([`tokio::task::spawn_blocking`]), so that a hanging disk blocks only the pod
/// that waits for it. A simulation runs it [inline](Self::inline): the order of events then does not depend on other
/// threads, an idle hour costs almost nothing, and no file needs to be durable.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// let text = kubelet_core::Disk::default().run(|| std::fs::read_to_string("Cargo.toml")).await?;
/// assert!(text.contains("[package]"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Disk {
    inline: bool,
}

impl Disk {
    /// Runs work on the calling thread.
    pub fn inline() -> Self {
        Self { inline: true }
    }

    /// Whether work runs on the calling thread.
    pub(crate) fn is_inline(self) -> bool {
        self.inline
    }

    /// Runs the work.
    ///
    /// # Errors
    ///
    /// Those of the work, or an error if its thread panicked.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the work still runs to its end; its result is lost.
    pub async fn run<T: Send + 'static>(
        self,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        if self.inline {
            return work();
        }
        tokio::task::spawn_blocking(work)
            .await
            .unwrap_or_else(|error| Err(io::Error::other(error)))
    }
}
