//! The engine: lists the folder when it changes, and runs what is due.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::names::Names;
use crate::register::{Handlers, Registered, deregister, register};
use crate::sockets::{self, Found};
use crate::state::{Operation, PluginState, State};
use crate::watch::Watch;
use crate::{Error, PluginHandler, Result};

/// How often the folder is listed although nothing changed in it: events can be lost.
const RELIST_PERIOD: Duration = Duration::from_secs(30);

/// The same where events do not come at all, and after the folder could not be listed. The kubelet's reconciler has
/// this period (`loopSleepDuration`).
const RELIST_PERIOD_WITHOUT_EVENTS: Duration = Duration::from_secs(1);

/// Builds a [`PluginWatcher`].
#[must_use]
pub struct PluginWatcherBuilder {
    folder: PathBuf,
    handlers: Handlers,
    problem: Option<String>,
}

impl PluginWatcherBuilder {
    /// Gives plugins of this type to this handler. A plugin of a type without a handler is refused.
    pub fn handler(mut self, plugin_type: impl Into<String>, handler: Arc<dyn PluginHandler>) -> Self {
        let plugin_type = plugin_type.into();
        if self.handlers.contains_key(&plugin_type) {
            self.problem = Some(format!("two handlers for plugins of the type {plugin_type}"));
        }
        self.handlers.insert(plugin_type, handler);
        self
    }

    /// The watcher.
    ///
    /// # Errors
    ///
    /// [`Error::Misconfigured`] if a type has two handlers, or the folder has no path.
    pub fn build(self) -> Result<PluginWatcher> {
        let problem = match self.folder.as_os_str().is_empty() {
            true => Some("the folder of plugins has no path".to_string()),
            false => self.problem,
        };
        if let Some(message) = problem {
            return Err(Error::Misconfigured { message });
        }
        Ok(PluginWatcher {
            folder: self.folder,
            handlers: Arc::new(self.handlers),
            published: watch::Sender::new(Vec::new()),
        })
    }
}

/// Finds the sockets of plugins in a folder, `plugins_registry` of a kubelet, and registers their plugins (the kubelet's
/// `pluginmanager`).
///
/// A plugin whose registration fails is retried after 500 ms, then after twice the wait of before, up to 122 s. Each
/// plugin has its own task, so one that hangs holds up no other. When its socket is removed, it is deregistered; when a
/// socket is created anew at the same path, it is deregistered and registered at once.
pub struct PluginWatcher {
    folder: PathBuf,
    handlers: Arc<Handlers>,
    published: watch::Sender<Vec<PluginState>>,
}

/// Reads which plugins are registered. Cheap to clone.
#[derive(Clone, Debug)]
pub struct PluginWatcherHandle {
    published: watch::Receiver<Vec<PluginState>>,
}

impl PluginWatcherHandle {
    /// Each socket, in the order of their paths.
    pub fn plugins(&self) -> Vec<PluginState> {
        self.published.borrow().clone()
    }

    /// Waits until the sockets satisfy `condition`, and returns them; `None` if the watcher ended first. Cancel safe.
    pub async fn wait_for(
        &mut self,
        mut condition: impl FnMut(&[PluginState]) -> bool + Send,
    ) -> Option<Vec<PluginState>> {
        let plugins = self.published.wait_for(|plugins| condition(plugins)).await;
        plugins.ok().map(|plugins| plugins.clone())
    }
}

enum Ended {
    Registration {
        socket: PathBuf,
        generation: u64,
        outcome: Result<Registered>,
    },
    Deregistration {
        socket: PathBuf,
    },
}

impl PluginWatcher {
    /// A watcher of this folder. It is created when it does not exist.
    pub fn builder(folder: impl Into<PathBuf>) -> PluginWatcherBuilder {
        PluginWatcherBuilder {
            folder: folder.into(),
            handlers: Handlers::new(),
            problem: None,
        }
    }

    /// A handle for others.
    pub fn handle(&self) -> PluginWatcherHandle {
        PluginWatcherHandle {
            published: self.published.subscribe(),
        }
    }

