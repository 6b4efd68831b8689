//! Where file work is done.

use std::io;

/// Who does the work on files that a part of the agent has to do: a few folders, links and short reads for each pod.
///
/// By default another thread does ([`tokio::task::spawn_blocking`]), so that a disk that hangs holds up the one pod
/// that waits for it. A simulation has it done [on the spot](Self::inline): then nothing of its order depends on
/// other threads, an hour without work costs next to nothing, and no file has to outlast the host.
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
    /// Work is done by the thread that asks for it.
    pub fn inline() -> Self {
        Self { inline: true }
    }

    /// Whether the thread that asks for work does it: in a simulation.
    pub(crate) fn is_inline(self) -> bool {
        self.inline
    }

    /// Does the work.
    ///
    /// # Errors
    ///
    /// Those of the work, and one if its thread died.
    ///
    /// # Cancel safety
    ///
    /// When dropped, the work goes on to its end, and its result is lost.
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
