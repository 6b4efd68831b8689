//! `/healthz`: whether the parts of the agent make progress (`healthz.InstallHandler`).

use std::fmt::Write as _;

use http::{Response, StatusCode};
use kubelet_core::HealthChecks;

use super::metrics::MetricsSource;
use super::parameters;
use crate::body::{self, Body};

/// The answer to `/healthz` or `/healthz/NAME`.
pub(crate) fn serve(
    checks: &HealthChecks,
    metrics: Option<&dyn MetricsSource>,
    path: &str,
    query: &str,
) -> Response<Body> {
    match path.strip_prefix("/healthz/") {
        Some(name) => one(checks, name),
        None => all(checks, metrics, query),
    }
}

fn one(checks: &HealthChecks, name: &str) -> Response<Body> {
    match checks.look(|check| check == name).as_slice() {
        [(_, true), ..] => body::text(StatusCode::OK, "ok"),
        // The reason is in the log. The kubelet has it in the answer, too.
        _ => body::http_error(
            StatusCode::INTERNAL_SERVER_ERROR,
            "internal server error: reason withheld",
        ),
    }
}

fn all(checks: &HealthChecks, metrics: Option<&dyn MetricsSource>, query: &str) -> Response<Body> {
    let mut excluded: Vec<String> = parameters(query, "exclude").collect();
    excluded.sort();
    excluded.dedup();
    let found = checks.look(|name| !excluded.iter().any(|excluded| excluded == name));
    for (name, healthy) in &found {
        metrics.inspect(|metrics| metrics.observe_health_check(name, *healthy));
    }
    let mut report = String::new();
    // Writing to a string does not fail.
    for name in checks.names() {
        let _ = match found.iter().find(|(found, _)| **found == *name) {
            None => writeln!(report, "[+]{name} excluded: ok"),
            Some((_, true)) => writeln!(report, "[+]{name} ok"),
            Some((_, false)) => writeln!(report, "[-]{name} failed: reason withheld"),
        };
    }
    let unknown: Vec<String> = excluded
        .iter()
        .filter(|excluded| !checks.names().any(|name| name == *excluded))
        .map(|excluded| format!("{excluded:?}"))
        .collect();
    if !unknown.is_empty() {
        let unknown = unknown.join(", ");
        let _ = writeln!(
            report,
            "warn: some health checks cannot be excluded: no matches for {unknown}"
        );
    }
    if found.iter().any(|(_, is_well)| !is_well) {
        let report = format!("{report}healthz check failed");
        return body::http_error(StatusCode::INTERNAL_SERVER_ERROR, &report);
    }
    let verbose = parameters(query, "verbose").next().is_some();
    let text = if verbose {
        format!("{report}healthz check passed\n")
    } else {
        "ok".into()
    };
    body::with(
        body::text(StatusCode::OK, text),
        http::header::X_CONTENT_TYPE_OPTIONS,
        "nosniff",
    )
}
