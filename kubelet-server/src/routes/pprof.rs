//! `/debug/pprof/`: profiles of the agent, those that it has.

use std::time::Duration;

use async_trait::async_trait;
use http::{HeaderValue, Method, Response, StatusCode};

use super::parameter;
use crate::body::{self, Body};

/// How long the CPU is profiled, unless the client says so (`pprof.Profile`).
const SECONDS: Duration = Duration::from_secs(30);
/// The longest profile.
const MAX_SECONDS: u64 = 600;

/// Makes profiles of the agent, in the format of `pprof` (compressed protobuf). A Rust program has no profile of goroutines, of
/// created threads or of mutexes: requests for these are answered with status 404.
///
/// # Cancel safety
///
/// A call is dropped when the client is gone.
#[async_trait]
pub trait Profiler: Send + Sync {
    /// Where the agent spends its CPU time in the next `duration`; `None` if that cannot be measured.
    ///
    /// # Errors
    ///
    /// If it failed. The client receives the message.
    async fn cpu(&self, duration: Duration) -> Option<Result<Vec<u8>, String>>;

    /// What the agent holds in memory; `None` if that cannot be measured.
    ///
    /// # Errors
    ///
    /// As for [`cpu`](Self::cpu).
    async fn heap(&self) -> Option<Result<Vec<u8>, String>>;
}

/// The answer to a request below `/debug/pprof/`.
pub(crate) async fn serve(
    profiler: Option<&dyn Profiler>,
    method: &Method,
    path: &str,
    query: &str,
) -> Response<Body> {
    if method != Method::GET {
        return body::method_not_allowed("GET");
    }
    let Some(profiler) = profiler else {
        return body::not_found();
    };
    let made = match path.strip_prefix("/debug/pprof/").unwrap_or_default() {
        "" => return body::text(StatusCode::OK, "/debug/pprof/\nprofile\nheap\ncmdline\n"),
        "cmdline" => {
            let words: Vec<String> = std::env::args().collect();
            return body::text(StatusCode::OK, words.join("\0"));
        }
        "profile" => {
            let seconds = parameter(query, "seconds").and_then(|seconds| seconds.parse::<u64>().ok());
            let seconds = seconds
                .filter(|seconds| *seconds > 0)
                .map(|seconds| seconds.min(MAX_SECONDS));
            profiler.cpu(seconds.map_or(SECONDS, Duration::from_secs)).await
        }
        "heap" | "allocs" => profiler.heap().await,
        _ => None,
    };
    match made {
        None => body::not_found(),
        Some(Ok(profile)) => body::answer(
            StatusCode::OK,
            HeaderValue::from_static("application/octet-stream"),
            profile,
        ),
        Some(Err(error)) => body::http_error(StatusCode::INTERNAL_SERVER_ERROR, &error),
    }
}
