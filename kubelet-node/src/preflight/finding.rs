//! Findings of a preflight.

use std::fmt;
use std::path::PathBuf;

use k8s_openapi::jiff::{SignedDuration, Timestamp};

/// A problem of a node, now or soon. Its [`Display`](fmt::Display) describes the problem, and
/// [`advice`](Self::advice) the solution.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Finding {
    /// The API server does not answer.
    ServerUnreachable {
        /// The cause.
        why: String,
    },
    /// The API server does not accept the credentials (401): the bootstrap token or the certificate is wrong or
    /// expired.
    CredentialsRefused {
        /// The server's message.
        message: String,
        /// Whether the credentials were a bootstrap token.
        bootstrapping: bool,
    },
    /// The API server accepts the credentials, but a permission that every node needs is missing.
    PermissionMissing(MissingPermission),
    /// The node has the permission, but the API server would refuse the content of the request, for example
    /// labels that a node may not set on itself.
    Refused {
        /// The request: `create nodes`.
        what: String,
        /// The server's message.
        message: String,
    },
    /// The clocks of host and server differ.
    ClockSkew {
        /// How far the host's clock is ahead; negative if it is behind.
        ahead: SignedDuration,
    },
    /// A certificate signing request waits for approval or for its certificate.
    CertificatePending {
        /// The request's name.
        name: String,
        /// The signer: `kubernetes.io/kubelet-serving`.
        signer: String,
        /// When the request was created.
        since: Timestamp,
        /// Whether the request is approved, so that only the certificate is missing.
        approved: bool,
    },
    /// A certificate signing request was denied, or its signer failed.
    CertificateRefused {
        /// The request's name.
        name: String,
        /// `Denied` or `Failed`.
        condition: String,
        /// The message in the condition.
        message: String,
    },
    /// There is no serving certificate, so `kubectl logs` and `exec` cannot reach the node.
    ServingCertificateMissing {
        /// The expected path.
        file: PathBuf,
    },
    /// The node has no usable address.
    AddressUnusable {
        /// The problem.
        why: String,
    },
    /// The Node object does not exist.
    NodeAbsent {
        /// Its name.
        node: String,
    },
    /// The Node object belongs to another machine, which may still exist.
    AnotherMachine {
        /// The node's name.
        node: String,
        /// The `machineID` in the object.
        machine_id: String,
    },
    /// The lease does not exist, so the control plane considers the node dead.
    LeaseAbsent {
        /// `kube-node-lease/NAME`
        lease: String,
    },
    /// The lease has expired.
    LeaseExpired {
        /// `kube-node-lease/NAME`
        lease: String,
        /// When it expired.
        since: Timestamp,
    },
}

/// A permission that the node needs and does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MissingPermission {
    /// `patch`
    pub verb: &'static str,
    /// The API group; empty for the core group.
    pub group: &'static str,
    /// The resource, or its sub-resource: `nodes/status`.
    pub resource: &'static str,
    /// The server's message.
    pub message: String,
}

