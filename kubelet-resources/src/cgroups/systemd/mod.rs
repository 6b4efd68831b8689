//! The slices of systemd, over D-Bus (`opencontainers/cgroups/systemd`).

mod properties;

use std::io;
use std::time::Duration;

use futures::StreamExt as _;
use kubelet_core::cgroups::{CgroupLimits, CgroupName};
use serde::Serialize;
use tokio::sync::Mutex;
use tokio::time::timeout;
use zbus::proxy::CacheProperties;
use zbus::{Connection, DynamicType, ObjectPath, OwnedObjectPath, Proxy, Variant};

use self::properties::{Property, Value};
use super::mounts::Version;

/// Service, object and interface of the service manager.
const SYSTEMD: [&str; 3] = [
    "org.freedesktop.systemd1",
    "/org/freedesktop/systemd1",
    "org.freedesktop.systemd1.Manager",
];
/// The socket of the service manager itself, for hosts without a bus.
const PRIVATE_SOCKET: &str = "unix:path=/run/systemd/private";
/// The unit is there.
const UNIT_EXISTS: &str = "org.freedesktop.systemd1.UnitExists";
/// A job that conflicts with another one replaces it.
const REPLACE: &str = "replace";
/// How long a unit may take to start or to stop.
const JOB_TIMEOUT: Duration = Duration::from_secs(30);

/// A client of the service manager. It connects when it is first used, and again after the bus was restarted.
pub(super) struct Systemd {
    address: Option<String>,
    connected: Mutex<Option<Connected>>,
}

#[derive(Clone)]
struct Connected {
    connection: Connection,
    manager: Proxy<'static>,
    /// E.g. 252; 0 if it cannot be read.
    version: u32,
}

impl Systemd {
    /// On the bus with this address, by default the one of this host.
    pub(super) fn new(address: Option<String>) -> Self {
        Self {
            address,
            connected: Mutex::default(),
        }
    }

