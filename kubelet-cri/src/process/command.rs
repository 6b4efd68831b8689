//! Turns a container's spec into the command to run, or into the reason to refuse it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{fmt, io};

use std::os::unix::process::CommandExt;

use rustix::process::Signal;

use super::images::ImageTable;
use crate::verbs::{ContainerSpec, Result, RuntimeError};

/// The annotation with which the kubelet gives the path of the container's termination message.
const TERMINATION_MESSAGE_PATH: &str = "io.kubernetes.container.terminationMessagePath";
/// The variable with that file's path on the host, because the file cannot be mounted.
const TERMINATION_LOG_PATH: &str = "TERMINATION_LOG_PATH";

/// Variables in the order in which they are set.
pub(super) type Environment = Vec<(OsString, OsString)>;

/// The command of a container.
pub(super) struct Plan {
    pub(super) argv: Vec<String>,
    pub(super) env: Environment,
    /// `None`: a folder of the container's own.
    pub(super) working_dir: Option<PathBuf>,
    pub(super) stop_signal: Signal,
}

impl Plan {
    /// Refuses a container that needs what a process does not have.
    pub(super) fn new(spec: &ContainerSpec, images: &ImageTable) -> Result<Self> {
        let refuse = |message: String| RuntimeError::permanent(&spec.key, message);
        if spec.tty {
            let message = "needs a terminal (tty), which the process runtime has only for commands";
            return Err(refuse(message.to_owned()));
        }
        let own_user = i64::from(rustix::process::geteuid().as_raw());
        if let Some(user) = spec.run_as_user.filter(|user| *user != own_user) {
            return Err(refuse(format!(
                "must run as user {user}; the process runtime runs all containers as its own user, {own_user}"
            )));
        }
        let own_group = i64::from(rustix::process::getegid().as_raw());
        if let Some(group) = spec.run_as_group.filter(|group| *group != own_group) {
            return Err(refuse(format!(
                "must run as group {group}; the process runtime runs all containers as its own group, {own_group}"
            )));
        }
        let stop_signal = match spec.stop_signal.as_deref() {
            None => Signal::TERM,
            Some(name) => signal_named(name).ok_or_else(|| {
                refuse(format!(
                    "the process runtime cannot send the stop signal {name:?}"
                ))
            })?,
        };
        let argv = argv(spec, images);
        if argv.is_empty() {
            return Err(refuse(format!(
                "has no command, and its image {:?} is not in the image table of the process runtime",
                spec.image
            )));
        }
        for mount in unmet_mounts(spec) {
            tracing::warn!(uid = %spec.key.pod, container = %spec.key.container, path = %mount.display(),
                "the process runtime makes no mounts: the container sees what is at this path on the host; the volume is below \
                 its working folder");
        }
        Ok(Self {
            argv,
            env: environment(spec),
            working_dir: spec.working_dir.clone(),
            stop_signal,
        })
    }
}

/// Combines the pod's `command` and `args` with those of the image: a `command` replaces both.
fn argv(spec: &ContainerSpec, images: &ImageTable) -> Vec<String> {
    let image = images.command(&spec.image).unwrap_or_default();
    let (command, args) = match (spec.command.is_empty(), spec.args.is_empty()) {
        (true, true) => (image, &[][..]),
        // The table does not separate entry point and arguments: its first word counts as the entry point.
        (true, false) => (image.get(..1).unwrap_or_default(), &spec.args[..]),
        (false, _) => (&spec.command[..], &spec.args[..]),
    };
    if command.is_empty() {
        return Vec::new();
    }
    command.iter().chain(args).cloned().collect()
}

fn environment(spec: &ContainerSpec) -> Environment {
    let mut env = Environment::new();
    if let Some(path) = std::env::var_os("PATH") {
        env.push(("PATH".into(), path));
    }
    if !spec.pod.hostname.is_empty() {
        env.push(("HOSTNAME".into(), spec.pod.hostname.clone().into()));
    }
    if let Some(mount) = spec
        .mounts
        .iter()
        .find(|mount| is_termination_log(spec, &mount.container_path))
    {
        env.push((TERMINATION_LOG_PATH.into(), mount.host_path.clone().into()));
    }
    let own = spec
        .env
        .iter()
        .map(|env| (env.name.clone().into(), OsString::from_vec(env.value.clone())));
    env.extend(own);
    env
}

