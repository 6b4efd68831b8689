//! What keeps a node from its cluster.

use std::fmt;
use std::path::PathBuf;

use k8s_openapi::jiff::{SignedDuration, Timestamp};

/// Something that is wrong with a node, or soon will be. Its [`Display`](fmt::Display) says what, and
/// [`advice`](Self::advice) what to do about it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Finding {
    /// The API server does not answer.
    ServerUnreachable {
        /// Why.
        why: String,
    },
    /// The API server does not know who asks: a bootstrap token or certificate that is not, or no longer, good (401).
    CredentialsRefused {
        /// What it said.
        said: String,
        /// Whether it was asked with a bootstrap token.
        bootstrapping: bool,
    },
    /// The API server knows who asks, and does not allow what every node needs.
    PermissionMissing(MissingPermission),
    /// The API server would allow the request to somebody, but not with this in it: labels, say, that a node may not give
    /// itself.
    Refused {
        /// The request: `create nodes`.
        what: String,
        /// What it said.
        said: String,
    },
    /// The host's clock and the server's differ.
    ClockSkew {
        /// How far the host's is ahead; negative: behind.
        ahead: SignedDuration,
    },
    /// A certificate signing request waits: to be approved, or to be signed.
    CertificatePending {
        /// The request's name.
        name: String,
        /// Of whom it asks: `kubernetes.io/kubelet-serving`.
        signer: String,
        /// Since when it waits.
        since: Timestamp,
        /// Somebody approved it; now it waits for its signer.
        approved: bool,
    },
    /// A certificate signing request was denied, or its signer failed.
    CertificateRefused {
        /// The request's name.
        name: String,
        /// `Denied` or `Failed`.
        condition: String,
        /// What was said.
        said: String,
    },
    /// There is no serving certificate: `kubectl logs` and `exec` cannot reach the node.
    ServingCertificateMissing {
        /// Where it should be.
        file: PathBuf,
    },
    /// The node has no address, or one that it cannot be reached by.
    AddressUnusable {
        /// What is wrong with it.
        why: String,
    },
    /// There is no object of the node's.
    NodeAbsent {
        /// Its name.
        node: String,
    },
    /// The node's object is of another machine, which may still be there.
    AnotherMachine {
        /// The node's name.
        node: String,
        /// The `machineID` that its object shows.
        machine_id: String,
    },
    /// There is no lease: for the control plane the node does not live.
    LeaseAbsent {
        /// `kube-node-lease/NAME`
        lease: String,
    },
    /// The lease ran out.
    LeaseExpired {
        /// `kube-node-lease/NAME`
        lease: String,
        /// When.
        since: Timestamp,
    },
}

/// A permission that a node needs and does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MissingPermission {
    /// `patch`
    pub verb: &'static str,
    /// The API group; empty for the core group.
    pub group: &'static str,
    /// The resource, or its sub-resource: `nodes/status`.
    pub resource: &'static str,
    /// What the API server said.
    pub said: String,
}

impl MissingPermission {
    /// The rule of a `ClusterRole` that would grant it, as YAML.
    ///
    /// The Node authorizer grants it, too, and to this node alone: to who is known as `system:node:NAME`, of the group
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
                said,
                bootstrapping: true,
            } => {
                write!(f, "the API server refuses the bootstrap token: {said}")
            }
            Self::CredentialsRefused { said, .. } => {
                write!(f, "the API server does not know who asks: {said}")
            }
            Self::PermissionMissing(MissingPermission {
                verb, resource, said, ..
            }) => {
                write!(f, "the node may not {verb} {resource}: {said}")
            }
            Self::Refused { what, said } => write!(f, "the API server would refuse to {what}: {said}"),
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
                    "certificate signing request {name} for {signer} waits for its {wants} since {since}"
                )
            }
            Self::CertificateRefused {
                name,
                condition,
                said,
            } => {
                write!(f, "certificate signing request {name} is {condition}: {said}")
            }
            Self::ServingCertificateMissing { file } => {
                write!(f, "there is no serving certificate at {}", file.display())
            }
            Self::AddressUnusable { why } => f.write_str(why),
            Self::NodeAbsent { node } => write!(f, "node {node} is not registered"),
            Self::AnotherMachine { node, machine_id } => {
                write!(
                    f,
                    "node {node} was registered by another machine, of ID {machine_id}"
                )
            }
            Self::LeaseAbsent { lease } => write!(f, "there is no lease {lease}"),
            Self::LeaseExpired { lease, since } => write!(f, "lease {lease} expired at {since}"),
        }
    }
}

impl Finding {
    /// What to do about it.
    pub fn advice(&self) -> String {
        match self {
            Self::ServerUnreachable { .. } => {
                "see to the server's address in the kubeconfig, to the route there, and to its CA".to_owned()
            }
            Self::CredentialsRefused { bootstrapping: true, .. } => {
                "make a new token (`kubeadm token create`) and put it into the bootstrap kubeconfig".to_owned()
            }
            Self::CredentialsRefused { .. } => {
                "the client certificate may have expired: remove kubelet-client-current.pem and start with a bootstrap \
                 kubeconfig"
                    .to_owned()
            }
            Self::PermissionMissing(missing) if missing.group == "certificates.k8s.io" => format!(
                "bind the token's group, system:bootstrappers say, to the ClusterRole system:node-bootstrapper; or grant by \
                 a ClusterRole:\n{}",
                missing.rule()
            ),
            Self::PermissionMissing(missing) => format!(
                "be known as system:node:NAME of the group system:nodes, to an API server with \
                 --authorization-mode=Node,RBAC; or grant by a ClusterRole:\n{}",
                missing.rule()
            ),
            Self::Refused { .. } => {
                "take out of --node-labels or registerWithTaints what a node may not give itself, and have an \
                 administrator set it"
                    .to_owned()
            }
            Self::ClockSkew { .. } => {
                "set the clock, by NTP say: certificates and tokens may count as expired, or as not yet valid".to_owned()
            }
            Self::CertificatePending { approved: true, signer, .. } => {
                format!("see why the signer {signer} does not sign: the controller manager may lack its key")
            }
            Self::CertificatePending { name, .. } => format!("kubectl certificate approve {name}"),
            Self::CertificateRefused { name, .. } => {
                format!("ask who refused it; then `kubectl delete csr {name}` and start the agent again")
            }
            Self::ServingCertificateMissing { .. } => {
                "approve the node's request to kubernetes.io/kubelet-serving, which nobody does by himself, or turn \
                 serverTLSBootstrap off"
                    .to_owned()
            }
            Self::AddressUnusable { .. } => {
                "give an address of the host's by --node-ip, or give the host a default route".to_owned()
            }
            Self::NodeAbsent { .. } => {
                "start the agent with registerNode: true, or make the object by other means".to_owned()
            }
            Self::AnotherMachine { node, .. } => format!(
                "give one of the two another name (--hostname-override); if the other is gone, `kubectl delete node \
                 {node}` forgets it"
            ),
            Self::LeaseAbsent { .. } => {
                "start the agent: it makes the lease once its node is registered".to_owned()
            }
            Self::LeaseExpired { .. } => "start the agent, or see in its log why it cannot renew the lease".to_owned(),
        }
    }
}
