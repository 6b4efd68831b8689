//! Follows a log: decides what to do at its end.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use kubelet_core::Disk;
use tokio::time::{Instant, sleep, sleep_until};

use super::super::changes::{Changes, LogWatcher};
use super::super::go_text;
use super::log_error;
use super::next_file::Place;
use super::segment::{FileId, Open};
use crate::Error;
use kubelet_cri::{Code, RuntimeService, v1};

/// How often a log is checked even without changes (`logForceCheckPeriod`). The container's state is not requested more
/// often than this.
const FORCE_CHECK_PERIOD: Duration = Duration::from_secs(1);

/// A log that changes more often is read only so often: then many lines cost as much as one. Nobody reads faster.
const MIN_PERIOD: Duration = Duration::from_millis(100);

/// After it created the next file, or reported the end of the container, a runtime may still write the last lines: containerd
/// does, from another goroutine.
const LAST_LINES: Duration = Duration::from_millis(100);

/// The state of following.
pub(super) struct Follow {
    container: Option<(Arc<dyn RuntimeService>, String)>,
    watcher: LogWatcher,
    /// `None`: the system allows no more watches, or a watch was not tried yet.
    changes: Option<Changes>,
    watching: bool,
    /// Whether the log's path may have another file since it was last checked.
    names_changed: bool,
    /// When the last wait ended.
    woken_at: Option<Instant>,
    asked_at: Option<Instant>,
    /// Whether the container has ended: the log has only the content that is there by now.
    ended: bool,
    /// Whether the log was rotated, and the runtime had time to write the last lines to this file.
    rotated: bool,
}

pub(super) enum Next {
    /// There may be more.
    Look,
    /// The log continues in this file.
    File(Box<Open>),
    End,
}

impl Follow {
    /// `seen_running`: when the runtime last reported that the container runs.
    pub(super) fn new(
        container: Option<(Arc<dyn RuntimeService>, String)>,
        seen_running: Option<Instant>,
        watcher: LogWatcher,
    ) -> Self {
        Self {
            container,
            watcher,
            changes: None,
            watching: false,
            names_changed: true,
            woken_at: None,
            asked_at: seen_running,
            ended: false,
            rotated: false,
        }
    }

    /// Call it at the end of the present content, with the log's path and the open file.
    pub(super) async fn next(&mut self, log: &Path, open: &Open, disk: Disk) -> Result<Next, Error> {
        if !self.watching {
            self.watching = true;
            let folder = log.parent().unwrap_or(Path::new("/"));
            match self.watcher.watch(folder) {
                Ok(changes) => self.changes = Some(changes),
                Err(error) => tracing::debug!(folder = %folder.display(), %error,
                    "cannot watch a folder of logs; checking it every second"),
            }
            // Read what was written before the watch. Then check whether the log was rotated before.
            return Ok(Next::Look);
        }
        if open.id.is_none() || (self.names_changed && is_another(log, open.id, disk).await?) {
            let (path, place) = (log.to_owned(), Place::of(open));
            let next = disk.run(move || place.open_next(&path)).await;
            match next.map_err(|error| failed(log, &error, "open the next log of"))? {
                // An older file has its last lines.
                Some(next) if next.id.is_none() || self.rotated => {
                    self.rotated = false;
                    return Ok(Next::File(Box::new(next)));
                }
                Some(_) => {
                    sleep(LAST_LINES).await;
                    self.rotated = true;
                    return Ok(Next::Look);
                }
                None => {}
            }
        }
        if self.ended {
            return Ok(Next::End);
        }
        self.names_changed = false;
        if !self.is_running().await? {
            sleep(LAST_LINES).await;
            self.ended = true;
            self.names_changed = true;
            return Ok(Next::Look);
        }
        let changed = async {
            match &mut self.changes {
                Some(changes) => changes.changed().await,
                None => std::future::pending::<bool>().await,
            }
        };
        tokio::select! {
            biased;
            names = changed => self.names_changed = names,
            () = sleep(FORCE_CHECK_PERIOD) => self.names_changed = true,
        }
        if let Some(woken_at) = self.woken_at {
            sleep_until(woken_at + MIN_PERIOD).await;
        }
        self.woken_at = Some(Instant::now());
        Ok(Next::Look)
    }

    /// Whether it waits for changes: what it reads next is short.
    pub(super) fn is_watching(&self) -> bool {
        self.watching
    }

    /// `isContainerRunning`
    async fn is_running(&mut self) -> Result<bool, Error> {
        let Some((runtime, id)) = &self.container else {
            return Ok(true);
        };
        if self.asked_at.is_some_and(|at| at.elapsed() < FORCE_CHECK_PERIOD) {
            return Ok(true);
        }
        let request = v1::ContainerStatusRequest {
            container_id: id.clone(),
            verbose: false,
        };
        let running = match runtime.container_status(request).await {
            Ok(v1::ContainerStatusResponse {
                status: Some(status), ..
            }) => status.state() == v1::ContainerState::ContainerRunning,
            Ok(_) => {
                let message = "container status is nil".to_owned();
                return Err(kubelet_cri::Error::InvalidResponse {
                    call: "ContainerStatus",
                    id: id.clone(),
                    message,
                }
                .into());
            }
            // Containers keep running while their runtime is away.
            Err(error) if error.code() == Code::Unavailable => true,
            Err(error) => return Err(error.into()),
        };
        self.asked_at = Some(Instant::now());
        Ok(running)
    }
}

fn failed(log: &Path, error: &io::Error, what: &str) -> Error {
    log_error(log, format!("failed to {what}: {}", go_text(error)))
}

/// Whether the log's path has another file than the one that is read.
async fn is_another(log: &Path, id: Option<FileId>, disk: Disk) -> Result<bool, Error> {
    let path = log.to_owned();
    let there = disk.run(move || Ok(fs::metadata(path).ok().map(|metadata| FileId::of(&metadata))));
    // During a rotation there is no file for a moment.
    let there = there.await.map_err(|error| failed(log, &error, "stat log"))?;
    Ok(there.is_some() && there != id)
}
