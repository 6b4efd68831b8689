//! The errors of this crate.

use std::path::PathBuf;

use kubelet_core::Rejection;

/// Any error, as traits of this crate return it.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Why something failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A manager refuses its configuration, or the state that it finds. The text is the kubelet's.
    #[error("{0}")]
    Refused(String),
    /// A file cannot be read or written.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file of the kernel that describes the machine has another form than expected.
    #[error("{path}: {reason}")]
    Machine {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The resources of a pod cannot be aligned as the policy wants (`TopologyAffinityError`).
    #[error("Resources cannot be allocated with Topology locality")]
    TopologyAffinity,
    /// The same for a pod with pod-level resources (`PodLevelTopologyAffinityError`).
    #[error("Pod Scope {0}")]
    PodTopologyAffinity(&'static str),
    /// A container requests part of a core, under `full-pcpus-only`.
    #[error("SMT Alignment Error: requested {requested} cpus not multiple cpus per core = {cpus_per_core}")]
    SmtAlignment {
        /// The CPUs that it requests.
        requested: usize,
        /// The CPUs of a core.
        cpus_per_core: usize,
    },
    /// There are too few free cores, under `full-pcpus-only`.
    #[error(
        "SMT Alignment Error: not enough free physical CPUs: available physical CPUs = {available}, requested CPUs = \
         {requested}, CPUs per core = {cpus_per_core}"
    )]
    TooFewCores {
        /// The CPUs of cores that are free.
        available: usize,
        /// The CPUs that are requested.
        requested: usize,
        /// The CPUs of a core.
        cpus_per_core: usize,
    },
    /// Nothing is left of a pod's resources for those of its containers that share them (`EmptyPodSharedPoolError`).
    #[error("{0}")]
    EmptyPodSharedPool(String),
    /// The resources cannot be allocated. The text is the kubelet's.
    #[error("{0}")]
    Allocation(String),
    /// A cgroup that pods are in cannot be created.
    #[error("failed to create the cgroup {name}: {source}")]
    Cgroup {
        /// The cgroup.
        name: kubelet_core::cgroups::CgroupName,
        /// Why.
        source: std::io::Error,
    },
    /// The claims of a pod cannot be prepared, used or unprepared. The text is the kubelet's.
    #[error("{0}")]
    Claims(String),
    /// A hint provider, e.g. of devices, failed.
    #[error("{0}")]
    Provider(BoxError),
}

impl Error {
    /// How the pod is rejected whose admission failed with this error (`admission.GetPodAdmitResult`).
    pub fn rejection(&self) -> Rejection {
        let reason = match self {
            Self::TopologyAffinity | Self::PodTopologyAffinity(_) => "TopologyAffinityError",
            Self::SmtAlignment { .. } | Self::TooFewCores { .. } => "SMTAlignmentError",
            Self::EmptyPodSharedPool(_) => "EmptyPodSharedPoolError",
            _ => {
                let message = format!("Allocate failed due to {self}, which is unexpected");
                return Rejection::unexpected(message);
            }
        };
        Rejection::new(reason, self.to_string())
    }
}

/// The result of a call of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;
