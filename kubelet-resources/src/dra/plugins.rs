//! The plugins of DRA drivers: their registration, and the calls to them.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use kubelet_plugins::grpc_go::code_name;
use kubelet_plugins::{Plugin, PluginHandler};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tonic::{Code, Status};

use super::metrics;
use super::plugin::{Connection, Dialer, DraService, DriverPlugin, go_text};
use super::table::{Callee, PluginTable};
use super::v1::{
    Claim, NodePrepareResourcesRequest, NodePrepareResourcesResponse, NodeUnprepareResourcesRequest,
    NodeUnprepareResourcesResponse,
};
use crate::{Error, Result};

/// How long a plugin may take to answer (`defaultClientCallTimeout`).
pub const CALL_TIMEOUT: Duration = Duration::from_secs(45);

/// The registered plugins of DRA drivers. Clones share them. Give it to the
/// [`PluginWatcher`](kubelet_plugins::PluginWatcher) for plugins of type [`DRA_PLUGIN`](kubelet_plugins::DRA_PLUGIN).
///
/// A driver may have several plugins at a time, during a rolling update of it. The latest one that is connected is called. Answers
/// to `plugin.DRAPluginManager`.
#[derive(Clone)]
pub struct DraPlugins {
    pub(super) shared: Arc<Plugins>,
}

pub(super) struct Plugins {
    pub(super) table: Mutex<PluginTable>,
    pub(super) dialer: Arc<dyn Dialer>,
    /// Counts the changes of the table.
    pub(super) changes: watch::Sender<u64>,
}

impl DraPlugins {
    pub(super) fn new(dialer: Arc<dyn Dialer>, wiping_delay: Duration) -> Self {
        Self {
            shared: Arc::new(Plugins {
                table: Mutex::new(PluginTable::new(wiping_delay)),
                dialer,
                changes: watch::Sender::new(0),
            }),
        }
    }
}

#[async_trait]
impl PluginHandler for DraPlugins {
    async fn validate(&self, plugin: &Plugin) -> kubelet_plugins::Result<()> {
        service_of(plugin).map(drop)
    }

    async fn register(&self, plugin: &Plugin) -> kubelet_plugins::Result<()> {
        let service = service_of(plugin)?;
        self.shared
            .change(|table| table.add(&plugin.name, &plugin.endpoint, service, Instant::now()))
            .map_err(|error| kubelet_plugins::Error::refused(error.to_string()))?;
        tracing::info!(
            driver = plugin.name,
            endpoint = %plugin.endpoint.display(),
            service = service.name(),
            "Registered DRA plugin"
        );
        Ok(())
    }

    async fn deregister(&self, plugin: &Plugin) {
        self.shared
            .change(|table| table.remove(&plugin.name, &plugin.endpoint, Instant::now()));
        tracing::info!(driver = plugin.name, endpoint = %plugin.endpoint.display(), "Unregistered DRA plugin");
    }
}

/// The first service of the plugin that is supported here (`validateSupportedServices`).
fn service_of(plugin: &Plugin) -> kubelet_plugins::Result<DraService> {
    let supported = plugin.versions.iter().find_map(|version| {
        DraService::ALL
            .into_iter()
            .find(|service| service.name() == version)
    });
    supported.ok_or_else(|| {
        let why = match plugin.versions.is_empty() {
            true => "empty list of supported gRPC services (aka supported versions)".to_owned(),
            false => format!(
                "none of services supported by the plugin ({}) are supported by the kubelet ({})",
                go_list(plugin.versions.iter().map(String::as_str)),
                go_list(DraService::ALL.into_iter().map(DraService::name))
            ),
        };
        kubelet_plugins::Error::refused(format!(
            "invalid supported gRPC versions of DRA driver plugin {} at endpoint {}: {why}",
            plugin.name,
            plugin.endpoint.display()
        ))
    })
}

/// As Go prints a list with `%q`.
fn go_list<'a>(items: impl Iterator<Item = &'a str>) -> String {
    let items: Vec<String> = items.map(|item| format!("{item:?}")).collect();
    format!("[{}]", items.join(" "))
}

impl Plugins {
    /// Changes the table, and wakes the engine.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut PluginTable) -> T) -> T {
        let result = change(&mut self.table.lock());
        self.changes.send_modify(|count| *count = count.wrapping_add(1));
        result
    }

    /// The plugin of a driver. The error names the driver.
    pub(super) fn plugin(&self, driver: &str) -> Result<Callee> {
        self.table.lock().plugin(driver)
    }

    /// Prepares claims.
    pub(super) async fn prepare(
        &self,
        callee: &Callee,
        claims: Vec<Claim>,
    ) -> Result<NodePrepareResourcesResponse> {
        let request = NodePrepareResourcesRequest { claims };
        let calling = |plugin: Arc<dyn DriverPlugin>| async move { plugin.prepare(request).await };
        self.call(callee, "NodePrepareResources", calling).await
    }

    /// Unprepares claims.
    pub(super) async fn unprepare(
        &self,
        callee: &Callee,
        claims: Vec<Claim>,
    ) -> Result<NodeUnprepareResourcesResponse> {
        let request = NodeUnprepareResourcesRequest { claims };
        let calling = |plugin: Arc<dyn DriverPlugin>| async move { plugin.unprepare(request).await };
        self.call(callee, "NodeUnprepareResources", calling).await
    }

    async fn call<T, F>(
        &self,
        callee: &Callee,
        method: &str,
        calling: impl FnOnce(Arc<dyn DriverPlugin>) -> F,
    ) -> Result<T>
    where
        F: Future<Output = Result<T, Status>>,
    {
        let begun = Instant::now();
        let answer = async {
            match &callee.connection {
                Some(plugin) => calling(Arc::clone(plugin)).await,
                None => {
                    let Connection { plugin, closed } =
                        self.dialer.dial(&callee.endpoint, callee.service).await?;
                    tokio::select! {
                        biased;
                        answer = calling(plugin) => answer,
                        () = closed => Err(Status::unavailable("error reading from server: EOF")),
                    }
                }
            }
        };
        let answer = timeout(CALL_TIMEOUT, answer)
            .await
            .unwrap_or_else(|_| Err(Status::deadline_exceeded("context deadline exceeded")));
        let code = answer.as_ref().err().map_or(Code::Ok, Status::code);
        metrics::observe_call(
            &callee.driver,
            format!("/{}/{method}", callee.service.grpc_name()),
            code_name(code),
            begun.elapsed(),
        );
        answer.map_err(|status| Error::Claims(format!("{method}: {}", go_text(&status))))
    }
}
