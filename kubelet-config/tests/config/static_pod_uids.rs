//! The UIDs of static pods held to those that the kubelet v1.36 gave to the same manifests.
use std::io::Read;
use std::path::Path;

use flate2::read::GzDecoder;
use k8s_openapi::api::core::v1::Pod;
use kubelet_config::manifest::{Location, decode, decode_list};
use serde::Deserialize;

#[derive(Deserialize)]
struct Case {
    name: String,
    file: String,
    node: String,
    /// Where the file is, if it is one.
    path: Option<String>,
    url: Option<String>,
    /// Whether it is a list.
    #[serde(default)]
    list: bool,
    /// Those of all its pods.
    uids: Vec<String>,
}

fn cases() -> Vec<Case> {
    let packed: &[u8] = include_bytes!("../data/static-pod-uids.jsonl.gz");
    let mut text = String::new();
    GzDecoder::new(packed).read_to_string(&mut text).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn pods(case: &Case) -> kubelet_config::Result<Vec<Pod>> {
    let path = case.path.as_deref().unwrap_or_default();
    let location = match &case.url {
        Some(url) => Location::Url(url),
        None => Location::File(Path::new(path)),
    };
    if case.list {
        return Ok(decode_list(case.file.as_bytes(), &case.node, location)?.pods);
    }
    Ok(vec![decode(case.file.as_bytes(), &case.node, location)?.pod])
}

#[test]
fn uids_are_as_recorded() {
    let mut wrong = Vec::new();
    for case in cases() {
        let pods = match pods(&case) {
            Ok(pods) => pods,
            Err(error) => {
                wrong.push(format!("{}: {error}", case.name));
                continue;
            }
        };
        for pod in &pods {
            let annotations = pod.metadata.annotations.as_ref().unwrap();
            let hash = annotations.get("kubernetes.io/config.hash");
            assert_eq!(hash, pod.metadata.uid.as_ref(), "{}", case.name);
        }
        let uids: Vec<_> = pods.into_iter().filter_map(|pod| pod.metadata.uid).collect();
        if uids != case.uids {
            wrong.push(format!("{}: {uids:?}, recorded {:?}", case.name, case.uids));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of the cases:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}
