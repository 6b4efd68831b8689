//! Detects leaks.

use std::collections::BTreeMap;
use std::fmt;

use tokio::runtime::Handle;

use crate::wait::Patience;
use crate::{Error, Result};

/// Reports the tasks, files and child processes that were created after this check began and still exist.
///
/// ```
/// use kubelet_testing::LeakCheck;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let leaks = LeakCheck::tasks();
/// let agent = tokio::spawn(std::future::pending::<()>());
/// assert_eq!(leaks.now().to_string(), "1 task");
/// agent.abort();
/// leaks.assert_none().await; // waits until the task is gone
/// # }
/// ```
///
/// # What it detects
///
/// * **Tasks** of the tokio runtime in which the check began. Tokio only reports how many tasks are alive, so the
///   check misses a leak when another task ended meanwhile. Work on tokio's blocking threads (`spawn_blocking`)
///   counts as a task.
/// * **Files**: the open descriptors of this process (`/proc/self/fd`), including sockets and pipes. **Children**:
///   the child processes of this process, including zombies. Only [`process`](Self::process) checks these two, and
///   only on Linux. They belong to the whole process, so such a test needs a process of its own: a test file with one
///   test, or a runner with one process for each test.
/// * It does not detect **timers**. A timer belongs to a future, and the future belongs to a task or to the test. If
///   no task is left and the test holds no future, no timer is left.
#[derive(Debug)]
pub struct LeakCheck {
    handle: Handle,
    before: Held,
    process: bool,
}

impl LeakCheck {
    /// Starts to check tasks of this tokio runtime.
    ///
    /// # Panics
    ///
    /// Panics outside of a tokio runtime.
    pub fn tasks() -> Self {
        Self::begin(false)
    }

    /// Starts to check tasks of this tokio runtime, and files and children of this process.
    ///
    /// # Panics
    ///
    /// Panics outside of a tokio runtime.
    pub fn process() -> Self {
        Self::begin(true)
    }

    fn begin(process: bool) -> Self {
        let handle = Handle::current();
        Self {
            before: Held::now(&handle, process),
            handle,
            process,
        }
    }

    /// Returns what exists now and did not exist at the start.
    pub fn now(&self) -> Leaks {
        Leaks(Held::now(&self.handle, self.process).without(&self.before))
    }

    /// Waits until nothing is left. Something that was aborted, dropped or killed may need a moment to go.
    ///
    /// # Errors
    ///
    /// [`Error::Leaked`] names what is still there after [`PATIENCE`](crate::PATIENCE), or after three minutes if tokio's
    /// clock is not paused.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn none(&self) -> Result<()> {
        let mut patience = Patience::begin();
        loop {
            let leaks = self.now();
            if leaks.is_empty() {
                return Ok(());
            }
            let gave_up = patience.look_again(String::new, &()).await;
            gave_up.map_err(|_| Error::Leaked {
                what: leaks.to_string(),
            })?;
        }
    }

    /// As [`none`](Self::none), as an assertion.
    ///
    /// # Panics
    ///
    /// Panics if something is left.
    #[track_caller]
    pub fn assert_none(&self) -> impl Future<Output = ()> {
        let caller = std::panic::Location::caller();
        async move {
            if let Err(error) = self.none().await {
                #[expect(clippy::panic, reason = "an assertion")]
                {
                    panic!("{error} (asserted at {caller})");
                }
            }
        }
    }
}

/// What was leaked. It prints for humans.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaks(Held);

impl Leaks {
    /// Whether nothing was leaked.
    pub fn is_empty(&self) -> bool {
        self.0 == Held::default()
    }

    /// How many more tasks are alive than at the start.
    pub fn tasks(&self) -> usize {
        self.0.tasks
    }

    /// The targets of the open descriptors, once for each descriptor: `/tmp/x`, `socket:[123]`.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        self.0
            .files
            .iter()
            .flat_map(|(file, times)| std::iter::repeat_n(file.as_str(), *times))
    }

    /// Pids and names of child processes.
    pub fn children(&self) -> impl Iterator<Item = (i32, &str)> {
        self.0.children.iter().map(|(pid, name)| (*pid, name.as_str()))
    }
}

