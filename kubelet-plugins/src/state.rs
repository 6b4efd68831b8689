//! What is known of each socket, and what to do next: no I/O.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::Instant;

use crate::register::Registered;
use crate::sockets::Identity;

/// The wait after the first failure. The kubelet's `exponentialbackoff.initialDurationBeforeRetry`.
const FIRST_WAIT: Duration = Duration::from_millis(500);

/// The longest wait. The kubelet's `exponentialbackoff.maxDurationBeforeRetry`.
const LONGEST_WAIT: Duration = Duration::from_secs(2 * 60 + 2);

/// All sockets that are there or that a registered plugin had.
#[derive(Default)]
pub(crate) struct State {
    sockets: BTreeMap<PathBuf, Socket>,
    generations: u64,
}

#[derive(Default)]
struct Socket {
    /// The socket as it is now; `None` if it is gone. The number differs for each socket that was at this path.
    present: Option<(Identity, u64)>,
    /// The plugin in use, and the number of the socket that it registered on.
    registered: Option<(Registered, u64)>,
    is_busy: bool,
    failures: u32,
    not_before: Option<Instant>,
    last_error: Option<String>,
}

/// An operation on one socket. Of each socket at most one is under way.
pub(crate) enum Operation {
    Register { socket: PathBuf, generation: u64 },
    Deregister { socket: PathBuf, registered: Registered },
}

/// A socket, for the handle.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PluginState {
    /// The socket on which the plugin registers.
    pub socket: PathBuf,
    /// The plugin that is in use.
    pub registered: Option<crate::Plugin>,
    /// The socket exists.
    pub is_present: bool,
    /// Why the last try to register failed, if the plugin waits for another one.
    pub last_error: Option<String>,
}

impl State {
    /// Takes in a listing of the folder. A socket of which `removed` has the path is another one than before.
    pub(crate) fn found(&mut self, sockets: &BTreeMap<PathBuf, Identity>, removed: &BTreeSet<PathBuf>) {
        for (path, known) in &mut self.sockets {
            if !sockets.contains_key(path) && known.present.take().is_some() {
                tracing::info!(socket = %path.display(), "the socket of a plugin is gone");
            }
        }
        for (path, identity) in sockets {
            let known = self.sockets.entry(path.clone()).or_default();
            let is_same = known.present.is_some_and(|(before, _)| before == *identity);
            if is_same && !removed.contains(path) {
                continue;
            }
            self.generations += 1;
            known.present = Some((*identity, self.generations));
            // A new socket is another plugin: what the old one did wrong says nothing about it.
            known.failures = 0;
            known.not_before = None;
            known.last_error = None;
            tracing::info!(socket = %path.display(), "found the socket of a plugin");
        }
        self.forget_gone();
    }

    /// The sockets that were below these folders when they were last listed.
    pub(crate) fn present_below(&self, folders: &[PathBuf]) -> BTreeMap<PathBuf, Identity> {
        let is_below = |path: &Path| folders.iter().any(|folder| path.starts_with(folder));
        let sockets = self.sockets.iter().filter(|(path, _)| is_below(path));
        sockets
            .filter_map(|(path, socket)| Some((path.clone(), socket.present?.0)))
            .collect()
    }

    /// What to do now, and when to ask again although nothing changed.
    pub(crate) fn due(&mut self, now: Instant) -> (Vec<Operation>, Option<Instant>) {
        let mut due = Vec::new();
        let mut next: Option<Instant> = None;
        for (path, socket) in &mut self.sockets {
            if socket.is_busy {
                continue;
            }
            let present = socket.present.map(|(_, generation)| generation);
            let of = socket.registered.as_ref().map(|(_, generation)| *generation);
            if of.is_some() && of == present {
                continue;
            }
            // The old plugin goes before the new one comes.
            if let Some((registered, _)) = socket.registered.take() {
                socket.is_busy = true;
                due.push(Operation::Deregister {
                    socket: path.clone(),
                    registered,
                });
            } else if let Some(generation) = present {
                match socket.not_before.filter(|at| *at > now) {
                    Some(at) => next = Some(next.map_or(at, |next| next.min(at))),
                    None => {
                        socket.is_busy = true;
                        due.push(Operation::Register {
                            socket: path.clone(),
                            generation,
                        });
                    }
                }
            }
        }
        (due, next)
    }