    /// Starts the slice, without limits. Does nothing if it runs (`startUnit`).
    ///
    /// # Cancel safety
    ///
    /// May be dropped and called again: systemd may complete the job.
    pub(super) async fn start_slice(&self, name: &CgroupName, version: Version) -> io::Result<()> {
        let unit = &name.slice();
        let properties = &properties::of_new_slice(name, version);
        // The parameter of auxiliary units, of which there are none.
        let none: Vec<(&str, Vec<(&str, Variant<'_>)>)> = Vec::new();
        let body = (unit.as_str(), REPLACE, variants(properties), none);
        let started = match self.job("StartTransientUnit", &body).await {
            Err(zbus::Error::MethodError(error, ..)) if error.as_str() == UNIT_EXISTS => return Ok(()),
            started => started
                .map_err(|error| io::Error::other(format!("unable to start unit {unit:?}: {error}")))?,
        };
        match started.as_deref() {
            Some("done") => return Ok(()),
            _ => self.reset_failed(unit).await,
        }
        Err(io::Error::other(match started {
            Some(result) => format!("error creating systemd unit `{unit}`: got `{result}`"),
            None => format!("Timeout waiting for systemd to create {unit}"),
        }))
    }

    /// Sets the limits of the slice until the next boot. Rounds the quota as systemd does (`setUnitProperties`).
    ///
    /// # Cancel safety
    ///
    /// May be dropped and called again.
    pub(super) async fn set_limits(
        &self,
        name: &CgroupName,
        limits: &mut CgroupLimits,
        version: Version,
    ) -> io::Result<()> {
        let unit = &name.slice();
        let connected = self.connected().await;
        let systemd = connected.map_err(io::Error::other)?.version;
        let properties = &properties::of_limits(limits, version, systemd);
        let body = (unit.as_str(), true, variants(properties));
        let set = self.call("SetUnitProperties", &body).await;
        set.map_err(|error| io::Error::other(format!("unable to set unit properties: {error}")))
    }

    /// Stops the slice. It is not an error if there is none (`stopUnit`).
    ///
    /// # Cancel safety
    ///
    /// May be dropped and called again.
    pub(super) async fn stop_slice(&self, name: &CgroupName) -> io::Result<()> {
        let unit = &name.slice();
        match self.job("StopUnit", &(unit.as_str(), REPLACE)).await {
            Ok(Some(result)) if result == "done" => {}
            Ok(Some(result)) => {
                tracing::warn!(unit, result, "error removing a unit of systemd, continuing");
            }
            Ok(None) => {
                let problem = format!("Timed out while waiting for systemd to remove {unit}");
                return Err(io::Error::other(problem));
            }
            // Most often the unit is not loaded. Otherwise its cgroup stays, which is the error.
            Err(error) => tracing::debug!(unit, %error, "cannot stop a unit of systemd"),
        }
        self.reset_failed(unit).await;
        Ok(())
    }

    /// Lets systemd forget a unit that failed. It refuses for a unit that it does not know.
    async fn reset_failed(&self, unit: &str) {
        if let Err(error) = self.call("ResetFailedUnit", &(unit,)).await {
            tracing::debug!(unit, %error, "unable to reset failed unit");
        }
    }

    /// Calls a method. Connects again if the connection was lost, once (`retryOnDisconnect`).
    async fn call<B>(&self, method: &'static str, body: &B) -> zbus::Result<()>
    where
        B: Serialize + DynamicType + Sync,
    {
        let connected = self.connected().await?;
        match connected.manager.call(method, body).await {
            Err(zbus::Error::InputOutput(error)) => {
                let connected = self.connect_again(connected, &error).await?;
                connected.manager.call(method, body).await
            }
            result => result,
        }
    }

    /// Starts a job and waits for its end, likewise. Returns its result, e.g. `done`, or `None` after the timeout.
    async fn job<B>(&self, method: &'static str, body: &B) -> zbus::Result<Option<String>>
    where
        B: Serialize + DynamicType + Sync,
    {
        let connected = self.connected().await?;
        match connected.job(method, body).await {
            Err(zbus::Error::InputOutput(error)) => {
                let connected = self.connect_again(connected, &error).await?;
                connected.job(method, body).await
            }
            result => result,
        }
    }

    async fn connect_again(&self, lost: Connected, error: &io::Error) -> zbus::Result<Connected> {
        tracing::debug!(%error, "the connection to systemd was lost");
        let mut connected = self.connected.lock().await;
        // Another call may have connected meanwhile.
        connected.take_if(|present| present.connection.unique_name() == lost.connection.unique_name());
        drop(connected);
        self.connected().await
    }

    async fn connected(&self) -> zbus::Result<Connected> {
        let mut connected = self.connected.lock().await;
        if let Some(connected) = &*connected {
            return Ok(connected.clone());
        }
        let connection = match &self.address {
            Some(address) => at(address).build().await?,
            None => match Connection::system().await {
                Ok(connection) => connection,
                // Without the private socket, the first error tells more.
                Err(error) => at(PRIVATE_SOCKET).p2p().build().await.map_err(|_| error)?,
            },
        };
        let [service, object, interface] = SYSTEMD;
        let manager: Proxy<'static> = zbus::proxy::Builder::new(&connection)
            .destination(service)
            .path(object)
            .interface(interface)
            .cache_properties(CacheProperties::No)
            .build()
            .await?;
        let version = manager.get_property::<String>("Version").await;
        let version = version.inspect_err(|error| tracing::error!(%error, "unable to get systemd version"));
        let version = number(&version.unwrap_or_default());
        Ok(connected
            .insert(Connected {
                connection,
                manager,
                version,
            })
            .clone())
    }
}

impl Connected {
    async fn job<B>(&self, method: &'static str, body: &B) -> zbus::Result<Option<String>>
    where
        B: Serialize + DynamicType + Sync,
    {
        // The job may end before the call returns.
        let mut removed = self.manager.receive_signal("JobRemoved").await?;
        let job: OwnedObjectPath = self.manager.call(method, body).await?;
        let ended = async {
            while let Some(message) = removed.next().await {
                let body = message.body();
                let (_, path, _, result): (u32, ObjectPath<'_>, &str, &str) = body.deserialize()?;
                if path == *job {
                    return Ok(result.to_owned());
                }
            }
            Err(closed())
        };
        match timeout(JOB_TIMEOUT, ended).await {
            Ok(result) => result.map(Some),
            Err(_) => Ok(None),
        }
    }
}

fn at(address: &str) -> zbus::connection::Builder<'_> {
    zbus::connection::Builder::address(address)
}

fn closed() -> zbus::Error {
    io::Error::from(io::ErrorKind::ConnectionReset).into()
}

fn variants(properties: &[Property]) -> Vec<(&'static str, Variant<'_>)> {
    let variants = properties.iter().map(|(name, value)| {
        let value = match value {
            Value::Bool(value) => Variant::from(*value),
            Value::Number(value) => Variant::from(*value),
            Value::Text(text) => Variant::from(text.as_str()),
            Value::Texts(texts) => Variant::from(texts.clone()),
            Value::Bytes(bytes) => Variant::from(bytes.clone()),
        };
        (*name, value)
    });
    variants.collect()
}

/// The number of `v245.4-1.fc32` is 245 (`systemdVersionAtoi`).
fn number(version: &str) -> u32 {
    let digits = version.trim_start_matches(['"', 'v']);
    let end = digits
        .find(|it: char| !it.is_ascii_digit())
        .unwrap_or(digits.len());
    digits[..end].parse().unwrap_or_default()
}

kubelet_core::impl_debug!(Systemd: address);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_systemd() {
        for (text, version) in [
            ("v245.4-1.fc32", 245),
            ("\"245\"", 245),
            ("252.39-1~deb12u1", 252),
            ("", 0),
            ("lost", 0),
        ] {
            assert_eq!(number(text), version, "{text}");
        }
    }
}