impl fmt::Display for Leaks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tasks = (self.tasks() > 0).then(|| match self.tasks() {
            1 => "1 task".to_owned(),
            tasks => format!("{tasks} tasks"),
        });
        let files = self.files().map(|file| format!("open {file}"));
        let children = self.children().map(|(pid, name)| format!("child {pid} ({name})"));
        let all: Vec<_> = tasks.into_iter().chain(files).chain(children).collect();
        f.write_str(if all.is_empty() { "nothing" } else { "" })?;
        f.write_str(&all.join(", "))
    }
}

/// The resources of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Held {
    tasks: usize,
    /// The targets of open descriptors, and how many descriptors each has.
    files: BTreeMap<String, usize>,
    children: BTreeMap<i32, String>,
}

impl Held {
    fn now(handle: &Handle, process: bool) -> Self {
        let tasks = handle.metrics().num_alive_tasks();
        if process {
            Self {
                tasks,
                files: open_files(),
                children: children(),
            }
        } else {
            Self {
                tasks,
                ..Self::default()
            }
        }
    }

    fn without(mut self, before: &Self) -> Self {
        self.tasks = self.tasks.saturating_sub(before.tasks);
        for (file, times) in &mut self.files {
            *times = times.saturating_sub(before.files.get(file).copied().unwrap_or(0));
        }
        self.files.retain(|_, times| *times > 0);
        self.children.retain(|pid, _| !before.children.contains_key(pid));
        self
    }
}

/// Without the descriptor that reads the list.
fn open_files() -> BTreeMap<String, usize> {
    let mut files = BTreeMap::new();
    let own = format!("/proc/{}/fd", std::process::id());
    for entry in std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten() {
        // A descriptor that was closed meanwhile is not open.
        let Ok(target) = std::fs::read_link(entry.path()) else {
            continue;
        };
        let target = target.to_string_lossy().into_owned();
        if target != own {
            *files.entry(target).or_default() += 1;
        }
    }
    files
}

fn children() -> BTreeMap<i32, String> {
    let mut children = BTreeMap::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        if let Some((name, parent)) = name_and_parent(&stat)
            && u32::try_from(parent) == Ok(std::process::id())
        {
            children.insert(pid, name);
        }
    }
    children
}

/// Of a line `PID (NAME) STATE PARENT …`, whose name may itself contain parentheses.
fn name_and_parent(stat: &str) -> Option<(String, i32)> {
    let (before, after) = stat.rsplit_once(')')?;
    let mut fields = after.split_ascii_whitespace();
    let state = fields.next()?;
    let name = before.split_once('(')?.1;
    let ended = if state == "Z" {
        ", ended and not waited for"
    } else {
        ""
    };
    Some((format!("{name}{ended}"), fields.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_may_contain_anything() {
        assert_eq!(
            name_and_parent("42 (a) b (c) S 7 40"),
            Some(("a) b (c".to_owned(), 7))
        );
        let ended = name_and_parent("42 (sleep) Z 7 40").unwrap();
        assert_eq!(ended.0, "sleep, ended and not waited for");
        assert_eq!(name_and_parent("42"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_stays_is_told() {
        let leaks = LeakCheck::tasks();
        let tasks: Vec<_> = (0..2)
            .map(|_| tokio::spawn(std::future::pending::<()>()))
            .collect();
        assert_eq!(
            (leaks.now().tasks(), leaks.now().to_string()),
            (2, "2 tasks".to_owned())
        );
        tasks[0].abort();
        assert_eq!(leaks.none().await.unwrap_err().to_string(), "left behind: 1 task");
        tasks[1].abort();
        leaks.assert_none().await;
        assert_eq!(leaks.now().to_string(), "nothing");
    }

    #[tokio::test]
    #[should_panic(expected = "left behind: 1 task")]
    async fn an_assertion_fails() {
        tokio::time::pause();
        let leaks = LeakCheck::tasks();
        tokio::spawn(std::future::pending::<()>());
        leaks.assert_none().await;
    }
}
