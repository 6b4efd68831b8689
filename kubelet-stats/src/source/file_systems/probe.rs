//! Questions that may never be answered.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

/// Asks questions about paths on another thread, one after the other, and does not wait for one that is not answered.
pub(super) struct Probes<T>(Arc<Mutex<Hanging<T>>>);

/// Paths whose question has not been answered, with the answer that may still come.
type Hanging<T> = HashMap<PathBuf, oneshot::Receiver<T>>;

/// The questions that one thread asks.
struct Round<T> {
    answers: Vec<Option<T>>,
    /// The question that it asks now.
    at: usize,
    /// Nobody waits for its answers any more.
    abandoned: Option<oneshot::Sender<T>>,
}

impl<T> Default for Probes<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T: Send + 'static> Probes<T> {
    /// The answer about each path, in their order. `None` where there is none in time, or where an earlier question about the
    /// path has not been answered.
    pub(super) async fn ask(
        &self,
        paths: Vec<PathBuf>,
        within: Duration,
        question: impl Fn(&Path) -> T + Send + Sync + 'static,
    ) -> Vec<Option<T>> {
        let question = Arc::new(question);
        let paths: Arc<[PathBuf]> = paths.into();
        let mut skip: Vec<bool> = paths.iter().map(|path| self.hangs(path)).collect();
        let mut answers: Vec<Option<T>> = paths.iter().map(|_| None).collect();
        let mut from = 0;
        // Each turn ends the questions, or goes on after one that hangs.
        while from < paths.len() {
            let round = Arc::new(Mutex::new(Round {
                answers: paths.iter().map(|_| None).collect(),
                at: from,
                abandoned: None,
            }));
            let work = {
                let (round, paths, question, skip) =
                    (round.clone(), paths.clone(), question.clone(), skip.clone());
                move || ask_all(&round, &paths, &skip, &*question)
            };
            let ended = timeout(within, spawn_blocking(work)).await;
            let mut round = round.lock();
            for (answer, new) in answers.iter_mut().zip(&mut round.answers) {
                if let Some(new) = new.take() {
                    *answer = Some(new);
                }
            }
            if ended.is_ok() {
                break;
            }
            let Some(path) = paths.get(round.at) else { break };
            tracing::warn!(path = %path.display(), ?within, "the file system does not answer");
            let (late, receiver) = oneshot::channel();
            round.abandoned = Some(late);
            self.0.lock().insert(path.clone(), receiver);
            if let Some(skip) = skip.get_mut(round.at) {
                *skip = true;
            }
            from = round.at + 1;
        }
        answers
    }

    /// An earlier question about the path has not been answered.
    fn hangs(&self, path: &Path) -> bool {
        let mut hanging = self.0.lock();
        let Some(answered) = hanging.get_mut(path) else {
            return false;
        };
        if matches!(answered.try_recv(), Err(oneshot::error::TryRecvError::Empty)) {
            return true;
        }
        hanging.remove(path);
        false
    }
}

/// Asks about each path, until somebody has given up.
fn ask_all<T>(round: &Mutex<Round<T>>, paths: &[PathBuf], skip: &[bool], question: &dyn Fn(&Path) -> T) {
    let from = round.lock().at;
    for (index, path) in paths.iter().enumerate().skip(from) {
        if skip.get(index).copied().unwrap_or(false) {
            continue;
        }
        round.lock().at = index;
        let answer = question(path);
        let mut round = round.lock();
        if let Some(late) = round.abandoned.take() {
            // It has answered, so it may be asked again.
            let _ = late.send(answer);
            return;
        }
        if let Some(place) = round.answers.get_mut(index) {
            *place = Some(answer);
        }
    }
}
