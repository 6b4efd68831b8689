//! Decodes the manifest of a static pod.
//!
//! The steps are those of the kubelet. Text that starts with `{` is decoded as JSON, any other text as YAML
//! (booleans as in YAML 1.1, so `y` and `off` are booleans). Unset fields get the defaults of the API. The pod is
//! bound to the node and validated. A pod that refers to objects of the API server is rejected. Unknown fields are
//! ignored, and so are all documents after the first.

use std::path::Path;

use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;

use crate::yaml::{self, Duplicates};
use crate::{Error, Result};
use uid::Syntax;

mod canonical;
mod defaults;
mod references;
mod static_pod;
mod uid;
mod validation;

pub use defaults::set_defaults;

/// No manifest is as large as this (`maxConfigLength` of the kubelet's `config` package).
#[cfg(any(feature = "file", feature = "http"))]
pub(crate) const MAX_CONFIG_LENGTH: usize = 10 << 20;

/// The location of a manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Location<'a> {
    /// In a file of this node.
    File(&'a Path),
    /// At a URL.
    Url(&'a str),
}

/// A decoded manifest.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Manifest {
    /// The pod, ready to run on its node.
    pub pod: Pod,
    /// What was ignored in the text, one line each.
    pub passed_over: Vec<String>,
}

/// The pods of a manifest that may hold many.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Manifests {
    /// The pods, ready to run on their node, in the order of the list.
    pub pods: Vec<Pod>,
    /// What was ignored in the text, one line each.
    pub passed_over: Vec<String>,
}

/// Decodes the manifest of one pod for the node `node_name`.
///
/// The pod is named `<name>-<node name>`. If the manifest sets no UID, it gets the one that the kubelet v1.36 gives
/// it: a hash of the content, the node and the location, in 32 hexadecimal digits. So either takes over the pods of
/// the other. The UID is the same on every start. It changes if a field changes, but not if only the layout of the text
/// changes; an empty list and none differ, and so do `1` and `1000m`.
///
/// * A time, such as a `creationTimestamp`, is hashed with the node's time zone, which is taken to be UTC.
/// * A pod with a quantity beyond reason (an exponent or a number of digits over 1000) has a UID of its own, which is a hash of the manifest
///   as JSON with sorted keys. A line of the log at `debug` says so.
///
/// # Errors
/// [`Error::Parse`] if the text is not a pod of `v1`, [`Error::Invalid`] if the pod is invalid,
/// [`Error::ApiReference`] if it needs the API server.
pub fn decode(text: &[u8], node_name: &str, location: Location<'_>) -> Result<Manifest> {
    let text = read(text)?;
    check_kind(&text.canonical, "Pod")?;
    let pod = pod(text.canonical, &text.written, text.syntax, node_name, location)?;
    let passed_over = text.passed_over;
    Ok(Manifest { pod, passed_over })
}

/// Decodes the manifest of one pod, or of a `PodList` of any number, as [`decode`] does.
///
/// # Errors
/// Those of [`decode`]; [`Error::InvalidList`] with all invalid pods of a list. One invalid pod rejects the whole
/// list.
pub fn decode_list(text: &[u8], node_name: &str, location: Location<'_>) -> Result<Manifests> {
    let Text {
        mut canonical,
        written,
        syntax,
        passed_over,
    } = read(text)?;
    if check_kind(&canonical, "PodList").is_err() {
        check_kind(&canonical, "Pod")?;
        let pods = vec![pod(canonical, &written, syntax, node_name, location)?];
        return Ok(Manifests { pods, passed_over });
    }
    let items = match canonical.get_mut("items").map(Value::take) {
        None => Vec::new(),
        Some(Value::Array(items)) => items,
        Some(_) => {
            let message = "items: not a list".into();
            return Err(Error::Parse { message });
        }
    };
    let mut pods = Vec::with_capacity(items.len());
    let mut problems = Vec::new();
    for (index, mut item) in items.into_iter().enumerate() {
        if let Some(fields) = item.as_object_mut() {
            // The list says what its items are.
            fields.remove("kind");
            fields.remove("apiVersion");
        }
        match pod(item, &written["items"][index], syntax, node_name, location) {
            Ok(pod) => pods.push(pod),
            Err(error) => problems.push(format!("items[{index}]: {error}")),
        }
    }
    if problems.is_empty() {
        Ok(Manifests { pods, passed_over })
    } else {
        Err(Error::InvalidList { problems })
    }
}

