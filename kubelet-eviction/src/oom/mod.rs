//! The OOM watcher: reads the kernel's log for processes that the OOM killer has killed (`pkg/kubelet/oom`).
//!
//! ```no_run
//! # async fn watch(shutdown: tokio_util::sync::CancellationToken) -> kubelet_eviction::Result<()> {
//! use std::sync::Arc;
//! use kubelet_core::LogEvents;
//! use kubelet_eviction::oom::{Kmsg, OomKill, OomWatcher};
//!
//! let watcher = OomWatcher::new(Kmsg::open("/dev/kmsg")?, Arc::new(LogEvents))
//!     .listener(|kill: &OomKill| println!("{} in {}", kill.process_name, kill.container));
//! watcher.run(shutdown).await;
//! # Ok(())
//! # }
//! ```

#[cfg(target_os = "linux")]
mod kmsg;
mod parser;
mod watcher;

#[cfg(target_os = "linux")]
pub use self::kmsg::Kmsg;
pub use self::parser::{OomKill, OomParser};
pub use self::watcher::{KernelLog, OomListener, OomWatcher};
