//! Makes the node known.

mod reconcile;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube_client::api::{Api, Patch, PatchParams, PostParams};
use kube_client::{Client, Error as ClientError};
use tokio::time::{sleep, timeout};

use crate::node_patch::node_status_patch;
use crate::{Error, LocalNode, Result};

/// The waits before the first and the last tries.
const FIRST_WAIT: Duration = Duration::from_millis(100);
const MAX_WAIT: Duration = Duration::from_secs(7);
/// How long an answer is waited for; the API server itself gives up on a request after a minute.
const DEADLINE: Duration = Duration::from_secs(65);

/// Registers a node: makes its object or, where there is one of that name, sees to what of it is the kubelet's. Answers to
/// the kubelet's `registerWithAPIServer`.
///
/// An object that is there keeps its taints, whoever set them, and all labels but the default ones (host name, operating
/// system, architecture, and those of zone, region and instance type that the node was given). Its extended resources
/// become zero where [`reset_extended_resources`](crate::NodeConfig::reset_extended_resources) says so, huge pages of
/// sizes that the machine no longer has are removed, and the annotation for the attach-detach controller is as configured.
///
/// An agent that is not to register its node (`registerNode: false`) has none of these.
#[derive(Clone, Debug)]
pub struct NodeRegistration {
    client: Quiet,
    local: Arc<LocalNode>,
}

/// A client that says nothing of itself.
#[derive(Clone)]
struct Quiet(Client);

impl std::fmt::Debug for Quiet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Client")
    }
}

/// What became of a try to register.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Registered {
    /// The node's object was made.
    New(Arc<Node>),
    /// It was there, and now is as it has to be.
    Existing(Arc<Node>),
}

impl Registered {
    /// The node's object.
    pub fn into_node(self) -> Arc<Node> {
        match self {
            Self::New(node) | Self::Existing(node) => node,
        }
    }
}

impl NodeRegistration {
    /// Registers `local` with the API server that `client` talks to.
    pub fn new(client: Client, local: Arc<LocalNode>) -> Self {
        Self {
            client: Quiet(client),
            local,
        }
    }

    /// Tries until the node is registered: first after 100 ms, then ever more rarely, each 7 s at last.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the request under way; it can be called again.
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

    /// One try (`tryRegisterWithAPIServer`).
    ///
    /// # Errors
    ///
    /// Whatever the API server says no to.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the request under way; it can be called again.
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
        // Who may not make it may find it made by somebody else.
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

    /// Two machines of one name take the node from each other, again and again.
    fn warn_of_another(&self, existing: &Node) {
        let info = existing
            .status
            .as_ref()
            .and_then(|status| status.node_info.as_ref());
        let theirs = info.map_or("", |info| info.machine_id.as_str());
        let ours = &self.local.machine().machine_id;
        if !theirs.is_empty() && theirs != ours {
            let node = self.local.name();
            tracing::warn!(node, theirs, ours, "the node was registered by another machine");
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
