//! Starts a container.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::fs::symlink;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{CWD, Mode, mkfifoat};
use rustix::process::Pid;
use tokio::net::unix::pipe::{self, Receiver, Sender};

use super::Shared;
use super::attach::{Input, InputKind};
use super::command::{self, Plan};
use super::container::{self, INPUT, Process, Running};
use super::group::Group;
use super::log;
use super::pods;
use super::proc_fs::{self, Stat};
use super::record::{ProcessId, Record};
use crate::verbs::{ContainerKey, ContainerSpec, Result, RuntimeError};

/// The named pipes in a container's folder: standard output and standard error.
const PIPES: [&str; 2] = ["stdout", "stderr"];

/// Starts a container. Blocks. Afterwards the container runs and is supervised, or nothing is left of it.
pub(super) fn launch(shared: &Arc<Shared>, spec: &ContainerSpec) -> Result<Arc<Process>> {
    let mut plan = Plan::new(spec, &shared.images)?;
    let temporary = pods::folder(&shared.pods_dir, &spec.pod_key())?;
    if temporary.is_dir() {
        // First, so that the pod's own variables win.
        plan.env.insert(0, ("TMPDIR".into(), temporary.into()));
    }
    let dir = shared.containers_dir.join(dir_name(&spec.key)?);
    let made = DirBuilder::new().mode(0o700).create(&dir);
    made.map_err(|error| failed(&spec.key, "make", &dir, &error))?;
    let launched = launch_in(shared, spec, plan, &dir);
    if launched.is_err()
        && let Err(error) = std::fs::remove_dir_all(&dir)
    {
        tracing::warn!(uid = %spec.key.pod, container = %spec.key.container, path = %dir.display(), %error,
            "cannot remove the folder of a container that was not started");
    }
    launched
}

fn launch_in(shared: &Arc<Shared>, spec: &ContainerSpec, plan: Plan, dir: &Path) -> Result<Arc<Process>> {
    let key = &spec.key;
    let working_dir = match plan.working_dir {
        Some(dir) => dir,
        None => {
            let own = dir.join("work");
            std::fs::create_dir(&own).map_err(|error| failed(key, "make", &own, &error))?;
            link_mounts(spec, &own).map_err(|error| failed(key, "link mounts in", &own, &error))?;
            own
        }
    };
    let log_file = match &spec.log_path {
        Some(path) => Some(log::open(path).map_err(|error| failed(key, "open", path, &error))?),
        None => None,
    };
    let input_kind = match (spec.stdin, spec.stdin_once) {
        (false, _) => InputKind::None,
        (true, false) => InputKind::Open,
        (true, true) => InputKind::Once,
    };
    let mut record = Record {
        pod_uid: key.pod.to_string(),
        pod_attempt: Some(spec.pod_attempt),
        container: key.container.clone(),
        attempt: key.attempt,
        working_dir: working_dir.clone(),
        log_path: spec.log_path.clone(),
        stop_signal: spec.stop_signal.clone(),
        input: input_kind,
        started_at: shared.clock.now(),
        process: None,
        exit: None,
    };
    let ends = make_pipes(dir).map_err(|error| failed(key, "make pipes in", dir, &error))?;
    let pipes = open_pipes(dir).map_err(|error| failed(key, "open pipes in", dir, &error))?;
    let (stdin, input) =
        make_input(dir, input_kind).map_err(|error| failed(key, "make the input in", dir, &error))?;
    // Written before the process is spawned, and again after it. If the agent dies in between, the next agent finds the
    // process by its pipes.
    let write = |record: &Record| {
        record
            .write(dir)
            .map_err(|error| failed(key, "write to", dir, &error))
    };
    write(&record)?;

    let [stdout, stderr] = ends;
    let Some(mut command) = command::command(&plan.argv, &plan.env, &working_dir) else {
        return Err(RuntimeError::permanent(key, "has no command"));
    };
    if let Some(stdin) = stdin {
        command.stdin(stdin);
    }
    let spawned = command.stdout(stdout).stderr(stderr).spawn();
    // The command holds this process's writing ends of the pipes.
    drop(command);
    let program = plan.argv.first().map_or("", String::as_str);
    let child = spawned.map_err(|error| command::spawn_failed(key, program, &working_dir, &error))?;
    let group =
        Group::of_child(child).map_err(|error| RuntimeError::transient(key, format!("watch: {error}")))?;
    record.started_at = shared.clock.now();
    let recorded = identify(group.leader())
        .map_err(|error| RuntimeError::transient(key, format!("identify: {error}")))
        .and_then(|process| {
            record.process = Some(process);
            write(&record)
        });
    if let Err(error) = recorded {
        group.kill_blocking();
        return Err(error);
    }
    tracing::debug!(uid = %key.pod, container = %key.container, pid = group.leader().as_raw_pid(), "container started");
    let (pump, reopen, clients) = container::pump(shared, spec.log_path.clone(), log_file, pipes.map(Some));
    let running = Running {
        group,
        pump,
        reopen,
        clients,
        input: Input::new(input_kind, input),
        env: plan.env,
        stop_signal: plan.stop_signal,
    };
    Ok(Process::supervise(shared, dir.to_owned(), record, running))
}

