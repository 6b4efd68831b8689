//! Profiles of the agent: its CPU, and its heap if jemalloc records it.

use std::time::Duration;

use async_trait::async_trait;
use jemalloc_pprof::PROF_CTL;
use kubelet_server::Profiler;
use kubelet_server::profiling::CpuProfiler;

/// Serves `/debug/pprof/profile` and `/debug/pprof/heap`.
pub(crate) struct AgentProfiler {
    cpu: CpuProfiler,
}

impl AgentProfiler {
    pub(crate) fn new() -> Self {
        Self { cpu: CpuProfiler::new() }
    }
}

#[async_trait]
impl Profiler for AgentProfiler {
    async fn cpu(&self, duration: Duration) -> Option<Result<Vec<u8>, String>> {
        self.cpu.cpu(duration).await
    }

    /// jemalloc records the heap only if it was started so: `_RJEM_MALLOC_CONF=prof:true`.
    async fn heap(&self) -> Option<Result<Vec<u8>, String>> {
        let mut recorded = PROF_CTL.as_ref()?.clone().lock_owned().await;
        let made =
            tokio::task::spawn_blocking(move || recorded.dump_pprof().map_err(|error| error.to_string()));
        Some(made.await.unwrap_or_else(|error| Err(error.to_string())))
    }
}