    /// A registration ended.
    pub(crate) fn registered(
        &mut self,
        path: &Path,
        generation: u64,
        outcome: Result<Registered, crate::Error>,
        now: Instant,
    ) {
        let Some(socket) = self.sockets.get_mut(path) else {
            return;
        };
        socket.is_busy = false;
        match outcome {
            Ok(registered) => {
                socket.registered = Some((registered, generation));
                socket.failures = 0;
                socket.not_before = None;
                socket.last_error = None;
            }
            // A newer socket is tried at once.
            Err(_) if socket.present.is_none_or(|(_, present)| present != generation) => {}
            Err(error) => {
                let doublings = socket.failures.min(16);
                let wait = FIRST_WAIT.saturating_mul(1 << doublings).min(LONGEST_WAIT);
                tracing::warn!(socket = %path.display(), %error, ?wait, "a plugin did not register, retrying");
                socket.failures += 1;
                socket.not_before = Some(now + wait);
                socket.last_error = Some(error.to_string());
            }
        }
        self.forget_gone();
    }

    /// A deregistration ended.
    pub(crate) fn deregistered(&mut self, path: &Path) {
        if let Some(socket) = self.sockets.get_mut(path) {
            socket.is_busy = false;
        }
        self.forget_gone();
    }

    /// Each socket, by path.
    pub(crate) fn list(&self) -> Vec<PluginState> {
        let list = self.sockets.iter().map(|(path, socket)| PluginState {
            socket: path.clone(),
            registered: socket
                .registered
                .as_ref()
                .map(|(registered, _)| registered.plugin.clone()),
            is_present: socket.present.is_some(),
            last_error: socket.last_error.clone(),
        });
        list.collect()
    }

    fn forget_gone(&mut self) {
        self.sockets
            .retain(|_, socket| socket.present.is_some() || socket.registered.is_some() || socket.is_busy);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sockets() -> BTreeMap<PathBuf, Identity> {
        let dir = tempfile::tempdir().unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(dir.path().join("a.sock")).unwrap();
        crate::sockets::list(dir.path()).unwrap().sockets
    }

    #[test]
    fn waits_double_from_half_a_second_to_two_minutes() {
        let mut state = State::default();
        let sockets = sockets();
        state.found(&sockets, &BTreeSet::new());
        let mut now = Instant::now();
        let mut waits = Vec::new();
        for _ in 0..11 {
            let (mut due, _) = state.due(now);
            let Some(Operation::Register { socket, generation }) = due.pop() else {
                panic!("nothing is due");
            };
            assert!(state.due(now).0.is_empty(), "one operation at a time");
            state.registered(&socket, generation, Err(crate::Error::refused("no")), now);
            let (due, next) = state.due(now);
            assert!(due.is_empty());
            waits.push((next.unwrap() - now).as_millis());
            now = next.unwrap();
        }
        assert_eq!(
            waits,
            [
                500, 1000, 2000, 4000, 8000, 16000, 32000, 64000, 122_000, 122_000, 122_000
            ]
        );
    }

    #[test]
    fn sockets_stay_while_their_folder_cannot_be_listed() {
        let mut state = State::default();
        let sockets = sockets();
        let folder = sockets.keys().next().unwrap().parent().unwrap().to_owned();
        state.found(&sockets, &BTreeSet::new());
        assert_eq!(state.present_below(&[folder]), sockets);
        assert!(state.present_below(&[PathBuf::from("/elsewhere")]).is_empty());
        assert!(state.present_below(&[]).is_empty());
    }

    #[test]
    fn a_new_socket_is_tried_at_once() {
        let mut state = State::default();
        let sockets = sockets();
        let path = sockets.keys().next().unwrap().clone();
        state.found(&sockets, &BTreeSet::new());
        let now = Instant::now();
        let (due, _) = state.due(now);
        assert_eq!(due.len(), 1);
        // It is replaced while the first one still registers.
        state.found(&sockets, &BTreeSet::from([path.clone()]));
        state.registered(&path, 1, Err(crate::Error::refused("it died")), now);
        assert!(matches!(
            state.due(now).0[..],
            [Operation::Register { generation: 2, .. }]
        ));
    }
}