fn is_termination_log(spec: &ContainerSpec, path: &Path) -> bool {
    let annotated = spec.annotations.get(TERMINATION_MESSAGE_PATH);
    annotated.is_some_and(|annotated| Path::new(annotated) == path)
}

/// The mounts that the container would miss: all except the kubelet's own, and those with the same path on the host.
fn unmet_mounts(spec: &ContainerSpec) -> impl Iterator<Item = &Path> {
    let met = |path: &Path| path == Path::new("/etc/hosts") || is_termination_log(spec, path);
    let mounts = spec.mounts.iter();
    mounts
        .filter(move |mount| mount.host_path != mount.container_path && !met(&mount.container_path))
        .map(|mount| mount.container_path.as_path())
}

/// A command that inherits nothing from the agent, in a new process group.
pub(super) fn command(argv: &[String], env: &Environment, dir: &Path) -> Option<Command> {
    let mut command = bare(argv, env, dir)?;
    command.stdin(Stdio::null()).process_group(0);
    Some(command)
}

/// The same for a command that gets a terminal: it becomes the leader of a session.
pub(super) fn in_new_session(argv: &[String], env: &Environment, dir: &Path) -> Option<Command> {
    let mut command = bare(argv, env, dir)?;
    if env.iter().all(|(name, _)| name != "TERM") {
        // As in containerd.
        command.env("TERM", "xterm");
    }
    Some(command)
}

fn bare(argv: &[String], env: &Environment, dir: &Path) -> Option<Command> {
    let (program, args) = argv.split_first()?;
    let mut command = Command::new(program);
    command
        .args(args)
        .env_clear()
        .envs(env.iter().map(|(name, value)| (name, value)))
        .current_dir(dir);
    Some(command)
}

/// The error of a command that could not be spawned.
pub(super) fn spawn_failed(
    about: impl fmt::Display,
    program: &str,
    dir: &Path,
    error: &io::Error,
) -> RuntimeError {
    use io::ErrorKind::{ArgumentListTooLong, InvalidInput, NotFound, PermissionDenied};
    let lasting = matches!(
        error.kind(),
        ArgumentListTooLong | InvalidInput | NotFound | PermissionDenied
    ) || error.raw_os_error() == Some(rustix::io::Errno::NOEXEC.raw_os_error());
    if !lasting {
        return RuntimeError::transient(about, format!("exec {program:?}: {error}"));
    }
    let message = if !dir.is_dir() {
        format!("working folder {:?} does not exist", dir.display())
    } else if error.kind() == NotFound && !program.contains('/') {
        format!("exec {program:?}: executable file not found in $PATH")
    } else {
        format!("exec {program:?}: {error}")
    };
    RuntimeError::permanent(about, message)
}

