//! The memory limit of a container: it counts the linear memories of its module.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use wasmtime::{ResourceLimiter, Result, format_err};

/// Counts and limits the memory of a module. Clones share the count.
#[derive(Clone, Default)]
pub(crate) struct Memory {
    limit: Option<u64>,
    used: Arc<AtomicU64>,
    exceeded: Arc<AtomicBool>,
}

impl Memory {
    pub(crate) fn new(limit: Option<u64>) -> Self {
        Self { limit, ..Self::default() }
    }

    /// The bytes of all linear memories.
    pub(crate) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Whether the module asked for more than its limit. Then it was ended.
    pub(crate) fn was_exceeded(&self) -> bool {
        self.exceeded.load(Ordering::Relaxed)
    }
}

impl ResourceLimiter for Memory {
    fn memory_growing(&mut self, current: usize, desired: usize, _maximum: Option<usize>) -> Result<bool> {
        let used = self.used().saturating_add(desired.saturating_sub(current) as u64);
        if let Some(limit) = self.limit.filter(|limit| used > *limit) {
            self.exceeded.store(true, Ordering::Relaxed);
            return Err(format_err!("the module needs {used} bytes of memory; its limit is {limit}"));
        }
        self.used.store(used, Ordering::Relaxed);
        Ok(true)
    }

    /// A table is memory, too, and not counted. So it has a limit of its own, which no sound module reaches.
    fn table_growing(&mut self, _current: usize, desired: usize, _maximum: Option<usize>) -> Result<bool> {
        Ok(desired <= 1_000_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_memories_of_a_module_count_together() {
        let mut memory = Memory::new(Some(100));
        assert!(memory.memory_growing(0, 60, None).unwrap());
        assert!(memory.memory_growing(0, 40, None).unwrap());
        assert_eq!((memory.used(), memory.was_exceeded()), (100, false));
        assert!(memory.memory_growing(40, 41, None).is_err());
        assert_eq!((memory.used(), memory.was_exceeded()), (100, true));
    }
}
