//! Shutdowns as systemd's logind reports them over D-Bus (`pkg/kubelet/nodeshutdown/systemd`).

use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use zbus::message::Type;
use zbus::proxy::CacheProperties;
use zbus::{Connection, MatchRule, MessageStream, OwnedFd, Proxy};

use super::source::{Inhibitor, ShutdownEvent, ShutdownSource};
use crate::{Error, Result};

/// `logindService`, `logindObject`, `logindInterface`
const LOGIN: [&str; 3] = [
    "org.freedesktop.login1",
    "/org/freedesktop/login1",
    "org.freedesktop.login1.Manager",
];
/// The service manager, which sends signals to logind.
const SYSTEMD: [&str; 3] = [
    "org.freedesktop.systemd1",
    "/org/freedesktop/systemd1",
    "org.freedesktop.systemd1.Manager",
];
const SIGHUP: i32 = 1;
/// `logindConfigDirectory`
const CONFIG_FOLDER: &str = "/etc/systemd/logind.conf.d";
/// `kubeletLogindConf`
const CONFIG_FILE: &str = "99-kubelet.conf";

/// Systemd's logind. It waits for the lock of the agent before it shuts the host down, for at most `InhibitDelayMaxSec`; a
/// drop-in file raises that limit if pods may take longer.
pub struct Logind {
    address: Option<String>,
    config_folder: PathBuf,
    connected: Option<Connected>,
    /// Logind was asked to read the drop-in file that is there now.
    is_reloaded: bool,
}

struct Connected {
    connection: Connection,
    login: Proxy<'static>,
    shutdowns: MessageStream,
}

impl Logind {
    /// That of this host.
    pub fn new() -> Self {
        Self {
            address: None,
            config_folder: CONFIG_FOLDER.into(),
            connected: None,
            is_reloaded: false,
        }
    }

    /// On another bus, e.g. `unix:path=/run/dbus/system_bus_socket`, with another folder for the drop-in file.
    pub fn at(address: impl Into<String>, config_folder: impl Into<PathBuf>) -> Self {
        Self {
            address: Some(address.into()),
            config_folder: config_folder.into(),
            connected: None,
            is_reloaded: false,
        }
    }

    fn login(&self) -> Result<&Connected> {
        self.connected.as_ref().ok_or_else(|| Error::Shutdown {
            problem: "not connected to logind".to_owned(),
        })
    }

    async fn open(&self) -> zbus::Result<Connected> {
        let connection = match &self.address {
            None => Connection::system().await?,
            Some(address) => {
                zbus::connection::Builder::address(address.as_str())
                    .build()
                    .await?
            }
        };
        let [service, object, interface] = LOGIN;
        // Logind does not say when the delay has changed.
        let login: Proxy<'static> = zbus::proxy::Builder::new(&connection)
            .destination(service)
            .path(object)
            .interface(interface)
            .cache_properties(CacheProperties::No)
            .build()
            .await?;
        // From any sender that the bus lets through, as in the kubelet. Signals of the proxy come from the owner of logind's name only.
        let signal = MatchRule::builder()
            .msg_type(Type::Signal)
            .path(object)
            .interface(interface)
            .member("PrepareForShutdown")
            .build()?;
        let shutdowns = MessageStream::for_match_rule(signal, &connection, None).await?;
        Ok(Connected {
            connection,
            login,
            shutdowns,
        })
    }

    /// Writes the drop-in file if it differs. Returns whether it did. Its text is the kubelet's.
    fn write_config(&self, delay: Duration) -> io::Result<bool> {
        let file = self.config_folder.join(CONFIG_FILE);
        let text = format!(
            "# Kubelet logind override\n[Login]\nInhibitDelayMaxSec={:.0}\n",
            delay.as_secs_f64()
        );
        if fs::read_to_string(&file).is_ok_and(|present| present == text) {
            return Ok(false);
        }
        fs::create_dir_all(&self.config_folder)?;
        fs::write(file, text)?;
        Ok(true)
    }
}

impl Default for Logind {
    fn default() -> Self {
        Self::new()
    }
}

/// The call that failed.
fn failed(what: &'static str) -> impl Fn(zbus::Error) -> Error {
    move |error| Error::Shutdown {
        problem: format!("{what}: {error}"),
    }
}

#[async_trait]
impl ShutdownSource for Logind {
    async fn connect(&mut self) -> Result<()> {
        self.connected = None;
        let connected = self.open().await.map_err(failed("cannot connect to logind"))?;
        self.connected = Some(connected);
        Ok(())
    }

    async fn current_inhibit_delay(&mut self) -> Result<Duration> {
        let login = &self.login()?.login;
        let delay = login.get_property::<u64>("InhibitDelayMaxUSec").await;
        let delay = delay.map_err(failed("failed reading InhibitDelayMaxUSec property from logind"))?;
        Ok(Duration::from_micros(delay))
    }

    async fn override_inhibit_delay(&mut self, delay: Duration) -> Result<()> {
        let is_changed = self.write_config(delay).map_err(|source| Error::File {
            what: "write",
            file: self.config_folder.join(CONFIG_FILE),
            source,
        })?;
        self.is_reloaded &= !is_changed;
        if self.is_reloaded {
            return Ok(());
        }
        let connection = &self.login()?.connection;
        let reload = async {
            let [service, object, interface] = SYSTEMD;
            let systemd = Proxy::new(connection, service, object, interface).await?;
            systemd
                .call::<_, _, ()>("KillUnit", &("systemd-logind.service", "all", SIGHUP))
                .await
        };
        reload.await.map_err(failed("unable to reload logind conf"))?;
        self.is_reloaded = true;
        Ok(())
    }

    async fn inhibit_shutdown(&mut self) -> Result<Box<dyn Inhibitor>> {
        let login = &self.login()?.login;
        let why = "Kubelet needs time to handle node shutdown";
        let lock = login
            .call::<_, _, OwnedFd>("Inhibit", &("shutdown", "kubelet", why, "delay"))
            .await;
        let lock = lock.map_err(failed("failed creating systemd inhibitor"))?;
        Ok(Box::new(std::os::fd::OwnedFd::from(lock)))
    }

    async fn next_event(&mut self) -> Option<ShutdownEvent> {
        let shutdowns = &mut self.connected.as_mut()?.shutdowns;
        loop {
            // An error ends the connection.
            let message = shutdowns.next().await?.ok()?;
            match message.body().deserialize::<bool>() {
                Ok(true) => return Some(ShutdownEvent::ShuttingDown),
                Ok(false) => return Some(ShutdownEvent::Cancelled),
                Err(error) => tracing::error!(%error, "Failed obtaining shutdown event"),
            }
        }
    }
}

kubelet_core::impl_debug!(Logind: address);