/// A signal by its name in CRI. Real-time signals cannot be sent.
pub(super) fn signal_named(name: &str) -> Option<Signal> {
    let table: BTreeMap<&str, Signal> = [
        ("SIGABRT", Signal::ABORT),
        ("SIGALRM", Signal::ALARM),
        ("SIGBUS", Signal::BUS),
        ("SIGCHLD", Signal::CHILD),
        ("SIGCLD", Signal::CHILD),
        ("SIGCONT", Signal::CONT),
        ("SIGFPE", Signal::FPE),
        ("SIGHUP", Signal::HUP),
        ("SIGILL", Signal::ILL),
        ("SIGINT", Signal::INT),
        ("SIGIO", Signal::IO),
        ("SIGIOT", Signal::ABORT),
        ("SIGKILL", Signal::KILL),
        ("SIGPIPE", Signal::PIPE),
        ("SIGPOLL", Signal::IO),
        ("SIGPROF", Signal::PROF),
        ("SIGPWR", Signal::POWER),
        ("SIGQUIT", Signal::QUIT),
        ("SIGSEGV", Signal::SEGV),
        ("SIGSTKFLT", Signal::STKFLT),
        ("SIGSTOP", Signal::STOP),
        ("SIGSYS", Signal::SYS),
        ("SIGTERM", Signal::TERM),
        ("SIGTRAP", Signal::TRAP),
        ("SIGTSTP", Signal::TSTP),
        ("SIGTTIN", Signal::TTIN),
        ("SIGTTOU", Signal::TTOU),
        ("SIGURG", Signal::URG),
        ("SIGUSR1", Signal::USR1),
        ("SIGUSR2", Signal::USR2),
        ("SIGVTALRM", Signal::VTALARM),
        ("SIGWINCH", Signal::WINCH),
        ("SIGXCPU", Signal::XCPU),
        ("SIGXFSZ", Signal::XFSZ),
    ]
    .into();
    table.get(name).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::{ContainerKey, EnvVar, ErrorClass, Mount};

    fn spec() -> ContainerSpec {
        ContainerSpec::new(ContainerKey::new("u", "main", 0), "web")
    }

    #[test]
    fn command_and_args_go_with_the_image() {
        let words = |text: &str| text.split_whitespace().map(String::from).collect::<Vec<_>>();
        let mut images = ImageTable::default();
        images.insert("web".into(), words("httpd -f"));
        for (image, command, args, expected) in [
            ("web", "", "", "httpd -f"),
            ("web", "", "-v", "httpd -v"),
            ("web", "sh", "", "sh"),
            ("web", "sh -c", "true", "sh -c true"),
            ("other", "sh", "-c true", "sh -c true"),
            ("other", "", "-v", ""),
            ("other", "", "", ""),
        ] {
            let mut spec = spec();
            (spec.image, spec.command, spec.args) = (image.into(), words(command), words(args));
            assert_eq!(argv(&spec, &images), words(expected), "{image} {command} {args}");
        }
    }

    #[test]
    fn what_a_process_cannot_be_is_refused() {
        type Change = fn(&mut ContainerSpec);
        for (change, expected) in [
            ((|spec| spec.tty = true) as Change, "terminal"),
            (
                |spec| spec.run_as_user = Some(i64::from(u32::MAX) - 1),
                "run as user",
            ),
            (
                |spec| spec.run_as_group = Some(i64::from(u32::MAX) - 1),
                "run as group",
            ),
            (|spec| spec.stop_signal = Some("SIGRTMIN".into()), "stop signal"),
            (|spec| spec.command.clear(), "has no command"),
        ] {
            let mut spec = spec();
            spec.command = vec!["true".into()];
            assert!(Plan::new(&spec, &ImageTable::default()).is_ok());
            change(&mut spec);
            let error = Plan::new(&spec, &ImageTable::default()).err().unwrap();
            assert_eq!(error.class, ErrorClass::Permanent);
            assert!(error.message.contains(expected), "{error}");
            assert!(error.about.contains("\"main\""), "{error}");
        }
    }

    #[test]
    fn the_environment_is_the_pods_own() {
        let mut spec = spec();
        spec.pod.hostname = "web-0".into();
        spec.annotations
            .insert(TERMINATION_MESSAGE_PATH.into(), "/dev/termination-log".into());
        spec.mounts = vec![
            Mount::new("/pods/u/etc-hosts", "/etc/hosts"),
            Mount::new("/pods/u/log", "/dev/termination-log"),
            Mount::new("/srv", "/srv"),
            Mount::new("/pods/u/volume", "/data"),
        ];
        spec.env.push(EnvVar {
            name: "HOSTNAME".into(),
            value: b"mine".to_vec(),
        });
        let env: BTreeMap<_, _> = environment(&spec).into_iter().collect();
        let names: Vec<_> = env.keys().filter_map(|name| name.to_str()).collect();
        assert_eq!(names, ["HOSTNAME", "PATH", "TERMINATION_LOG_PATH"]);
        assert_eq!(env[&OsString::from("HOSTNAME")], "mine");
        assert_eq!(env[&OsString::from("TERMINATION_LOG_PATH")], "/pods/u/log");
        assert_eq!(unmet_mounts(&spec).collect::<Vec<_>>(), [Path::new("/data")]);
    }
}
