//! What is observed, and which resource and condition it concerns.

use std::fmt;

/// A signal that may lead to evictions (`eviction/api.Signal`). The order is that in which thresholds are considered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Signal {
    /// `memory.available`: memory of the node that is not in the working set, in bytes.
    MemoryAvailable,
    /// `allocatableMemory.available`: memory that pods may use and do not use, in bytes.
    AllocatableMemoryAvailable,
    /// `nodefs.available`: free bytes of the file system of volumes and logs.
    NodeFsAvailable,
    /// `nodefs.inodesFree`: free inodes of the same.
    NodeFsInodesFree,
    /// `imagefs.available`: free bytes of the file system of images.
    ImageFsAvailable,
    /// `imagefs.inodesFree`: free inodes of the same.
    ImageFsInodesFree,
    /// `containerfs.available`: free bytes of the file system of the containers' writable layers.
    ContainerFsAvailable,
    /// `containerfs.inodesFree`: free inodes of the same.
    ContainerFsInodesFree,
    /// `pid.available`: process ids that are free.
    PidAvailable,
}

/// A resource that may be starved (`signalToResource`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Resource {
    /// `memory`
    Memory,
    /// `ephemeral-storage`
    EphemeralStorage,
    /// `inodes`
    Inodes,
    /// `pids`
    Pids,
}

/// A condition of the node that reports pressure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PressureCondition {
    /// `MemoryPressure`
    Memory,
    /// `DiskPressure`
    Disk,
    /// `PIDPressure`
    Pid,
}

impl Signal {
    /// All signals.
    pub const ALL: [Self; 9] = [
        Self::MemoryAvailable,
        Self::AllocatableMemoryAvailable,
        Self::NodeFsAvailable,
        Self::NodeFsInodesFree,
        Self::ImageFsAvailable,
        Self::ImageFsInodesFree,
        Self::ContainerFsAvailable,
        Self::ContainerFsInodesFree,
        Self::PidAvailable,
    ];

    /// The name in `KubeletConfiguration` and in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::MemoryAvailable => "memory.available",
            Self::AllocatableMemoryAvailable => "allocatableMemory.available",
            Self::NodeFsAvailable => "nodefs.available",
            Self::NodeFsInodesFree => "nodefs.inodesFree",
            Self::ImageFsAvailable => "imagefs.available",
            Self::ImageFsInodesFree => "imagefs.inodesFree",
            Self::ContainerFsAvailable => "containerfs.available",
            Self::ContainerFsInodesFree => "containerfs.inodesFree",
            Self::PidAvailable => "pid.available",
        }
    }

    /// The signal of this name (`validSignal`).
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|signal| signal.as_str() == name)
    }

    /// The resource that is starved when a threshold of it is met (`signalToResource`).
    pub fn resource(self) -> Resource {
        match self {
            Self::MemoryAvailable | Self::AllocatableMemoryAvailable => Resource::Memory,
            Self::NodeFsAvailable | Self::ImageFsAvailable | Self::ContainerFsAvailable => {
                Resource::EphemeralStorage
            }
            Self::NodeFsInodesFree | Self::ImageFsInodesFree | Self::ContainerFsInodesFree => {
                Resource::Inodes
            }
            Self::PidAvailable => Resource::Pids,
        }
    }

    /// The condition that the node reports then (`signalToNodeCondition`).
    pub fn condition(self) -> PressureCondition {
        match self.resource() {
            Resource::Memory => PressureCondition::Memory,
            Resource::EphemeralStorage | Resource::Inodes => PressureCondition::Disk,
            Resource::Pids => PressureCondition::Pid,
        }
    }
}

impl Resource {
    /// The name in messages, events and requests.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::EphemeralStorage => "ephemeral-storage",
            Self::Inodes => "inodes",
            Self::Pids => "pids",
        }
    }
}

impl PressureCondition {
    /// All conditions.
    pub const ALL: [Self; 3] = [Self::Memory, Self::Disk, Self::Pid];

    /// The type of the condition.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "MemoryPressure",
            Self::Disk => "DiskPressure",
            Self::Pid => "PIDPressure",
        }
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for PressureCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
