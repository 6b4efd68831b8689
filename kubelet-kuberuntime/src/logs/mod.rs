//! Reads, follows and rotates the logs of containers, as the kubelet does.
//!
//! * [`LogReader`]: a container's log as a stream, with bounded memory.
//! * [`container_of_logs`]: finds the container of a pod for a log request.
//! * [`ContainerLogManager`]: rotates the logs of running containers.
//!
//! ```
//! use futures::TryStreamExt;
//! use kubelet_kuberuntime::logs::{LogReader, PodLogOptions};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path().join("0.log");
//! std::fs::write(
//!     &path,
//!     "2024-01-01T00:00:00Z stdout F one\n\
//!      2024-01-01T00:00:01Z stdout P tw\n\
//!      2024-01-01T00:00:02Z stdout F o\n",
//! )?;
//! let options = PodLogOptions { tail_lines: Some(2), timestamps: true, ..PodLogOptions::default() };
//! let chunks: Vec<_> = LogReader::new(&path).options(options).read().try_collect().await?;
//! let text: Vec<u8> = chunks.into_iter().flat_map(|chunk| chunk.bytes).collect();
//! assert_eq!(text, b"2024-01-01T00:00:01.000000000Z two\n");
//! # Ok(())
//! # }
//! ```

mod changes;
mod entry;
mod files;
mod lines;
mod reader;
mod rotation;
mod tail;
mod time;
mod which;
mod writer;

use std::io;

pub use self::changes::LogWatcher;
pub use self::reader::{LogChunks, LogReader};
pub use self::rotation::{ContainerLogManager, LogRotatePolicy};
pub use self::which::container_of_logs;
pub use self::writer::{LogChunk, LogStream};
pub use kubelet_core::runtime::{LogStreams, PodLogOptions};

/// An error of the operating system in Go's words: `no such file or directory`.
fn go_text(error: &io::Error) -> String {
    let text = error.to_string();
    match text.split_once(" (os error") {
        Some((text, _)) => text.to_lowercase(),
        None => text,
    }
}
