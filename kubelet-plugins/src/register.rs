//! One try to register a plugin: what is asked of it, in which order, and how long that may take.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::UnixStream;
use tokio::time::timeout;

use crate::names::Names;
use crate::v1::grpc_client::registration_client::RegistrationClient;
use crate::v1::{InfoRequest, RegistrationStatus};
use crate::{Error, Plugin, PluginHandler, Result, Transport};

/// How long a connection may take. The kubelet's `dialTimeoutDuration`.
const DIAL_TIMEOUT: Duration = Duration::from_secs(10);

/// How long `GetInfo` may take. The kubelet's, without a name there.
const GET_INFO_TIMEOUT: Duration = Duration::from_secs(1);

/// How long the plugin may take to receive the result. The kubelet's `notifyTimeoutDuration`.
const NOTIFY_TIMEOUT: Duration = Duration::from_secs(5);

/// The longest path of a unix socket on Linux, in bytes (`sun_path` without its end).
const LONGEST_SOCKET_PATH: usize = 107;

pub(crate) type Handlers = BTreeMap<String, Arc<dyn PluginHandler>>;

/// A plugin that is in use.
#[derive(Clone)]
pub(crate) struct Registered {
    pub(crate) plugin: Plugin,
    handler: Arc<dyn PluginHandler>,
}

/// Asks the plugin at `socket` what it is, gives it to its handler, and sends it the result.
pub(crate) async fn register(socket: PathBuf, handlers: Arc<Handlers>, names: Names) -> Result<Registered> {
    let shown = socket.display();
    let mut client = RegistrationClient::new(
        dial(&socket)
            .await
            .map_err(|error| Error::registration(format!("dial failed at socket {shown}, err: {error}")))?,
    );
    let info = match timeout(GET_INFO_TIMEOUT, client.get_info(InfoRequest {})).await {
        Ok(Ok(answer)) => answer.into_inner(),
        Ok(Err(status)) => return Err(no_info(&socket, describe(&status))),
        Err(_) => return Err(no_info(&socket, "no answer within 1s")),
    };
    let Some(handler) = handlers.get(&info.r#type) else {
        let message = format!(
            "no handler registered for plugin type: {} at socket {shown}",
            info.r#type
        );
        return Err(refuse(&mut client, &socket, message).await);
    };
    let plugin = Plugin {
        plugin_type: info.r#type,
        name: info.name,
        endpoint: match info.endpoint.is_empty() {
            true => socket.clone(),
            false => PathBuf::from(info.endpoint),
        },
        versions: info.supported_versions,
        socket: socket.clone(),
    };
    let _turn = names.turn(&plugin).await;
    if let Err(error) = handler.validate(&plugin).await {
        let message = format!("plugin validation failed with err: {error}");
        return Err(refuse(&mut client, &socket, message).await);
    }
    if let Err(error) = handler.register(&plugin).await {
        let message = format!("plugin registration failed with err: {error}");
        return Err(refuse(&mut client, &socket, message).await);
    }
    let registered = Registered {
        plugin,
        handler: handler.clone(),
    };
    match notify(&mut client, true, String::new()).await {
        Ok(()) => Ok(registered),
        Err(error) => {
            registered.handler.deregister(&registered.plugin).await;
            Err(Error::registration(format!(
                "failed to send registration status at socket {shown}, err: {error}"
            )))
        }
    }
}

/// Stops using a plugin.
pub(crate) async fn deregister(registered: Registered, names: Names) {
    let _turn = names.turn(&registered.plugin).await;
    registered.handler.deregister(&registered.plugin).await;
}

async fn dial(socket: &Path) -> Result<Transport, String> {
    if socket.as_os_str().len() > LONGEST_SOCKET_PATH {
        return Err(format!(
            "the path has {} bytes, and a unix socket can have {LONGEST_SOCKET_PATH}",
            socket.as_os_str().len()
        ));
    }
    // A lazy channel would connect again later, perhaps to another plugin at the same path: this one connects once.
    let connected = timeout(DIAL_TIMEOUT, UnixStream::connect(socket)).await;
    let stream = connected
        .map_err(|_| "no connection within 10s".to_string())?
        .map_err(|error| error.to_string())?;
    let transport = timeout(DIAL_TIMEOUT, Transport::over(stream)).await;
    transport
        .map_err(|_| "no connection within 10s".to_string())?
        .map_err(|error| error.to_string())
}

fn no_info(socket: &Path, error: impl Display) -> Error {
    Error::registration(format!(
        "failed to get plugin info using RPC GetInfo at socket {}, err: {error}",
        socket.display()
    ))
}

/// Sends the plugin why it is refused. Returns the error to log: the same, or that the plugin cannot be reached.
async fn refuse(client: &mut RegistrationClient<Transport>, socket: &Path, message: String) -> Error {
    let refusal = Error::registration(message);
    match notify(client, false, refusal.to_string()).await {
        Ok(()) => refusal,
        Err(error) => Error::registration(format!(
            "failed to send error at socket {}, err: {refusal}: {error}",
            socket.display()
        )),
    }
}

async fn notify(
    client: &mut RegistrationClient<Transport>,
    plugin_registered: bool,
    error: String,
) -> Result<(), String> {
    let status = RegistrationStatus {
        plugin_registered,
        error,
    };
    match timeout(NOTIFY_TIMEOUT, client.notify_registration_status(status)).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(status)) => Err(describe(&status)),
        Err(_) => Err("no answer within 5s".to_string()),
    }
}

/// As grpc-go prints it.
fn describe(status: &tonic::Status) -> String {
    let code = match status.code() {
        tonic::Code::Ok => "OK".to_owned(),
        tonic::Code::Cancelled => "Canceled".to_owned(),
        code => format!("{code:?}"),
    };
    format!("rpc error: code = {code} desc = {}", status.message())
}
