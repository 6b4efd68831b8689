//! Validation held to the kubelet's: a configuration that it rejects is rejected for the same fields.
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::Path;

use flate2::read::GzDecoder;
use kubelet_config::Error;
use kubelet_config::kubelet_configuration::validation::Host;
use kubelet_config::kubelet_configuration::{ConfigurationLoader, Decoding};
use serde::Deserialize;

/// The recorded cases where we differ, and why. A case that no longer differs must leave the list.
const KNOWN_DIFFERENCES: &[(&str, &str)] = &[(
    "showHiddenMetricsForVersion=\"1.35\"",
    "the recorded build bears no version, so that no version is the one before it; to v1.36 this one is",
)];

/// What a message says, and the fields it is about where it does not name them.
const FIELDS_OF_MESSAGES: &[(&str, &[&str])] = &[
    (
        "is configured to not run on a host using cgroup v1",
        &["failCgroupV1"],
    ),
    ("invalid taint", &["registerWithTaints"]),
    ("taint.TimeAdded", &["registerWithTaints"]),
    ("NUMA node", &["reservedMemory"]),
    ("pod logs path", &["podLogsDir"]),
    // A rule about two fields is told of the one that is the matter.
    (
        "imageGCLowThresholdPercent (--image-gc-low-threshold)",
        &["imageGCLowThresholdPercent"],
    ),
    ("imageMaximumGCAge", &["imageMaximumGCAge"]),
    ("maxParallelImagePulls", &["maxParallelImagePulls"]),
    (
        "shutdownGracePeriodCriticalPods {",
        &["shutdownGracePeriodCriticalPods"],
    ),
    (
        "shutdownGracePeriodByPodPriority",
        &["shutdownGracePeriodByPodPriority"],
    ),
    (
        "systemReservedCgroup (--system-reserved-cgroup) must be",
        &["systemReservedCgroup"],
    ),
    (
        "kubeReservedCgroup (--kube-reserved-cgroup) must be",
        &["kubeReservedCgroup"],
    ),
    ("can't use reservedSystemCPUs", &["reservedSystemCPUs"]),
    ("cgroupsPerQOS", &["cgroupsPerQOS"]),
    ("systemCgroups", &["systemCgroups"]),
    (
        "enableSystemLogHandler is required for",
        &["enableSystemLogQuery"],
    ),
    (
        "preloadedImagesVerificationAllowlist",
        &["preloadedImagesVerificationAllowlist"],
    ),
    ("memoryReservationPolicy", &["memoryReservationPolicy"]),
    (
        "CrashLoopBackOff.MaxContainerRestartPeriod",
        &["crashLoopBackOff.maxContainerRestartPeriod"],
    ),
];

/// Told one after the other by the kubelet, all together by us.
const ONE_AT_A_TIME: [&str; 3] = ["failCgroupV1", "singleProcessOOMKill", "userNamespaces"];

#[derive(Deserialize)]
struct Case {
    name: String,
    input: String,
    rejected_at: Option<String>,
    error: Option<String>,
}

fn cases() -> Vec<Case> {
    let packed: &[u8] = include_bytes!("../data/kubelet-configuration.jsonl.gz");
    let mut text = String::new();
    GzDecoder::new(packed).read_to_string(&mut text).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn rejects_for_the_recorded_fields() {
    let folder = tempfile::tempdir().unwrap();
    let known: BTreeMap<_, _> = KNOWN_DIFFERENCES.iter().copied().collect();
    let mut wrong = Vec::new();
    let mut rejected = 0;
    for case in cases() {
        if case.rejected_at.as_deref() != Some("validate") {
            continue;
        }
        rejected += 1;
        let name = &case.name;
        match (differs(&case, folder.path()), known.get(name.as_str())) {
            (None, None) | (Some(_), Some(_)) => {}
            (Some(difference), None) => wrong.push(format!("{name}: {difference}")),
            (None, Some(_)) => wrong.push(format!("{name}: is right now, take it off the list")),
        }
    }
    assert!(rejected > 0);
    assert!(
        wrong.is_empty(),
        "{} of the cases:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

fn differs(case: &Case, folder: &Path) -> Option<String> {
    let path = folder.join("config.yaml");
    std::fs::write(&path, &case.input).unwrap();
    // As the recorded kubelet: on cgroup v1, and without a log in JSON.
    let host = Host::default().with_cgroup_v1(true).with_json_log_format(false);
    let loader = ConfigurationLoader::new()
        .config(&path)
        .decoding(Decoding::LenientFallback);
    let errors = match loader.host(host).load() {
        Ok(_) => return Some("should be rejected".into()),
        Err(Error::Validation(errors)) => errors,
        Err(other) => return Some(format!("should be rejected by validation, got: {other}")),
    };
    // Where in a list something is wrong the kubelet mostly does not tell.
    let field = |field: &str| field.split('[').next().unwrap().to_owned();
    let ours: BTreeSet<_> = errors.errors().iter().map(|error| field(&error.field)).collect();
    let message = case.error.as_deref().unwrap();
    let messages = message.trim_start_matches('[').trim_end_matches(']');
    let messages = messages
        .split(", invalid configuration: ")
        .map(|message| fields_of(message, &ours));
    let recorded: BTreeSet<_> = messages.flatten().collect();
    let extra_allowed = |field: &&String| ONE_AT_A_TIME.iter().any(|one| field.starts_with(one));
    let same = recorded.is_subset(&ours) && ours.difference(&recorded).all(|field| extra_allowed(&field));
    (!same).then(|| format!("rejected for {ours:?}, should be for {recorded:?}: {message}"))
}

/// The fields that a message is about. It names them by their whole path, or by the end of it.
fn fields_of(message: &str, ours: &BTreeSet<String>) -> Vec<String> {
    if let Some((_, fields)) = FIELDS_OF_MESSAGES.iter().find(|(part, _)| message.contains(part)) {
        return fields.iter().map(|&field| field.to_owned()).collect();
    }
    let words: BTreeSet<_> = message
        .split(|c: char| !(c.is_ascii_alphanumeric() || c == '.'))
        .map(|word| word.trim_end_matches('.'))
        .collect();
    let named: Vec<_> = ours
        .iter()
        .filter(|field| words.contains(field.as_str()))
        .cloned()
        .collect();
    if named.is_empty() {
        // Nothing we told: show it.
        return vec![message.to_owned()];
    }
    named
}