impl MissingPermission {
    /// A rule for a `ClusterRole` that grants the permission, as YAML.
    ///
    /// The Node authorizer grants it as well, for this node only, to the user `system:node:NAME` in the group
    /// `system:nodes`.
    pub fn rule(&self) -> String {
        let Self {
            verb,
            group,
            resource,
            ..
        } = self;
        format!("- apiGroups: [\"{group}\"]\n  resources: [\"{resource}\"]\n  verbs: [\"{verb}\"]\n")
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ServerUnreachable { why } => write!(f, "the API server does not answer: {why}"),
            Self::CredentialsRefused {
                message,
                bootstrapping: true,
            } => {
                write!(f, "the API server refuses the bootstrap token: {message}")
            }
            Self::CredentialsRefused { message, .. } => {
                write!(f, "the API server does not accept the credentials: {message}")
            }
            Self::PermissionMissing(MissingPermission {
                verb,
                resource,
                message,
                ..
            }) => {
                write!(f, "the node may not {verb} {resource}: {message}")
            }
            Self::Refused { what, message } => write!(f, "the API server would refuse to {what}: {message}"),
            Self::ClockSkew { ahead } if ahead.is_negative() => {
                write!(
                    f,
                    "the clock is {} s behind the API server's",
                    ahead.abs().as_secs()
                )
            }
            Self::ClockSkew { ahead } => {
                write!(f, "the clock is {} s ahead of the API server's", ahead.as_secs())
            }
            Self::CertificatePending {
                name,
                signer,
                since,
                approved,
            } => {
                let wants = if *approved { "signature" } else { "approval" };
                write!(
                    f,
                    "certificate signing request {name} for {signer} has been waiting for its {wants} since {since}"
                )
            }
            Self::CertificateRefused {
                name,
                condition,
                message,
            } => {
                write!(f, "certificate signing request {name} is {condition}: {message}")
            }
            Self::ServingCertificateMissing { file } => {
                write!(f, "there is no serving certificate at {}", file.display())
            }
            Self::AddressUnusable { why } => f.write_str(why),
            Self::NodeAbsent { node } => write!(f, "node {node} is not registered"),
            Self::AnotherMachine { node, machine_id } => {
                write!(
                    f,
                    "node {node} was registered by another machine, with the machine ID {machine_id}"
                )
            }
            Self::LeaseAbsent { lease } => write!(f, "there is no lease {lease}"),
            Self::LeaseExpired { lease, since } => write!(f, "lease {lease} expired at {since}"),
        }
    }
}

impl Finding {
    /// How to solve the problem.
    pub fn advice(&self) -> String {
        match self {
            Self::ServerUnreachable { .. } => {
                "check the server's address and CA in the kubeconfig, and the route to the server".to_owned()
            }
            Self::CredentialsRefused { bootstrapping: true, .. } => {
                "create a new token (`kubeadm token create`) and put it into the bootstrap kubeconfig".to_owned()
            }
            Self::CredentialsRefused { .. } => {
                "the client certificate may have expired: delete kubelet-client-current.pem and start with a bootstrap \
                 kubeconfig"
                    .to_owned()
            }
            Self::PermissionMissing(missing) if missing.group == "certificates.k8s.io" => format!(
                "bind the token's group, for example system:bootstrappers, to the ClusterRole system:node-bootstrapper, or \
                 add this rule to a ClusterRole:\n{}",
                missing.rule()
            ),
            Self::PermissionMissing(missing) => format!(
                "use credentials of the user system:node:NAME in the group system:nodes, with an API server that runs with \
                 --authorization-mode=Node,RBAC, or add this rule to a ClusterRole:\n{}",
                missing.rule()
            ),
            Self::Refused { .. } => {
                "remove the labels or taints that a node may not set on itself from --node-labels or registerWithTaints, \
                 and set them as an administrator"
                    .to_owned()
            }
            Self::ClockSkew { .. } => {
                "correct the clock, for example with NTP; otherwise certificates and tokens may be rejected as expired or not yet valid".to_owned()
            }
            Self::CertificatePending { approved: true, signer, .. } => {
                format!("find out why the signer {signer} does not sign; the controller manager may have no signing key")
            }
            Self::CertificatePending { name, .. } => format!("kubectl certificate approve {name}"),
            Self::CertificateRefused { name, .. } => {
                format!("find out why it was refused; then run `kubectl delete csr {name}` and restart the agent")
            }
            Self::ServingCertificateMissing { .. } => {
                "approve the node's request for the signer kubernetes.io/kubelet-serving (no controller approves it), or \
                 disable serverTLSBootstrap"
                    .to_owned()
            }
            Self::AddressUnusable { .. } => {
                "set --node-ip to an address of the host, or configure a default route".to_owned()
            }
            Self::NodeAbsent { .. } => {
                "start the agent with registerNode: true, or create the Node object yourself".to_owned()
            }
            Self::AnotherMachine { node, .. } => format!(
                "rename one of the two machines (--hostname-override); if the other machine no longer exists, run \
                 `kubectl delete node {node}`"
            ),
            Self::LeaseAbsent { .. } => {
                "start the agent; it creates the lease once the node is registered".to_owned()
            }
            Self::LeaseExpired { .. } => "start the agent, or check in its log why it cannot renew the lease".to_owned(),
        }
    }
}
