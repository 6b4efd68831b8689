//! Registers the node.

mod reconcile;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube_client::api::{Api, Patch, PatchParams, PostParams};
use kube_client::{Client, Error as ClientError};
use tokio::time::{sleep, timeout};

use crate::node_patch::node_status_patch;
use crate::{Error, LocalNode, Result};

/// The first and the longest back-off.
const FIRST_WAIT: Duration = Duration::from_millis(100);
const MAX_WAIT: Duration = Duration::from_secs(7);
/// How long to wait for an answer. The API server gives up on a request after a minute.
const DEADLINE: Duration = Duration::from_secs(65);

/// Registers a node: creates the Node object or, if it exists, updates the fields that belong to the kubelet.
/// Answers to the kubelet's `registerWithAPIServer`.
///
/// An existing object keeps its taints and its labels, except for the default labels (host name, operating
/// system, architecture, and zone, region and instance type if configured). Its extended resources are set to
/// zero if [`reset_extended_resources`](crate::NodeConfig::reset_extended_resources) is set. Huge pages of
/// sizes that the machine no longer has are removed. The annotation for the attach-detach controller is set as
/// configured.
///
/// An agent with `registerNode: false` does not use this type.
#[derive(Clone, Debug)]
pub struct NodeRegistration {
    client: Quiet,
    local: Arc<LocalNode>,
}

/// For clients that have no name of their own.
#[derive(Clone)]
struct Quiet(Client);

impl std::fmt::Debug for Quiet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Client")
    }
}

/// The result of a registration.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Registered {
    /// The Node object was created.
    New(Arc<Node>),
    /// The Node object existed and is now up to date.
    Existing(Arc<Node>),
}

impl Registered {
    /// The Node object.
    pub fn into_node(self) -> Arc<Node> {
        match self {
            Self::New(node) | Self::Existing(node) => node,
        }
    }
}

impl NodeRegistration {
    /// Registers `local` with the API server of `client`.
    pub fn new(client: Client, local: Arc<LocalNode>) -> Self {
        Self {
            client: Quiet(client),
            local,
        }
    }

    /// Tries until the node is registered, with back-off from 100 ms up to 7 s.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the running request. The call can be repeated.
    pub async fn register(&self) -> Registered {
        let node = self.local.name();
        self.local
            .startup(|latency, now| latency.attempts_to_register(now));
        let mut wait = FIRST_WAIT;
        loop {
            sleep(wait).await;
            wait = (wait * 2).min(MAX_WAIT);
            tracing::info!(node, "attempting to register node");
            match self.try_register().await {
                Ok(registered) => {
                    tracing::info!(node, "successfully registered node");
                    return registered;
                }
                Err(error) => tracing::error!(node, %error, "unable to register node with API server"),
            }
        }
    }

    /// Tries once (`tryRegisterWithAPIServer`).
    ///
    /// # Errors
    ///
    /// The API server refuses the request or does not answer.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the running request. The call can be repeated.
    pub async fn try_register(&self) -> Result<Registered> {
        let (name, nodes) = (self.local.name(), Api::<Node>::all(self.client.0.clone()));
        let initial = self.local.initial_node().await;
        let refused = match request("create", name, nodes.create(&PostParams::default(), &initial)).await {
            Ok(node) => {
                self.local.startup(|latency, now| latency.registered_new(now));
                return Ok(Registered::New(Arc::new(node)));
            }
            Err(error) => error,
        };
        // Without permission to create the node, it may still exist already.
        if !is_there(&refused) && refused.code() != Some(403) {
            return Err(refused);
        }
        let existing = match request("get", name, nodes.get(name)).await {
            Ok(node) => node,
            Err(error) => {
                tracing::warn!(node = name, %error, "cannot get the existing node");
                return Err(refused);
            }
        };
        tracing::info!(node = name, "node was previously registered");
        self.warn_of_another(&existing);
        let mut wanted = existing.clone();
        if !reconcile::reconcile(self.local.config(), &initial, &mut wanted) {
            return Ok(Registered::Existing(Arc::new(existing)));
        }
        let patch = node_status_patch(&existing, &wanted)
            .map_err(|error| Error::api(format!("patch node {name}"), ClientError::SerdeError(error)))?;
        let (params, patch) = (PatchParams::default(), Patch::Strategic(patch));
        let patched = request("patch", name, nodes.patch_status(name, &params, &patch)).await?;
        Ok(Registered::Existing(Arc::new(patched)))
    }

    /// Two machines with one name replace each other's registration again and again.
    fn warn_of_another(&self, existing: &Node) {
        let info = existing
            .status
            .as_ref()
            .and_then(|status| status.node_info.as_ref());
        let theirs = info.map_or("", |info| info.machine_id.as_str());
        let ours = &self.local.machine().machine_id;
        if !theirs.is_empty() && theirs != ours {
            let node = self.local.name();
            tracing::warn!(node, theirs, ours, "another machine registered this node");
        }
    }
}

fn is_there(error: &Error) -> bool {
    let Error::Api { source, .. } = error else {
        return false;
    };
    matches!(&**source, ClientError::Api(status) if status.code == 409 && status.reason == "AlreadyExists")
}

async fn request<T>(
    verb: &str,
    node: &str,
    answer: impl Future<Output = Result<T, ClientError>>,
) -> Result<T> {
    let what = format!("{verb} node {node}");
    match timeout(DEADLINE, answer).await {
        Ok(answer) => answer.map_err(|error| Error::api(what, error)),
        Err(_) => Err(Error::Timeout {
            what,
            after: DEADLINE,
        }),
    }
}
