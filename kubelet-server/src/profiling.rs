//! CPU profiles of the process, for `/debug/pprof/profile` (feature `profiling`).
//!
//! [`CpuProfiler`] samples the stacks of all threads 100 times a second of CPU time, as Go's profiler does. `go tool pprof` reads the
//! result. Without stack tables in the program, a sample has one function only: build with
//! `RUSTFLAGS="-C force-unwind-tables=yes"` if the profile of the build has `panic = "abort"`. Without symbols, it has addresses only.
//!
//! A heap profile is a matter of the allocator, which the program chooses. A [`Profiler`] of your own can pass
//! [`cpu`](Profiler::cpu) on to this one, as `examples/node-agent` does.

use std::io::Write as _;
use std::time::Duration;

use async_trait::async_trait;
use flate2::Compression;
use flate2::write::GzEncoder;
use pprof::protos::Message as _;
use pprof::{ProfilerGuard, ProfilerGuardBuilder};

use crate::Profiler;

/// How many samples a second of CPU time has (`hz` of Go's `runtime/pprof`).
const FREQUENCY: i32 = 100;
/// Stacks that end in these are not walked: that is not safe in a signal handler.
const NOT_WALKED: [&str; 4] = ["libc", "libgcc", "pthread", "vdso"];

/// Profiles the CPU time of this process. One profile can be made at a time, because a process has one profiling timer.
///
/// # Cancel safety
///
/// Dropping a call ends the profile.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct CpuProfiler {}

impl CpuProfiler {
    /// A profiler of this process.
    pub fn new() -> Self {
        Self::default()
    }
}

#[async_trait]
impl Profiler for CpuProfiler {
    async fn cpu(&self, duration: Duration) -> Option<Result<Vec<u8>, String>> {
        let started = ProfilerGuardBuilder::default()
            .frequency(FREQUENCY)
            .blocklist(&NOT_WALKED)
            .build();
        let samples = match started {
            Ok(samples) => samples,
            Err(error) => return Some(Err(format!("Could not enable CPU profiling: {error}"))),
        };
        tokio::time::sleep(duration).await;
        // It reads the symbols of the program from its file.
        let report = tokio::task::spawn_blocking(move || report(&samples)).await;
        Some(report.unwrap_or_else(|error| Err(error.to_string())))
    }

    async fn heap(&self) -> Option<Result<Vec<u8>, String>> {
        None
    }
}

fn report(samples: &ProfilerGuard<'_>) -> Result<Vec<u8>, String> {
    let report = samples.report().build().map_err(|error| error.to_string())?;
    let profile = report.pprof().map_err(|error| error.to_string())?;
    let mut compressed = GzEncoder::new(Vec::new(), Compression::default());
    let written = compressed.write_all(&profile.encode_to_vec());
    let done = written.and_then(|()| compressed.finish());
    done.map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use flate2::read::GzDecoder;
    use pprof::protos::Profile;

    use super::*;

    #[tokio::test]
    async fn one_profile_at_a_time_with_samples_of_what_runs() {
        let profiler = CpuProfiler::new();
        let working = async {
            let second = profiler.cpu(Duration::from_millis(1)).await.unwrap();
            assert!(second.unwrap_err().starts_with("Could not enable CPU profiling"));
            // Until the profiling timer has expired some times.
            let begun = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
            let used =
                || rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime).tv_sec - begun.tv_sec;
            while used() < 2 {
                std::hint::black_box(vec![0_u8; 1 << 16]);
            }
        };
        let (first, ()) = tokio::join!(profiler.cpu(Duration::from_millis(10)), working);
        let mut bytes = Vec::new();
        GzDecoder::new(&*first.unwrap().unwrap())
            .read_to_end(&mut bytes)
            .unwrap();
        let profile = Profile::decode(&*bytes).unwrap();
        assert!(!profile.sample.is_empty());
        let names: Vec<&str> = profile
            .sample_type
            .iter()
            .map(|kind| &*profile.string_table[usize::try_from(kind.ty).unwrap()])
            .collect();
        assert_eq!(names, ["samples", "cpu"]);
        assert!(profiler.heap().await.is_none());
        // It can be started again.
        assert!(profiler.cpu(Duration::ZERO).await.unwrap().is_ok());
    }
}