/// A text that holds one pod or many.
struct Text {
    /// In the canonical form.
    canonical: Value,
    /// As it is in the text.
    written: Value,
    syntax: Syntax,
    passed_over: Vec<String>,
}

/// Reads a text that starts with `{` as JSON, and all else as YAML.
fn read(text: &[u8]) -> Result<Text> {
    let parse = |message: String| Error::Parse { message };
    let mut passed_over = Vec::new();
    let (mut canonical, written, syntax);
    if text.trim_ascii_start().starts_with(b"{") {
        let invalid = |error: serde_json::Error| parse(error.to_string());
        canonical = serde_json::from_slice(text).map_err(invalid)?;
        written = uid::json_text::read(&String::from_utf8_lossy(text)).map_err(invalid)?;
        syntax = Syntax::Json;
    } else {
        let mut document: yaml::Document<Value> = yaml::read(text, Duplicates::LastWins).map_err(parse)?;
        canonical::write_whole_numbers(&mut document.value);
        passed_over = document.passed_over;
        written = document.value;
        canonical = written.clone();
        syntax = Syntax::Yaml;
    }
    canonical::canonicalize(&mut canonical);
    Ok(Text {
        canonical,
        written,
        syntax,
        passed_over,
    })
}

/// The pod of a document in canonical form. `written` is the form that it has in the text.
fn pod(
    value: Value,
    written: &Value,
    syntax: Syntax,
    node_name: &str,
    location: Location<'_>,
) -> Result<Pod> {
    let mut pod: Pod = serde_path_to_error::deserialize(value).map_err(|error| Error::Parse {
        message: error.to_string(),
    })?;
    if pod.metadata.name.as_deref().unwrap_or_default().is_empty() {
        return Err(Error::Invalid {
            pod: None,
            problems: vec!["name is needed for the pod".into()],
        });
    }
    let content = json(&pod);
    canonical::check_quantities(&content)?;
    defaults::set_defaults(&mut pod);
    let uid = uid::kubelet_uid(&json(&pod), written, syntax, node_name, location);
    let uid = uid.unwrap_or_else(|reason| {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        tracing::debug!(pod = name, reason, "the UID differs from the kubelet's");
        uid::own_uid(&content, node_name, location)
    });
    static_pod::bind(&mut pod, node_name, location, uid);
    let problems = validation::validate(&pod);
    if !problems.is_empty() {
        return Err(Error::Invalid {
            pod: pod.metadata.name,
            problems,
        });
    }
    references::refuse_api_references(&pod)?;
    Ok(pod)
}

/// Only a map whose keys are not strings fails to become JSON, and a pod has none.
fn json(pod: &Pod) -> Value {
    serde_json::to_value(pod).unwrap_or_default()
}

