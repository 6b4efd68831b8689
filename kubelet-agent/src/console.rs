//! The room of the console: pages to look at the node and its pods.

use std::net::SocketAddr;
use std::sync::Arc;

use kubelet_core::{Clock, EventRecorder, LogEvents, NodeEventRecorder};
use kubelet_server::console::{Console, Durations, RecentEvents};
use kubelet_server::{NodeApi, Server};

use crate::builder::Parts;
use crate::context::{Built, Context};
use crate::error::Problems;
use crate::server::{self, ApiParts};
use crate::tasks::Tasks;
use crate::{Error, Result};

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
pub(crate) struct ConsoleParts {
    pub(crate) at: Option<ConsoleAt>,
    pub(crate) durations: Option<Arc<dyn Durations>>,
}

pub(crate) fn check(parts: &Parts, problems: &mut Problems) {
    match parts.console.at {
        Some(ConsoleAt::Loopback(address)) if !address.ip().is_loopback() => {
            problems.add(format!("console {address}: must be an address of the loopback"));
        }
        Some(ConsoleAt::NodeApi) if !parts.serves_node_api() => {
            problems.add("the console is on the node's API, which needs enableServer");
        }
        _ => {}
    }
}

type Recorders = Option<(Arc<dyn EventRecorder>, Arc<dyn NodeEventRecorder>)>;

impl ConsoleParts {
    /// Keeps the newest of the events that go to the recorders.
    pub(crate) fn events(&self, recorders: &mut Recorders, clock: Clock) -> Option<RecentEvents> {
        self.at?;
        let (pods, node) = recorders
            .take()
            .unwrap_or_else(|| (Arc::new(LogEvents), Arc::new(LogEvents)));
        let recent = RecentEvents::new(clock).pods_to(pods).node_to(node);
        *recorders = Some((Arc::new(recent.clone()), Arc::new(recent.clone())));
        Some(recent)
    }

    /// Adds the console to the node's API, or to the tasks with a port of its own, whose address is returned.
    pub(crate) fn start(
        self,
        context: &Context,
        built: &Built,
        recent: Option<RecentEvents>,
        api: &mut ApiParts,
        tasks: &mut Tasks,
    ) -> Result<Option<SocketAddr>> {
        let (Some(at), Some(recent)) = (self.at, recent) else {
            return Ok(None);
        };
        let kubelet = Arc::new(built.kubelet.clone());
        let mut console = Console::builder(&*context.node_name, kubelet.clone())
            .explain(kubelet.clone())
            .events(recent)
            .clock(context.clock);
        if let Some(logs) = &built.runtime.logs {
            console = console.logs(logs.clone());
        }
        if let Some(durations) = self.durations {
            console = console.durations(durations);
        }
        if matches!(at, ConsoleAt::Loopback(_)) {
            console = console.loopback_names_only();
        }
        let console = console.build();
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
