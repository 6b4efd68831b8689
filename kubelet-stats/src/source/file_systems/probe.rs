//! Questions that may never be answered.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep_until};

use super::places::Places;

/// One call takes at most this many times as long as one question may take.
const CALL: u32 = 3;
/// At most this many threads wait for disks that hang, and as many for other file systems, for each kind of question. Then no
/// other one is asked.
const MOST_STUCK: usize = 16;

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The size of a file system: a few paths.
    Size,
    /// What files use: many paths. Those that hang do not keep others from asking for sizes.
    Files,
}

/// Asks questions about paths on another thread, one after the other, and does not wait for one that is not answered.
///
/// While a question is open for too long, no path on the same mount is asked.
pub(super) struct Probes {
    proc: PathBuf,
    open: Arc<Open>,
}

/// The questions that threads ask now.
#[derive(Default)]
struct Open {
    questions: Mutex<HashMap<u64, Question>>,
    next: AtomicU64,
}

#[derive(Clone)]
struct Question {
    kind: Kind,
    path: PathBuf,
    began: Instant,
}

/// Ends the question, also if it panics.
struct Ends<'a>(&'a Open, u64);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.questions.lock().remove(&self.1);
    }
}

/// The questions that one thread asks.
struct Round<T> {
    answers: Vec<Option<T>>,
    /// The question that it asks now, and since when. `None` before the thread has begun.
    at: Option<(usize, Instant)>,
}

/// Nobody waits for the answers of a thread any more: it asks no further question.
struct Abandon(Arc<AtomicBool>);

impl Drop for Abandon {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

impl Probes {
    /// `proc` has the table of mounts.
    pub(super) fn new(proc: PathBuf) -> Self {
        Self {
            proc,
            open: Arc::default(),
        }
    }

    /// The answer about each path, in their order. `None` where there is none in time, or where an earlier question about the
    /// same mount has not been answered.
    ///
    /// May be dropped: the thread ends after the question that it asks now.
    pub(super) async fn ask<T: Send + 'static>(
        &self,
        kind: Kind,
        paths: Vec<PathBuf>,
        within: Duration,
        question: impl Fn(&Path) -> T + Send + Sync + 'static,
    ) -> Vec<Option<T>> {
        let deadline = Instant::now() + within * CALL;
        let question = Arc::new(question);
        let paths: Arc<[PathBuf]> = paths.into();
        let mut answers: Vec<Option<T>> = paths.iter().map(|_| None).collect();
        let mut from = 0;
        // Each turn ends the questions, or goes on after one that hangs.
        while from < paths.len() && Instant::now() < deadline {
            let mut skip = self.skip(kind, &paths, within);
            skip.iter_mut().take(from).for_each(|skip| *skip = true);
            let round = Arc::new(Mutex::new(Round {
                answers: paths.iter().map(|_| None).collect(),
                at: None,
            }));
            let abandoned = Arc::new(AtomicBool::new(false));
            let guard = Abandon(abandoned.clone());
            let work = {
                let (round, paths, question) = (round.clone(), paths.clone(), question.clone());
                let open = self.open.clone();
                move || open.ask_all(&round, kind, &paths, &skip, &abandoned, &*question)
            };
            let mut thread = spawn_blocking(work);
            let hangs = loop {
                // A question that begins later only ends later.
                let at = round.lock().at;
                let due = at.map_or(deadline, |(_, began)| deadline.min(began + within));
                let due = if at.is_none() {
                    due.min(Instant::now() + within)
                } else {
                    due
                };
                tokio::select! {
                    biased;
                    _ = &mut thread => break None,
                    () = sleep_until(due) => {}
                }
                let now = Instant::now();
                match round.lock().at {
                    Some((index, began)) if began + within <= now => break Some(index),
                    _ if now >= deadline => {
                        tracing::warn!(after = ?within * CALL, "the file systems are slow: some are left out");
                        break None;
                    }
                    _ => {}
                }
            };
            drop(guard);
            let mut round = round.lock();
            for (answer, new) in answers.iter_mut().zip(&mut round.answers) {
                if let Some(new) = new.take() {
                    *answer = Some(new);
                }
            }
            let Some(index) = hangs else {
                // Without effect once it has begun.
                thread.abort();
                break;
            };
            if let Some(path) = paths.get(index) {
                tracing::warn!(path = %path.display(), ?within, "the file system does not answer");
            }
            from = index + 1;
        }
        answers
    }

    /// Which paths are not asked now.
    fn skip(&self, kind: Kind, paths: &[PathBuf], within: Duration) -> Vec<bool> {
        let now = Instant::now();
        let mut stuck: Vec<Question> = self.open.questions.lock().values().cloned().collect();
        stuck.retain(|question| question.began + within <= now);
        if stuck.is_empty() {
            return vec![false; paths.len()];
        }
        // The kernel writes the table without asking the file systems.
        let text = std::fs::read_to_string(self.proc.join("self/mountinfo")).unwrap_or_default();
        let places = Places::of(&text);
        let same_kind = || stuck.iter().filter(|question| question.kind == kind);
        let disks = same_kind()
            .filter(|question| places.is_disk(&question.path))
            .count();
        let others = same_kind().count() - disks;
        let skip = |path: &PathBuf| {
            let already = if places.is_disk(path) { disks } else { others };
            already >= MOST_STUCK
                || stuck
                    .iter()
                    .any(|question| places.hang_together(&question.path, path))
        };
        paths.iter().map(skip).collect()
    }
}

