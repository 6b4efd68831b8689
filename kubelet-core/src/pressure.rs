//! Which resources of the node are under pressure.

/// Which resources are under pressure (the eviction manager). By default none is. Returns at once, with the last result.
pub trait Pressure: Send + Sync {
    /// (`IsUnderMemoryPressure`)
    fn is_under_memory_pressure(&self) -> bool {
        false
    }

    /// (`IsUnderDiskPressure`)
    fn is_under_disk_pressure(&self) -> bool {
        false
    }

    /// (`IsUnderPIDPressure`)
    fn is_under_pid_pressure(&self) -> bool {
        false
    }
}

/// A node without any pressure.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoPressure;

impl Pressure for NoPressure {}