/// Links each mount below the working folder: `/etc/app` is at `etc/app`. A mount within another one gets no link, because
/// that would be made in the volume.
fn link_mounts(spec: &ContainerSpec, work: &Path) -> io::Result<()> {
    let mut mounts: Vec<_> = spec.mounts.iter().collect();
    mounts.sort_by_key(|mount| mount.container_path.components().count());
    for mount in mounts {
        let mut parts = mount
            .container_path
            .components()
            .filter(|part| *part != Component::RootDir)
            .peekable();
        let mut link = work.to_owned();
        while let Some(part @ Component::Normal(_)) = parts.next() {
            link.push(part);
            let is_last = parts.peek().is_none();
            match if is_last {
                symlink(&mount.host_path, &link)
            } else {
                std::fs::create_dir(&link)
            } {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                Err(_) if is_last || link.is_symlink() => break,
                _ => {}
            }
        }
    }
    Ok(())
}

/// The pipes' writing ends, for a child. They are open for reading, too. So a pipe has a reader as long as it has a
/// writer, and the child gets no `SIGPIPE` when the agent ends.
fn make_pipes(dir: &Path) -> io::Result<[File; 2]> {
    let make = |name: &str| {
        let path = dir.join(name);
        mkfifoat(CWD, &path, Mode::RUSR | Mode::WUSR)?;
        OpenOptions::new().read(true).write(true).open(path)
    };
    let [stdout, stderr] = PIPES;
    Ok([make(stdout)?, make(stderr)?])
}

/// The child's end of its standard input, and with [`InputKind::Once`] the other end. The child's end of an input that
/// stays open is open for writing, too. So it has no end, even without a client.
fn make_input(dir: &Path, kind: InputKind) -> io::Result<(Option<File>, Option<Sender>)> {
    if kind == InputKind::None {
        return Ok((None, None));
    }
    let path = dir.join(INPUT);
    mkfifoat(CWD, &path, Mode::RUSR | Mode::WUSR)?;
    let both = OpenOptions::new().read(true).write(true).open(&path)?;
    if kind == InputKind::Open {
        return Ok((Some(both), None));
    }
    let input = pipe::OpenOptions::new().open_sender(&path)?;
    Ok((Some(File::open(&path)?), Some(input)))
}

/// The pipes' reading ends.
pub(super) fn open_pipes(dir: &Path) -> io::Result<[Receiver; 2]> {
    let [stdout, stderr] = pipe_paths(dir);
    let open = |path: PathBuf| pipe::OpenOptions::new().open_receiver(path);
    Ok([open(stdout)?, open(stderr)?])
}

pub(super) fn pipe_paths(dir: &Path) -> [PathBuf; 2] {
    PIPES.map(|name| dir.join(name))
}

/// The identity of a process that has not been reaped.
pub(super) fn identify(pid: Pid) -> io::Result<ProcessId> {
    let stat = Stat::of(pid)?.ok_or_else(|| io::Error::other("the process is not in /proc"))?;
    Ok(ProcessId {
        pid: stat.pid,
        start_time: stat.start_time,
        session: stat.session,
        world: proc_fs::world()?,
    })
}

fn dir_name(key: &ContainerKey) -> Result<String> {
    for (part, what) in [
        (key.pod.as_str(), "pod UID"),
        (key.container.as_str(), "container name"),
    ] {
        if part.is_empty() || part.contains(['/', '\0']) {
            return Err(RuntimeError::permanent(
                key,
                format!("{part:?} cannot be a {what}"),
            ));
        }
    }
    Ok(format!("{}_{}_{}", key.pod, key.container, key.attempt))
}

fn failed(key: &ContainerKey, what: &str, path: &Path, error: &io::Error) -> RuntimeError {
    RuntimeError::transient(key, format!("{what} {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::Mount;
    use kubelet_core::PodUid;

    #[test]
    fn mounts_are_below_the_working_folder() {
        let dir = tempfile::tempdir().unwrap();
        let (work, volume) = (dir.path().join("work"), dir.path().join("volume"));
        for dir in [&work, &volume] {
            std::fs::create_dir(dir).unwrap();
        }
        std::fs::write(volume.join("key"), "value").unwrap();
        let mut spec = ContainerSpec::new(
            ContainerKey {
                pod: PodUid::from("1"),
                container: "main".into(),
                attempt: 0,
            },
            "any",
        );
        spec.mounts = [
            "/etc/app/inner",
            "/etc/app",
            "/data",
            "/data",
            "relative",
            "/up/../../out",
        ]
        .map(|path| Mount::new(&volume, path))
        .into();
        link_mounts(&spec, &work).unwrap();
        for path in ["etc/app/key", "data/key", "relative/key"] {
            assert_eq!(std::fs::read_to_string(work.join(path)).unwrap(), "value");
        }
        // Nothing was made in the volume, or outside of the working folder.
        assert_eq!(std::fs::read_dir(&volume).unwrap().count(), 1);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
    }
}