impl Open {
    /// Asks about each path, until nobody waits any more.
    fn ask_all<T>(
        &self,
        round: &Mutex<Round<T>>,
        kind: Kind,
        paths: &[PathBuf],
        skip: &[bool],
        abandoned: &AtomicBool,
        question: &dyn Fn(&Path) -> T,
    ) {
        for (index, path) in paths.iter().enumerate() {
            if abandoned.load(Ordering::Acquire) {
                return;
            }
            if skip.get(index).copied().unwrap_or(false) {
                continue;
            }
            let began = Instant::now();
            let ends = self.begin(kind, path, began);
            round.lock().at = Some((index, began));
            let answer = question(path);
            drop(ends);
            if let Some(place) = round.lock().answers.get_mut(index) {
                *place = Some(answer);
            }
        }
    }

    fn begin(&self, kind: Kind, path: &Path, began: Instant) -> Ends<'_> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let path = path.to_owned();
        self.questions.lock().insert(id, Question { kind, path, began });
        Ends(self, id)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::sync::mpsc;

    use super::*;

    const TABLE: &str = "1 0 1:1 / / rw - ext4 /dev/vda rw\n2 1 0:45 / /mnt rw - nfs4 server:/x rw\n";

    fn probes() -> (tempfile::TempDir, Probes) {
        let proc = tempfile::tempdir().unwrap();
        std::fs::create_dir(proc.path().join("self")).unwrap();
        std::fs::write(proc.path().join("self/mountinfo"), TABLE).unwrap();
        let probes = Probes::new(proc.path().to_owned());
        (proc, probes)
    }

    fn paths(paths: &[&str]) -> Vec<PathBuf> {
        paths.iter().map(PathBuf::from).collect()
    }

    #[tokio::test]
    async fn of_a_mount_that_hangs_one_path_is_asked() {
        let (_proc, probes) = probes();
        let (release, released) = mpsc::channel::<()>();
        let (released, asked) = (Mutex::new(released), Arc::new(AtomicUsize::new(0)));
        let count = asked.clone();
        let question = move |path: &Path| {
            if path.starts_with("/mnt") {
                count.fetch_add(1, Ordering::SeqCst);
                let _ = released.lock().recv();
            }
            path.to_owned()
        };
        let asked_paths = paths(&["/a", "/mnt/1", "/mnt/2", "/b", "/mnt/3", "/c"]);
        let within = Duration::from_secs(1);
        let answers = probes.ask(Kind::Files, asked_paths, within, question).await;
        let answered: Vec<bool> = answers.iter().map(Option::is_some).collect();
        assert_eq!(answered, [true, false, false, true, false, true]);
        assert_eq!(asked.load(Ordering::SeqCst), 1);
        // Another kind of question waits for it, too.
        let other = probes
            .ask(Kind::Files, paths(&["/mnt/4", "/d"]), within, |_| ())
            .await;
        assert_eq!(other, [None, Some(())]);
        drop(release);
        while probes.ask(Kind::Files, paths(&["/mnt/4"]), within, |_| ()).await != [Some(())] {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_call_that_is_dropped_leaves_a_record() {
        let (_proc, probes) = probes();
        let (begun, has_begun) = tokio::sync::oneshot::channel();
        let (release, released) = mpsc::channel::<()>();
        let (begun, released) = (Mutex::new(Some(begun)), Mutex::new(released));
        let question = move |_: &Path| {
            begun.lock().take().map(|begun| begun.send(()));
            let _ = released.lock().recv();
        };
        tokio::select! {
            biased;
            begun = has_begun => begun.unwrap(),
            _ = probes.ask(Kind::Files, paths(&["/mnt/1", "/mnt/2"]), Duration::from_secs(3600), question) => {}
        }
        assert_eq!(probes.open.questions.lock().len(), 1);
        let asked = paths(&["/mnt/2", "/a"]);
        assert_eq!(probes.skip(Kind::Files, &asked, Duration::ZERO), [true, false]);
        drop(release);
    }

    #[test]
    fn a_path_that_was_never_asked_does_not_hang() {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().max_blocking_threads(1).build().unwrap();
        runtime.block_on(async {
            let (_proc, probes) = probes();
            let (release, released) = mpsc::channel::<()>();
            let busy = spawn_blocking(move || released.recv());
            let within = Duration::from_millis(50);
            assert_eq!(
                probes.ask(Kind::Files, paths(&["/mnt/1"]), within, |_| ()).await,
                [None]
            );
            drop(release);
            let _ = busy.await;
            assert_eq!(
                probes.ask(Kind::Files, paths(&["/mnt/1"]), within, |_| ()).await,
                [Some(())]
            );
        });
    }

    #[test]
    fn a_limited_number_of_threads_is_stuck() {
        let (proc, probes) = probes();
        let mounts = |from: usize, to| {
            (from..to).map(|index| format!("{index} 1 0:{index} / /nfs/{index} rw - nfs4 s:/{index} rw\n"))
        };
        let table = TABLE.to_owned() + &mounts(100, 100 + MOST_STUCK + 1).collect::<String>();
        std::fs::write(proc.path().join("self/mountinfo"), table).unwrap();
        let others = paths(&["/", "/nfs/116/a", "/mnt"]);
        let now = Instant::now();
        let mut open: Vec<_> = (100..100 + MOST_STUCK)
            .map(|index| {
                probes
                    .open
                    .begin(Kind::Files, Path::new(&format!("/nfs/{index}/x")), now)
            })
            .collect();
        assert_eq!(
            probes.skip(Kind::Files, &others, Duration::ZERO),
            [false, true, true],
            "disks are asked"
        );
        assert_eq!(
            probes.skip(Kind::Files, &others, Duration::from_secs(3600)),
            [false; 3],
            "they may still answer"
        );
        assert_eq!(probes.skip(Kind::Size, &others, Duration::ZERO), [false; 3]);
        open.pop();
        assert_eq!(probes.skip(Kind::Files, &others, Duration::ZERO), [false; 3]);
    }
}
