//! Formats pods as a table.

use std::fmt::Write as _;

use k8s_openapi::api::core::v1::ContainerStatus;
use k8s_openapi::jiff::Timestamp;
use kubelet_core::PodExt;
use kubelet_status::ReportedPod;

/// A row of the table, in the words of `kubectl get pods`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) phase: String,
    pub(crate) ready: String,
    pub(crate) restarts: i32,
    pub(crate) age: String,
    pub(crate) reason: String,
}

impl Row {
    pub(crate) fn of(ReportedPod { pod, status, .. }: &ReportedPod, now: Timestamp) -> Self {
        let containers = status.container_statuses.as_deref().unwrap_or_default();
        let init = status.init_container_statuses.as_deref().unwrap_or_default();
        let ready = containers.iter().filter(|container| container.ready).count();
        let total = pod.spec.as_ref().map_or(0, |spec| spec.containers.len());
        let reason = status.reason.clone().or_else(|| init.iter().chain(containers).find_map(trouble));
        let age = status.start_time.as_ref().map(|start| age(now.as_second() - start.0.as_second()));
        Self {
            name: pod.key().to_string(),
            phase: status.phase.clone().unwrap_or_else(|| "Pending".to_owned()),
            ready: format!("{ready}/{total}"),
            restarts: containers.iter().map(|container| container.restart_count).sum(),
            age: age.unwrap_or_default(),
            reason: reason.unwrap_or_default(),
        }
    }
}

/// Why a container is not running and has not ended well.
fn trouble(status: &ContainerStatus) -> Option<String> {
    let state = status.state.as_ref()?;
    if let Some(waiting) = &state.waiting {
        return waiting.reason.clone();
    }
    let ended = state.terminated.as_ref().filter(|ended| ended.exit_code != 0)?;
    Some(format!("{} ({})", ended.reason.as_deref().unwrap_or("Error"), ended.exit_code))
}

fn age(seconds: i64) -> String {
    match seconds {
        ..120 => format!("{}s", seconds.max(0)),
        120..7_200 => format!("{}m", seconds / 60),
        7_200..172_800 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// The table with a heading.
pub(crate) fn table(rows: &[Row]) -> String {
    let width = rows.iter().map(|row| row.name.len()).chain([4]).max().unwrap_or(4);
    let mut text = format!(
        "{:width$}  {:9}  {:5}  {:8}  {:>5}  {}\n",
        "POD", "PHASE", "READY", "RESTARTS", "AGE", "REASON"
    );
    for row in rows {
        let Row { name, phase, ready, restarts, age, reason } = row;
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{name:width$}  {phase:9}  {ready:5}  {restarts:<8}  {age:>5}  {reason}");
    }
    text
}