fn check_kind(value: &Value, wanted: &str) -> Result<()> {
    let parse = |message: String| Err(Error::Parse { message });
    let Some(object) = value.as_object() else {
        return parse("not an object".into());
    };
    let text = |key: &str| object.get(key).and_then(|value| value.as_str());
    match (text("apiVersion"), text("kind")) {
        (_, None | Some("")) => parse("Object 'Kind' is missing".into()),
        (None | Some(""), _) => parse("Object 'apiVersion' is missing".into()),
        (Some("v1"), Some(kind)) if kind == wanted => Ok(()),
        (Some(version), Some(kind)) => parse(format!("not a Pod of v1 but a {kind} of {version}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uid(text: &str, node: &str, location: Location<'_>) -> String {
        let manifest = decode(text.as_bytes(), node, location).unwrap();
        manifest.pod.metadata.uid.unwrap()
    }

    const POD: &str =
        "---\n{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: c, image: i}]}}";
    const HERE: Location<'_> = Location::Url("http://here");

    #[test]
    fn the_uid_depends_on_content_node_and_location_but_not_on_layout() {
        let here = uid(POD, "n", HERE);
        let laid_out = r#"{"kind": "Pod", "spec": {"containers": [{"image": "i", "tty": false, "name": "c"}]},
            "apiVersion": "v1", "metadata": {"name": "a", "creationTimestamp": null}, "unknown": 1}"#;
        assert_eq!(uid(laid_out, "n", HERE), here);
        assert_ne!(uid(&POD.replace("image: i", "image: j"), "n", HERE), here);
        assert_ne!(uid(POD, "n", Location::Url("http://there")), here);
        let file = Location::File(Path::new("/a"));
        assert_ne!(uid(POD, "n", file), uid(POD, "m", file));
        assert_eq!(
            here, "85582beed57891ffa621a9a631e86c13",
            "the kubelet gives it this one"
        );
    }

    #[test]
    fn a_uid_of_the_manifest_is_kept() {
        let own = POD.replace("{name: a}", "{name: a, uid: mine}");
        let pod = decode(own.as_bytes(), "n", HERE).unwrap().pod;
        assert_eq!(pod.metadata.uid.as_deref(), Some("mine"));
        assert_eq!(
            pod.metadata.annotations.unwrap()["kubernetes.io/config.hash"],
            "mine"
        );
    }

    #[test]
    fn only_files_tolerate_the_nodes_trouble() {
        let tolerations = |location| {
            decode(POD.as_bytes(), "n", location)
                .unwrap()
                .pod
                .spec
                .unwrap()
                .tolerations
        };
        assert!(tolerations(HERE).is_none());
        assert_eq!(tolerations(Location::File(Path::new("/a"))).unwrap().len(), 1);
    }

    #[test]
    fn what_starts_as_json_is_json() {
        let json = |port: &str| {
            let text = format!(
                r#" {{"apiVersion": "v1", "kind": "Pod", "metadata": {{"name": "a"}}, "spec": {{"hostPID": true, "hostPID": false,
                "containers": [{{"name": "c", "image": "i", "ports": [{{"containerPort": {port}}}]}}]}}}}"#
            );
            decode(text.as_bytes(), "n", HERE)
        };
        assert_eq!(json("80").unwrap().pod.spec.unwrap().host_pid, None);
        for not_whole in ["80.0", "8e1"] {
            assert!(json(not_whole).is_err(), "{not_whole}");
        }
        for (from, to) in [("---\n", ""), ("---\n{", "{ ")] {
            assert!(decode(POD.replace(from, to).as_bytes(), "n", HERE).is_err());
        }
        let yaml = POD.replace("image: i", "image: i, ports: [{containerPort: 80.0}]");
        assert!(decode(yaml.as_bytes(), "n", HERE).is_ok());
    }

    #[test]
    fn unknown_fields_are_ignored_whatever_they_hold() {
        let pod = POD.replace(
            "image: i",
            "image: i, more: {limits: {cpu: x}, divisor: y, readOnly: 5}",
        );
        assert!(decode(pod.as_bytes(), "n", HERE).is_ok());
    }

    #[test]
    fn an_error_names_the_field() {
        for (from, to, field) in [
            ("image: i", "image: y", "spec.containers[0].image"),
            (
                "name: c",
                "name: c, ports: [{containerPort: x}]",
                "spec.containers[0].ports[0].containerPort",
            ),
            ("image: i", "image: i, resources: {limits: {cpu: x}}", "cpu"),
            (
                "image: i",
                "image: i, resources: {limits: {cpu: -1}}",
                "limits[cpu]",
            ),
        ] {
            let error = decode(POD.replace(from, to).as_bytes(), "n", HERE).unwrap_err();
            assert!(error.to_string().contains(field), "{error}");
        }
    }
}
