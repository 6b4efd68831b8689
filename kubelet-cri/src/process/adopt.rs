//! Takes over the containers of an earlier agent.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::process::{Pid, Signal, kill_process_group};

use super::attach::Input;
use super::command::signal_named;
use super::container::{self, Process, Running, unknown_exit};
use super::group::Group;
use super::launch::{identify, open_pipes, pipe_paths};
use super::log;
use super::proc_fs;
use super::record::{ProcessId, Record};
use super::{Shared, Slot};
use crate::verbs::Exit;

/// Looks at each container's folder. Blocks.
pub(super) fn all(shared: &Arc<Shared>) -> io::Result<()> {
    let world = proc_fs::world()?;
    for entry in std::fs::read_dir(&shared.containers_dir)? {
        let dir = entry?.path();
        match one(shared, &dir, &world) {
            Ok(Some(process)) => {
                let key = process.key().clone();
                shared.slots.lock().insert(key, Slot::Started(process));
            }
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(path = %dir.display(), %error, "skipping a container of an earlier agent: cannot read its record");
            }
        }
    }
    Ok(())
}

/// `None` for a folder whose container was not completely started, or not completely removed. Such a folder is removed.
fn one(shared: &Arc<Shared>, dir: &Path, world: &str) -> io::Result<Option<Arc<Process>>> {
    let Some(mut record) = Record::read(dir)? else {
        kill_writers(dir)?;
        std::fs::remove_dir_all(dir)?;
        return Ok(None);
    };
    if let Some(exit) = &record.exit {
        let exit = Exit {
            started_at: record.started_at,
            finished_at: exit.finished_at,
            code: exit.code,
            reason: exit.reason.clone(),
            message: exit.message.clone(),
        };
        return Ok(Some(Process::ended(dir.to_owned(), record, exit)));
    }
    if record.process.is_none() {
        // The agent died while it started the container.
        record.process = match leader_by_pipes(dir)? {
            Some(pid) => Some(identify(pid)?),
            None => {
                std::fs::remove_dir_all(dir)?;
                return Ok(None);
            }
        };
        record.write(dir)?;
    }
    let process = record.process.clone().filter(|process| process.world == world);
    if let Some(process) = &process
        && let Some(pid) = Pid::from_raw(process.pid)
    {
        if let Some(group) = Group::adopt(pid, process.start_time)? {
            return Ok(Some(take_over(shared, dir.to_owned(), record, group)?));
        }
        kill_rest(process)?;
    }
    let exit = unknown_exit(record.started_at, shared.clock.now());
    record.set_exit(&exit);
    record.write(dir)?;
    tracing::info!(uid = %record.pod_uid, container = %record.container, "container ended while no agent was running");
    Ok(Some(Process::ended(dir.to_owned(), record, exit)))
}

fn take_over(shared: &Arc<Shared>, dir: PathBuf, record: Record, group: Group) -> io::Result<Arc<Process>> {
    let about = |what: &str, error: &dyn std::fmt::Display| {
        tracing::warn!(uid = %record.pod_uid, container = %record.container, %error,
            "cannot read the {what} of a container of an earlier agent");
    };
    let pipes = match open_pipes(&dir) {
        Ok(pipes) => pipes.map(Some),
        Err(error) => {
            about("output", &error);
            [None, None]
        }
    };
    let env = proc_fs::environment(group.leader()).unwrap_or_else(|error| {
        about("environment", &error);
        Vec::new()
    });
    let log_file = record.log_path.as_deref().and_then(|path| {
        let opened = log::open(path);
        opened.inspect_err(|error| about("log file", error)).ok()
    });
    let stop_signal = record.stop_signal.as_deref().and_then(signal_named);
    tracing::info!(uid = %record.pod_uid, container = %record.container, pid = group.leader().as_raw_pid(),
        "took over a container of an earlier agent");
    let (pump, reopen, clients) = container::pump(shared, record.log_path.clone(), log_file, pipes);
    let running = Running {
        group,
        pump,
        reopen,
        clients,
        // With `stdinOnce`, the input has ended with the earlier agent.
        input: Input::new(record.input, None),
        env,
        stop_signal: stop_signal.unwrap_or(Signal::TERM),
    };
    Ok(Process::supervise(shared, dir, record, running))
}

/// Kills the remaining processes of a group whose leader has ended. Another group may have got the same id since. So it
/// kills only if all remaining processes belong to our session and are younger than the leader.
fn kill_rest(process: &ProcessId) -> io::Result<()> {
    let rest: Vec<_> = proc_fs::all()?.filter(|stat| stat.group == process.pid).collect();
    let ours = rest
        .iter()
        .all(|stat| stat.session == process.session && stat.start_time >= process.start_time);
    if let Some(group) = Pid::from_raw(process.pid).filter(|_| ours && !rest.is_empty()) {
        // The only possible error is that no process is left.
        let _ = kill_process_group(group, Signal::KILL);
    }
    Ok(())
}

/// The leader of the group that writes to the pipes of this folder.
fn leader_by_pipes(dir: &Path) -> io::Result<Option<Pid>> {
    let [stdout, stderr] = pipe_paths(dir);
    let writers = proc_fs::writers_of(&[&stdout, &stderr])?;
    Ok(writers.first().and_then(|stat| Pid::from_raw(stat.pid)))
}

fn kill_writers(dir: &Path) -> io::Result<()> {
    if let Some(group) = leader_by_pipes(dir)? {
        let _ = kill_process_group(group, Signal::KILL);
    }
    Ok(())
}