    /// Registers and deregisters plugins until `shutdown`. A folder that cannot be made or listed is logged and retried
    /// each second.
    ///
    /// After the shutdown no call to a handler runs any more, and plugins are not deregistered: their containers run on.
    ///
    /// # Cancel safety
    ///
    /// May be dropped; calls that are under way end with it.
    pub async fn run(self, shutdown: CancellationToken) {
        let mut watch = Watch::new();
        let mut state = State::default();
        let mut operations = JoinSet::new();
        let names = Names::default();
        let mut metrics = TotalPlugins::default();
        let mut relist_at = Instant::now();
        let mut must_list = true;
        loop {
            if must_list {
                must_list = false;
                relist_at = Instant::now() + self.list(&mut watch, &mut state).await;
            }
            let (due, next) = state.due(Instant::now());
            for operation in due {
                self.start(operation, &mut operations, &names);
            }
            metrics.show(&state);
            self.published.send_if_modified(|published| {
                let list = state.list();
                let differs = *published != list;
                *published = list;
                differs
            });
            let wake_at = next.map_or(relist_at, |next| next.min(relist_at));
            tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                Some(ended) = operations.join_next() => match ended {
                    Ok(Ended::Registration { socket, generation, outcome }) => {
                        state.registered(&socket, generation, outcome, Instant::now());
                    }
                    Ok(Ended::Deregistration { socket }) => state.deregistered(&socket),
                    Err(error) => tracing::error!(%error, "a handler of plugins panicked"),
                },
                () = watch.changed() => must_list = true,
                () = sleep_until(wake_at) => must_list = Instant::now() >= relist_at,
            }
        }
        operations.shutdown().await;
    }

    /// Returns after which time to list again.
    async fn list(&self, watch: &mut Watch, state: &mut State) -> Duration {
        let mut removed = watch.take_removed();
        let mut renew = removed.clone();
        let mut listed = self.list_once().await;
        let mut has_events = false;
        // What came into a new folder before its watch is found by listing again.
        while let Ok(found) = &listed {
            let watched = watch.folders(&found.folders, &std::mem::take(&mut renew));
            has_events = watched.all;
            if !watched.new {
                break;
            }
            listed = self.list_once().await;
        }
        match listed {
            Ok(mut found) => {
                found.sockets.extend(state.present_below(&found.unread));
                // A path in this set was removed before the last listing, or will be listed again for its event.
                removed.retain(|path| found.sockets.contains_key(path));
                state.found(&found.sockets, &removed);
            }
            Err(error) => {
                watch.forget(&self.folder);
                tracing::warn!(%error, "cannot list the folder of plugins");
                if is_gone(&error) {
                    state.found(&Found::default().sockets, &BTreeSet::new());
                }
                return RELIST_PERIOD_WITHOUT_EVENTS;
            }
        }
        match has_events {
            true => RELIST_PERIOD,
            false => RELIST_PERIOD_WITHOUT_EVENTS,
        }
    }

    async fn list_once(&self) -> Result<Found> {
        let folder = self.folder.clone();
        let listed = tokio::task::spawn_blocking(move || sockets::list(&folder)).await;
        listed
            .unwrap_or_else(|error| Err(std::io::Error::other(error)))
            .map_err(|source| Error::Folder {
                path: self.folder.clone(),
                source,
            })
    }

    fn start(&self, operation: Operation, operations: &mut JoinSet<Ended>, names: &Names) {
        let names = names.clone();
        match operation {
            Operation::Register { socket, generation } => {
                let handlers = self.handlers.clone();
                operations.spawn(async move {
                    let outcome = register(socket.clone(), handlers, names).await;
                    Ended::Registration {
                        socket,
                        generation,
                        outcome,
                    }
                });
            }
            Operation::Deregister { socket, registered } => {
                operations.spawn(async move {
                    deregister(registered, names).await;
                    Ended::Deregistration { socket }
                });
            }
        }
    }
}

/// Nothing is there any more. Any other error says nothing about the sockets.
fn is_gone(error: &Error) -> bool {
    matches!(error, Error::Folder { source, .. } if source.kind() == std::io::ErrorKind::NotFound)
}

/// `plugin_manager_total_plugins`, of the sockets that are there and of the plugins in use.
#[derive(Default)]
struct TotalPlugins {
    shown: BTreeSet<(PathBuf, &'static str)>,
}

impl TotalPlugins {
    fn show(&mut self, state: &State) {
        let mut now = BTreeSet::new();
        for plugin in state.list() {
            if plugin.is_present {
                now.insert((plugin.socket.clone(), "desired_state_of_world"));
            }
            if plugin.registered.is_some() {
                now.insert((plugin.socket, "actual_state_of_world"));
            }
        }
        for (socket, state) in self.shown.symmetric_difference(&now) {
            let value = match now.contains(&(socket.clone(), *state)) {
                true => 1.0,
                false => 0.0,
            };
            metrics::gauge!(
                "plugin_manager_total_plugins",
                "socket_path" => socket.display().to_string(),
                "state" => *state,
            )
            .set(value);
        }
        self.shown = now;
    }
}
