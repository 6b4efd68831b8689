//! The room of the console: pages to look at the node and its pods.

use std::net::SocketAddr;
use std::sync::Arc;

use kubelet_core::runtime::ContainerLogs;
use kubelet_core::{Clock, KubeletHandle};
use kubelet_server::console::{Console, Durations, RecentEvents};
use kubelet_server::{NodeApi, Server};

use super::events::{EventLog, Recorders};
use super::server;
use crate::context::{Context, with};
use crate::error::{Error, Result};
use crate::problem::Problems;
use crate::tasks::Tasks;

/// Where the console is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConsoleAt {
    /// `/console` of the node's API, behind its authentication. Clients need a permission on `nodes/proxy`.
    NodeApi,
    /// A port of the loopback. Every user of this machine can read it.
    Loopback(SocketAddr),
}

/// What the builder gathers for the console.
#[derive(Default)]
pub(crate) struct Parts {
    pub(crate) at: Option<ConsoleAt>,
    pub(crate) durations: Option<Arc<dyn Durations>>,
}

/// `serves_node_api` is whether the node's API is served, on a port or in the process.
pub(crate) fn check(parts: &Parts, serves_node_api: bool, problems: &mut Problems) {
    match parts.at {
        Some(ConsoleAt::Loopback(address)) if !address.ip().is_loopback() => {
            problems.add(
                "console",
                format!("console {address}: must be an address of the loopback"),
            );
        }
        Some(ConsoleAt::NodeApi) if !serves_node_api => {
            problems.add(
                "console",
                "the console is on the node's API, which needs enableServer",
            );
        }
        _ => {}
    }
}

/// The console, if there is one.
pub(crate) struct ConsoleRoom(Option<Open>);

struct Open {
    at: ConsoleAt,
    durations: Option<Arc<dyn Durations>>,
    events: RecentEvents,
}

impl ConsoleRoom {
    /// Keeps the newest of the events that go to the recorders.
    pub(crate) fn open(parts: Parts, recorders: &mut Recorders, clock: Clock) -> Self {
        let Some(at) = parts.at else {
            return Self(None);
        };
        let (pods, node) = recorders.take().unwrap_or_else(|| {
            let log = Arc::new(EventLog::default());
            (log.clone(), log)
        });
        let events = RecentEvents::new(clock).pods_to(pods).node_to(node);
        *recorders = Some((Arc::new(events.clone()), Arc::new(events.clone())));
        let durations = parts.durations;
        Self(Some(Open {
            at,
            durations,
            events,
        }))
    }

    /// Adds the console to the node's API, or to the tasks with a port of its own, whose address is returned.
    pub(crate) fn start(
        self,
        context: &Context,
        kubelet: &KubeletHandle,
        logs: Option<Arc<dyn ContainerLogs>>,
        api: &mut server::Parts,
        tasks: &mut Tasks,
    ) -> Result<Option<SocketAddr>> {
        let Some(Open {
            at,
            durations,
            events,
        }) = self.0
        else {
            return Ok(None);
        };
        let kubelet = Arc::new(kubelet.clone());
        let console = Console::builder(&*context.node_name, kubelet.clone())
            .explain(kubelet.clone())
            .events(events)
            .clock(context.clock);
        let console = with(console, logs, |console, logs| console.logs(logs));
        let console = with(console, durations, |console, durations| {
            console.durations(durations)
        });
        let console = match at {
            ConsoleAt::NodeApi => console.build(),
            ConsoleAt::Loopback(_) => console.loopback_names_only().build(),
        };
        let mut bound = None;
        match at {
            ConsoleAt::NodeApi => {
                let console = console.clone();
                api.changes
                    .push(Box::new(|api| api.route(Console::PATH, console)));
            }
            ConsoleAt::Loopback(address) => {
                let (authentication, authorization) = server::of_everybody(context);
                let api = NodeApi::builder(kubelet, authentication, authorization);
                let server = Server::bind_insecure(address, api.route("/", console.clone()).build())
                    .map_err(Error::from)?;
                bound = Some(server.local_addr());
                tasks.add("console server", |shutdown| server.run(shutdown));
            }
        }
        tasks.add("console", |shutdown| async move {
            console.run(shutdown).await;
        });
        Ok(bound)
    }
}
