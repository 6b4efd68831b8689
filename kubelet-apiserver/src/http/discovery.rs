//! Discovery: the groups, versions and resources that are served.

use std::collections::BTreeMap;

use serde_json::{Value, json};

#[cfg(feature = "tls")]
use crate::metrics::is_metrics;
use crate::resource::{Resource, Served};
use crate::reviews::is_review;

/// The version of Kubernetes whose behaviour this server has.
pub(super) fn version() -> Value {
    json!({
        "major": "1", "minor": "36", "emulationMajor": "1", "emulationMinor": "36", "minCompatibilityMajor": "1",
        "minCompatibilityMinor": "35", "gitVersion": "v1.36.2", "gitCommit": "", "gitTreeState": "",
        "buildDate": "1970-01-01T00:00:00Z", "goVersion": "", "compiler": "", "platform": "linux/amd64",
    })
}

/// `/api`.
pub(super) fn core_versions() -> Value {
    json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []})
}

/// `/apis`.
pub(super) fn groups(served: Served) -> Value {
    let mut names: Vec<&str> = named_groups(served).map(|(name, _)| name).collect();
    names.dedup();
    let groups: Vec<Value> = names.into_iter().map(|name| group_of(served, name)).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// `/apis/<group>`.
pub(super) fn group(served: Served, name: &str) -> Value {
    let mut group = named_groups(served)
        .find(|(known, _)| *known == name)
        .map_or(Value::Null, |(name, _)| group_of(served, name));
    group["kind"] = json!("APIGroup");
    group["apiVersion"] = json!("v1");
    group
}

/// `/api/v1`, `/apis/<group>/<version>`.
pub(super) fn resources(served: Served, group: &str, version: &str) -> Value {
    let mut resources = Vec::new();
    for resource in of_version(served, group, version) {
        let mut entry = json!({
            "name": resource.plural, "singularName": resource.singular, "namespaced": resource.namespaced,
            "kind": resource.kind, "verbs": verbs(resource),
        });
        if !resource.short_names.is_empty() {
            entry["shortNames"] = json!(resource.short_names);
        }
        if is_of_all(resource) {
            entry["categories"] = json!(["all"]);
        }
        resources.push(entry);
        for subresource in resource.subresources {
            let Subresource {
                kind,
                group,
                version,
                verbs,
            } = subresource_of(resource, subresource);
            let mut entry = json!({
                "name": format!("{}/{subresource}", resource.plural), "singularName": "",
                "namespaced": resource.namespaced, "kind": kind, "verbs": verbs,
            });
            if group != resource.group {
                entry["group"] = json!(group);
                entry["version"] = json!(version);
            }
            resources.push(entry);
        }
    }
    resources.sort_by_key(|entry| entry["name"].as_str().map(str::to_owned));
    let group_version = Some(group)
        .filter(|g| !g.is_empty())
        .map_or_else(|| version.to_owned(), |group| format!("{group}/{version}"));
    let mut list = json!({"kind": "APIResourceList", "groupVersion": group_version, "resources": resources});
    // The list of the core group has no group.
    if !group.is_empty() {
        list["apiVersion"] = json!("v1");
    }
    list
}

/// Whether `kubectl get all` shows the resource. The pods and nodes of the metrics have the same names.
fn is_of_all(resource: &Resource) -> bool {
    resource.group.is_empty() && matches!(resource.plural, "pods" | "services")
}

/// `/api` and `/apis` in one response each, for newer clients.
pub(super) fn aggregated(served: Served, core: bool) -> Value {
    let mut groups: BTreeMap<&str, BTreeMap<&str, Vec<Value>>> = BTreeMap::new();
    for resource in served.resources().filter(|r| r.group.is_empty() == core) {
        let subresources: Vec<Value> = resource
            .subresources
            .iter()
            .map(|name| {
                let Subresource {
                    kind,
                    group,
                    version,
                    verbs,
                } = subresource_of(resource, name);
                json!({
                    "subresource": name, "verbs": verbs,
                    "responseKind": {"group": group, "version": version, "kind": kind},
                })
            })
            .collect();
        let mut entry = json!({
            "resource": resource.plural, "singularResource": resource.singular, "verbs": verbs(resource),
            "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
            "responseKind": {"group": resource.group, "version": resource.version, "kind": resource.kind},
        });
        if !resource.short_names.is_empty() {
            entry["shortNames"] = json!(resource.short_names);
        }
        if is_of_all(resource) {
            entry["categories"] = json!(["all"]);
        }
        if !subresources.is_empty() {
            entry["subresources"] = json!(subresources);
        }
        let versions = groups.entry(resource.group).or_default();
        versions.entry(resource.version).or_default().push(entry);
    }
    let items: Vec<Value> = groups
        .into_iter()
        .map(|(group, versions)| {
            let versions: Vec<Value> = versions
                .into_iter()
                .map(|(version, resources)| {
                    json!({"version": version, "resources": resources, "freshness": "Current"})
                })
                .collect();
            match group {
                "" => json!({"metadata": {}, "versions": versions}),
                group => json!({"metadata": {"name": group}, "versions": versions}),
            }
        })
        .collect();
    json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items,
    })
}

