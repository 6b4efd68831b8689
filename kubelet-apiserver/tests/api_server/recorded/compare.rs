//! Compares whole responses. Values that differ from run to run are mapped.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::replay::Answer;

/// Values that differ from run to run: the recording's value, and the one here.
#[derive(Default)]
pub(crate) struct Names {
    here: BTreeMap<String, String>,
    versions: BTreeMap<u64, u64>,
    /// Versions that controllers made. In the recording they come later than here.
    unordered: BTreeSet<u64>,
}

/// Kinds of resources that are not served: their entries in the discovery document are left out of it.
const NOT_SERVED: [&str; 14] = [
    "bindings",
    "componentstatuses",
    "endpoints",
    "limitranges",
    "persistentvolumeclaims",
    "persistentvolumes",
    "podtemplates",
    "replicationcontrollers",
    "resourcequotas",
    "nodes/proxy",
    "pods/proxy",
    "services/proxy",
    "namespaces/finalize",
    "pods/attach",
];
/// Streaming from a node's kubelet is not served, either.
const NOT_STREAMED: [&str; 3] = ["pods/exec", "pods/log", "pods/portforward"];
/// Values that depend on the build and the address of the recorded server.
const OF_THE_BUILD: [&str; 8] = [
    "buildDate",
    "compiler",
    "gitCommit",
    "gitTreeState",
    "goVersion",
    "platform",
    "serverAddressByClientCIDRs",
    "storageVersionHash",
];

impl Names {
    /// A text of the recording as it is here.
    pub(crate) fn here(&self, text: &str) -> String {
        let mut text = text.to_owned();
        if let Some(version) = text
            .split(['?', '&'])
            .find_map(|part| part.strip_prefix("resourceVersion="))
            .and_then(|version| version.parse::<u64>().ok())
            && let Some(here) = self.versions.get(&version)
        {
            let (from, to) = (
                format!("resourceVersion={version}"),
                format!("resourceVersion={here}"),
            );
            text = text.replace(&from, &to);
        }
        for (there, here) in &self.here {
            text = text.replace(there, here);
        }
        text
    }

    /// An object of the recording as it is here.
    pub(crate) fn translate(&self, object: &mut Value) {
        match object {
            Value::String(text) => *text = self.here(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.translate(item)),
            Value::Object(fields) => {
                for (key, value) in fields {
                    let version = value.as_str().and_then(|text| text.parse::<u64>().ok());
                    match version.and_then(|version| self.versions.get(&version)) {
                        Some(here) if key == "resourceVersion" => *value = here.to_string().into(),
                        _ => self.translate(value),
                    }
                }
            }
            _ => {}
        }
    }

    /// Learns the UID and the version of an object.
    pub(crate) fn learn(&mut self, there: &Value, here: &Value) {
        for key in ["uid", "resourceVersion"] {
            if let (Some(there), Some(here)) = (there[key].as_str(), here[key].as_str()) {
                let _ = self.same(key, there, here);
            }
        }
    }

    /// All differences between a response and the recorded one.
    pub(crate) fn compare(&mut self, record: &Value, answer: Answer) -> Vec<String> {
        let mut differences = Vec::new();
        let path = record["path"].as_str().unwrap_or_default();
        let version = record["response"]["metadata"]["resourceVersion"].as_str();
        if path.contains("certificatesigningrequests")
            && let Some(version) = version.and_then(|version| version.parse().ok())
        {
            self.unordered.insert(version);
        }
        if record["status"] != answer.status {
            differences.push(format!("status: {} is {}", record["status"], answer.status));
        }
        for (name, value) in record["response_headers"].as_object().into_iter().flatten() {
            let found = answer
                .headers
                .iter()
                .find(|(key, _)| key.eq_ignore_ascii_case(name));
            let found = found.map(|(_, value)| value.as_str());
            if found != value.as_str() {
                differences.push(format!("header {name}: {value} is {found:?}"));
            }
        }
        let there = match &record["events"] {
            Value::Array(events) => events.clone(),
            _ => vec![record["response"].clone()],
        };
        let count = there.len();
        if count != answer.documents.len() {
            let kinds: Vec<String> = answer
                .documents
                .iter()
                .map(|document| {
                    let meta = &document["object"]["metadata"];
                    format!(
                        "{} {} {}",
                        document["type"], meta["name"], meta["resourceVersion"]
                    )
                })
                .collect();
            differences.push(format!(
                "documents: {count} are {}: {}",
                kinds.len(),
                kinds.join(", ")
            ));
        }
        for (index, (mut there, mut here)) in there.into_iter().zip(answer.documents).enumerate() {
            leave_out(&mut there);
            leave_out(&mut here);
            let path = if count == 1 {
                String::new()
            } else {
                format!("[{index}]")
            };
            self.differ(&path, &there, &here, &mut differences);
        }
        differences
    }

