//! `KubeletConfiguration` held to what the kubelet makes of the same files.
use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use flate2::read::GzDecoder;
use kubelet_config::kubelet_configuration::validation::Host;
use kubelet_config::kubelet_configuration::{ConfigurationLoader, Decoding};
use kubelet_config::{ConfigurationStage, Error};
use serde::Deserialize;
use serde_json::Value;

/// Where the recorded files lay, as relative paths in them show.
const RECORDED_FOLDER: &str = "/etc/kubernetes/";

/// The recorded cases where we differ, and why. A case that no longer differs must leave the list.
const KNOWN_DIFFERENCES: &[(&str, &str)] = &[(
    "showHiddenMetricsForVersion=\"1.35\"",
    "the recorded build bears no version, so that no version is the one before it; to v1.36 this one is",
)];

#[derive(Deserialize)]
struct Case {
    name: String,
    input: String,
    kubeletconfig: Option<Value>,
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
fn loads_as_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let cases = cases();
    assert_eq!(cases.len(), 706);
    let known: BTreeMap<_, _> = KNOWN_DIFFERENCES.iter().copied().collect();
    let mut wrong = Vec::new();
    for case in &cases {
        let name = &case.name;
        match (differs(case, folder.path()), known.get(name.as_str())) {
            (None, None) | (Some(_), Some(_)) => {}
            (Some(difference), None) => wrong.push(format!("{name}: {difference}")),
            (None, Some(_)) => wrong.push(format!("{name}: is right now, take it off the list")),
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of the cases:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// The configuration as it is recorded: without the `apiVersion` and `kind` that `/configz` has.
pub(crate) fn without_type(mut shown: Value) -> Value {
    let configuration = shown["kubeletconfig"].as_object_mut().unwrap();
    assert_eq!(
        configuration.remove("apiVersion").unwrap(),
        "kubelet.config.k8s.io/v1beta1"
    );
    assert_eq!(configuration.remove("kind").unwrap(), "KubeletConfiguration");
    shown
}

fn differs(case: &Case, folder: &Path) -> Option<String> {
    let path = folder.join("config.yaml");
    std::fs::write(&path, &case.input).unwrap();
    // As the recorded kubelet: on cgroup v1, and without a log in JSON.
    let host = Host::default().with_cgroup_v1(true).with_json_log_format(false);
    let loaded = ConfigurationLoader::new()
        .config(&path)
        .decoding(Decoding::LenientFallback)
        .host(host)
        .load();
    match (loaded, &case.kubeletconfig) {
        (Ok(loaded), Some(expected)) => {
            let shown = serde_json::to_string(&loaded.config.configz()).unwrap();
            let shown = shown.replace(&format!("{}/", folder.display()), RECORDED_FOLDER);
            let shown = without_type(serde_json::from_str(&shown).unwrap());
            differing_field(&shown["kubeletconfig"], expected, "")
        }
        (Err(error), None) => wrongly_rejected(case, &error),
        (Ok(_), None) => Some(format!(
            "should be rejected: {}",
            case.error.as_deref().unwrap_or_default()
        )),
        (Err(error), Some(_)) => Some(format!("should be accepted, got: {error}")),
    }
}

/// How the rejection differs from the recorded one: by its stage, or by the field it is about.
fn wrongly_rejected(case: &Case, error: &Error) -> Option<String> {
    let expected = case.error.as_deref().unwrap();
    let stage = match case.rejected_at.as_deref().unwrap() {
        "load" => ConfigurationStage::Load,
        // The kubelet crashes on gates that cannot be.
        "featureGates" | "panic" => ConfigurationStage::FeatureGates,
        "validate" => ConfigurationStage::Validate,
        other => panic!("a stage {other:?}"),
    };
    if error.stage() != Some(stage) {
        return Some(format!("not at {stage}, but: {error}"));
    }
    // Most cases are a header and one line that sets the one field that is wrong.
    let (field, _) = case.name.split_once('=')?;
    let told = error.to_string().contains(field);
    (!told).then(|| format!("expected {expected:?}, got {error}, which does not tell of {field}"))
}

/// The first field that differs, with both values.
fn differing_field(value: &Value, expected: &Value, path: &str) -> Option<String> {
    match (value, expected) {
        (Value::Object(value), Value::Object(expected)) => {
            let keys = value.keys().chain(expected.keys());
            keys.into_iter().find_map(|key| {
                let null = Value::Null;
                let of = |fields: &serde_json::Map<String, Value>| fields.get(key).unwrap_or(&null).clone();
                let there = value.contains_key(key) == expected.contains_key(key);
                let difference = differing_field(&of(value), &of(expected), &format!("{path}.{key}"));
                difference.or_else(|| (!there).then(|| format!("{path}.{key} is there or not")))
            })
        }
        (value, expected) => (value != expected).then(|| format!("{path} is {value}, should be {expected}")),
    }
}
