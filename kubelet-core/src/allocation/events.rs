//! The messages of events about resizes: they contain the resources as JSON (`pkg/kubelet/events`).

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod, ResourceClaim};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde::Serialize;

use crate::quantity::canonical;

/// `podResourceSummary`
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Summary<'a> {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    init_containers: Vec<ContainerSummary<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    containers: Vec<ContainerSummary<'a>>,
    generation: i64,
    #[serde(skip_serializing_if = "str::is_empty")]
    error: &'a str,
}

/// `containerAllocation`
#[derive(Serialize)]
struct ContainerSummary<'a> {
    name: &'a str,
    resources: Resources<'a>,
}

/// In the order in which Go writes the fields.
#[derive(Default, Serialize)]
struct Resources<'a> {
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    limits: BTreeMap<&'a str, String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    requests: BTreeMap<&'a str, String>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    claims: &'a [ResourceClaim],
}

/// The message of an event about a resize of this pod to the resources of its spec: `prefix`, then the resources
/// (`podResizeMessage`).
pub(crate) fn resize_message(prefix: &str, pod: &Pod, generation: i64, error: &str) -> String {
    let spec = pod.spec.as_ref();
    let init = spec
        .into_iter()
        .flat_map(|spec| spec.init_containers.iter().flatten());
    let regular = spec.into_iter().flat_map(|spec| &spec.containers);
    let summary = Summary {
        init_containers: init.map(ContainerSummary::of).collect(),
        containers: regular.map(ContainerSummary::of).collect(),
        generation,
        error,
    };
    match serde_json::to_string(&summary) {
        Ok(json) => format!("{prefix}: {}", as_go_writes(&json)),
        Err(_) => prefix.to_owned(),
    }
}

impl<'a> ContainerSummary<'a> {
    fn of(container: &'a Container) -> Self {
        let resources = container.resources.as_ref();
        let resources = resources.map(|resources| Resources {
            limits: list(resources.limits.as_ref()),
            requests: list(resources.requests.as_ref()),
            claims: resources.claims.as_deref().unwrap_or_default(),
        });
        Self {
            name: &container.name,
            resources: resources.unwrap_or_default(),
        }
    }
}

fn list(of: Option<&BTreeMap<String, Quantity>>) -> BTreeMap<&str, String> {
    let all = of.into_iter().flatten();
    all.map(|(name, quantity)| (name.as_str(), canonical(quantity)))
        .collect()
}

/// Go escapes characters that are special in HTML, and two line separators.
fn as_go_writes(json: &str) -> String {
    let mut written = String::with_capacity(json.len());
    for letter in json.chars() {
        match letter {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                written.push_str(&format!("\\u{:04x}", u32::from(letter)));
            }
            letter => written.push(letter),
        }
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn message(spec: Value, generation: i64, error: &str) -> String {
        let pod: Pod = serde_json::from_value(json!({"spec": spec})).unwrap();
        resize_message("Pod resize", &pod, generation, error)
    }

    #[test]
    fn the_resources_of_all_containers_are_told_as_json() {
        let all = json!({"requests": {"cpu": "1000m", "memory": "100"}, "limits": {"memory": "2048Mi", "cpu": "100m"}});
        let sidecar =
            json!({"name": "s", "restartPolicy": "Always", "resources": {"limits": {"cpu": "200m"}}});
        let table = [
            (
                json!({"containers": [{"name": "c0"}]}),
                3,
                "",
                r#"{"containers":[{"name":"c0","resources":{}}],"generation":3}"#,
            ),
            (
                json!({"containers": [{"name": "c0", "resources": all}]}),
                1,
                "",
                r#"{"containers":[{"name":"c0","resources":{"limits":{"cpu":"100m","memory":"2Gi"},"requests":{"cpu":"1","memory":"100"}}}],"generation":1}"#,
            ),
            (
                json!({
                    "initContainers": [sidecar],
                    "containers": [{"name": "c1", "resources": {"claims": [{"name": "gpu"}]}}],
                }),
                0,
                "a < b & \"c\"",
                r#"{"initContainers":[{"name":"s","resources":{"limits":{"cpu":"200m"}}}],"containers":[{"name":"c1","resources":{"claims":[{"name":"gpu"}]}}],"generation":0,"error":"a \u003c b \u0026 \"c\""}"#,
            ),
        ];
        for (spec, generation, error, expected) in table {
            assert_eq!(
                message(spec, generation, error),
                format!("Pod resize: {expected}")
            );
        }
    }
}