/// The groups and versions that are served; the core group as an empty name.
pub(super) fn group_versions(served: Served) -> Vec<(&'static str, &'static str)> {
    let mut all: Vec<_> = served.resources().map(|r| (r.group, r.version)).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// The resources of a group and version.
pub(super) fn of_version(
    served: Served,
    group: &str,
    version: &str,
) -> impl Iterator<Item = &'static Resource> {
    served
        .resources()
        .filter(move |r| r.group == group && r.version == version)
}

fn named_groups(served: Served) -> impl Iterator<Item = (&'static str, &'static str)> {
    group_versions(served)
        .into_iter()
        .filter(|(group, _)| !group.is_empty())
}

/// A group with its versions, the preferred one first.
fn group_of(served: Served, name: &str) -> Value {
    let versions: Vec<Value> = named_groups(served)
        .filter(|(group, _)| *group == name)
        .map(|(_, version)| json!({"groupVersion": format!("{name}/{version}"), "version": version}))
        .collect();
    json!({"name": name, "versions": versions, "preferredVersion": versions.first()})
}

fn verbs(resource: &Resource) -> Value {
    if is_review(resource) {
        return json!(["create"]);
    }
    #[cfg(feature = "tls")]
    if is_metrics(resource) {
        return json!(["get", "list"]);
    }
    if resource.plural == "namespaces" {
        return json!(["create", "delete", "get", "list", "patch", "update", "watch"]);
    }
    json!([
        "create",
        "delete",
        "deletecollection",
        "get",
        "list",
        "patch",
        "update",
        "watch"
    ])
}

/// A sub-resource: the kind that it reads and writes, and its verbs.
pub(super) struct Subresource {
    kind: &'static str,
    group: &'static str,
    version: &'static str,
    pub(super) verbs: &'static [&'static str],
}

pub(super) fn subresource_of(resource: &Resource, name: &str) -> Subresource {
    let of_kind = |kind, group, verbs| Subresource {
        kind,
        group,
        version: "v1",
        verbs,
    };
    match name {
        "binding" => of_kind("Binding", "", &["create"]),
        "eviction" => of_kind("Eviction", "policy", &["create"]),
        "token" => of_kind("TokenRequest", "authentication.k8s.io", &["create"]),
        "log" => of_kind("Pod", "", &["get"]),
        "exec" => of_kind("PodExecOptions", "", &["create", "get"]),
        "attach" => of_kind("PodAttachOptions", "", &["create", "get"]),
        "portforward" => of_kind("PodPortForwardOptions", "", &["create", "get"]),
        "proxy" => of_kind(
            if resource.namespaced {
                "PodProxyOptions"
            } else {
                "NodeProxyOptions"
            },
            "",
            &["create", "delete", "get", "patch", "update"],
        ),
        _ => Subresource {
            kind: resource.kind,
            group: resource.group,
            version: resource.version,
            verbs: &["get", "patch", "update"],
        },
    }
}

/// Whether a sub-resource is one that nodes or pods serve.
pub(super) fn is_forwarded(subresource: &str) -> bool {
    is_stream(subresource) || matches!(subresource, "log" | "proxy")
}

/// Whether a sub-resource is a stream into a pod.
pub(super) fn is_stream(subresource: &str) -> bool {
    matches!(subresource, "exec" | "attach" | "portforward")
}