    /// Where versions did not grow as in the recording.
    pub(crate) fn disorder(&self) -> Vec<String> {
        let ordered = self
            .versions
            .iter()
            .filter(|(there, _)| !self.unordered.contains(there));
        let pairs: Vec<_> = ordered.collect();
        pairs
            .windows(2)
            .filter(|pair| pair[0].1 > pair[1].1)
            .map(|pair| {
                format!(
                    "versions {:?} and {:?} are in another order here",
                    pair[0], pair[1]
                )
            })
            .collect()
    }

    fn differ(&mut self, path: &str, there: &Value, here: &Value, differences: &mut Vec<String>) {
        match (there, here) {
            (Value::Object(there), Value::Object(here)) => {
                let keys = there
                    .keys()
                    .chain(here.keys().filter(|key| !there.contains_key(*key)));
                for key in keys {
                    let path = format!("{path}.{key}");
                    match (there.get(key), here.get(key)) {
                        (Some(there), Some(here)) => self.differ(&path, there, here, differences),
                        (Some(there), None) => differences.push(format!("{path}: {there} is missing")),
                        (_, here) => {
                            differences.push(format!("{path}: {} is too much", here.unwrap_or(&Value::Null)));
                        }
                    }
                }
            }
            (Value::Array(there), Value::Array(here)) if there.len() == here.len() => {
                for (index, (there, here)) in there.iter().zip(here).enumerate() {
                    self.differ(&format!("{path}[{index}]"), there, here, differences);
                }
            }
            (Value::String(there), Value::String(here)) => {
                let key = path.rsplit('.').next().unwrap_or_default();
                if !self.same(key, there, here) {
                    differences.push(format!("{path}: {there:?} is {here:?}"));
                }
            }
            (there, here) if there != here => differences.push(format!("{path}: {there} is {here}")),
            _ => {}
        }
    }

    /// Whether a text is the recorded one.
    fn same(&mut self, key: &str, there: &str, here: &str) -> bool {
        let random = ["gen-", "kube-api-access-"]
            .iter()
            .any(|prefix| there.starts_with(prefix) && here.starts_with(prefix) && there.len() == here.len());
        match key {
            "resourceVersion" => {
                let (Ok(there), Ok(here)) = (there.parse(), here.parse()) else {
                    return there == here;
                };
                *self.versions.entry(there).or_insert(here) == here
            }
            "uid" | "continue" => self.known(there, here),
            "token" if there == "<token>" => here.split('.').count() == 3,
            "certificate" if there == "<certificate>" => {
                here.starts_with("LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0t")
            }
            "message" => {
                // Behind the first line the API server shows how its own types differ.
                let first = |text: &str| text.split('\n').next().unwrap_or_default().to_owned();
                let numberless =
                    |text: &str| text.chars().filter(|c| !c.is_ascii_digit()).collect::<String>();
                let expected = self.here(there);
                expected == here
                    || there.contains('\n') && first(&expected) == first(here)
                    || there.contains("resource version") && numberless(there) == numberless(here)
            }
            _ if random => self.known(there, here),
            _ => self.here(there) == here,
        }
    }

    fn known(&mut self, there: &str, here: &str) -> bool {
        self.here
            .entry(there.to_owned())
            .or_insert_with(|| here.to_owned())
            == here
    }
}

/// Leaves out what is of the recorded server's build, and what a downstream added to it.
pub(crate) fn leave_out(value: &mut Value) {
    match value {
        Value::Array(items) => {
            items.retain(|item| {
                let name = item["name"].as_str().unwrap_or_default();
                let resource = item.get("singularName").is_some();
                let hidden = NOT_SERVED.iter().any(|hidden| {
                    name == *hidden
                        || name
                            .strip_prefix(hidden)
                            .is_some_and(|rest| rest.starts_with('/'))
                });
                item["configMap"]["name"] != "openshift-service-ca.crt"
                    && !(resource && (hidden || NOT_STREAMED.contains(&name)))
            });
            items.iter_mut().for_each(leave_out);
        }
        Value::Object(fields) => {
            for key in OF_THE_BUILD {
                fields.remove(key);
            }
            // How the recorded user was authenticated.
            if fields.get("extra").is_some_and(credential) {
                fields.remove("extra");
            }
            fields.values_mut().for_each(leave_out);
        }
        _ => {}
    }
}

fn credential(extra: &Value) -> bool {
    extra.as_object().is_some_and(|extra: &Map<String, Value>| {
        extra
            .keys()
            .all(|key| key == "authentication.kubernetes.io/credential-id")
    })
}
