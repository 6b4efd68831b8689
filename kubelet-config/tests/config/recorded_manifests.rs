//! Manifest decoding held to what the kubelet makes of the same files.
use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use flate2::read::GzDecoder;
use kubelet_config::manifest::{Location, decode};
use serde::Deserialize;
use serde_json::Value;

/// The recorded cases where we differ, and why. A case that no longer differs must leave the list.
const KNOWN_MISSES: &[(&str, &str)] = &[];

#[derive(Deserialize)]
struct Case {
    name: String,
    file: String,
    pod: Option<Value>,
    error: Option<String>,
}

fn cases() -> Vec<Case> {
    // Whole manifests, and odd values of each field.
    let recordings: [&[u8]; 2] = [
        include_bytes!("../data/manifests.jsonl.gz"),
        include_bytes!("../data/manifests-odd.jsonl.gz"),
    ];
    let mut text = String::new();
    for packed in recordings {
        GzDecoder::new(packed).read_to_string(&mut text).unwrap();
    }
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn decodes_as_recorded() {
    let known: BTreeMap<_, _> = KNOWN_MISSES.iter().copied().collect();
    let mut wrong = Vec::new();
    for case in cases() {
        let difference = differs(&case);
        match (difference, known.get(case.name.as_str())) {
            (None, None) | (Some(_), Some(_)) => {}
            (Some(difference), None) => wrong.push(format!("{}: {difference}", case.name)),
            (None, Some(_)) => wrong.push(format!("{}: is right now, take it off the list", case.name)),
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of the cases:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

fn differs(case: &Case) -> Option<String> {
    let path = Path::new("/etc/kubernetes/manifests/pod.yaml");
    let decoded = decode(case.file.as_bytes(), "node-1", Location::File(path));
    match (decoded, &case.pod, &case.error) {
        (Ok(manifest), Some(expected), _) => {
            let mut pod = serde_json::to_value(&manifest.pod).unwrap();
            hide_generated(&mut pod);
            differing_field(&pod, expected, "")
        }
        (Err(error), None, Some(expected)) => {
            let field = rejected_field(expected);
            let found = field.is_none_or(|field| error.to_string().contains(field));
            (!found).then(|| format!("expected {expected:?}, got {error}"))
        }
        (Ok(_), _, _) => Some(format!(
            "should be refused: {}",
            case.error.as_deref().unwrap_or_default()
        )),
        (Err(error), _, _) => Some(format!("should be accepted, got: {error}")),
    }
}

/// The field or the resource that the refusal is about.
fn rejected_field(error: &str) -> Option<&str> {
    if let Some(resource) = error.strip_prefix("static pods may not reference ") {
        return Some(resource);
    }
    let field = error.strip_prefix("invalid pod: [")?.split(": ").next()?;
    Some(field)
}

fn hide_generated(pod: &mut Value) {
    let object = pod.as_object_mut().unwrap();
    object.remove("apiVersion");
    object.remove("kind");
    let uid = pod["metadata"]["uid"].as_str().unwrap().to_owned();
    assert_eq!(uid.len(), 32);
    pod["metadata"]["uid"] = "<generated>".into();
    let hash = &mut pod["metadata"]["annotations"]["kubernetes.io/config.hash"];
    assert_eq!(*hash, Value::from(uid));
    *hash = "<generated>".into();
}

fn differing_field(ours: &Value, theirs: &Value, path: &str) -> Option<String> {
    match (ours, theirs) {
        (Value::Object(a), Value::Object(b)) => {
            let keys: std::collections::BTreeSet<_> = a.keys().chain(b.keys()).collect();
            keys.into_iter().find_map(|key| {
                let null = Value::Null;
                let (a, b) = (a.get(key).unwrap_or(&null), b.get(key).unwrap_or(&null));
                differing_field(a, b, &format!("{path}.{key}"))
            })
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            let mut pairs = a.iter().zip(b).enumerate();
            pairs.find_map(|(index, (a, b))| differing_field(a, b, &format!("{path}[{index}]")))
        }
        (a, b) => (a != b).then(|| format!("{path}: {a}, recorded {b}")),
    }
}
