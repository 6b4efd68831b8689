//! [`Target`]: the meaning of a request's path.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

use crate::resource::{Resource, Served};

/// The target of a path.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// `/version`.
    Version,
    /// `/healthz`, `/livez`, `/readyz` and what is below.
    Health,
    /// `/api`.
    CoreVersions,
    /// `/apis`.
    Groups,
    /// `/apis/<group>`.
    Group(String),
    /// `/api/v1`, `/apis/<group>/<version>`.
    Resources { group: String, version: String },
    /// `/openapi/v2`.
    OpenApiV2,
    /// `/openapi/v3`.
    OpenApiV3Index,
    /// `/openapi/v3/<path>`.
    OpenApiV3(String),
    /// A collection, an object or what is below it.
    Objects(ObjectPath),
    /// A group and version that is served, with a path that is not.
    UnknownResource,
    /// Any other path.
    Nothing,
}

/// The path of a resource.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ObjectPath {
    pub(super) resource: &'static Resource,
    /// Empty for the object itself.
    pub(super) subresource: &'static str,
    /// Empty for cluster-wide ones.
    pub(super) namespace: String,
    /// Empty for collections.
    pub(super) name: String,
    /// What follows `nodes/<name>/proxy` or `pods/<name>/proxy`, as it was written; otherwise empty.
    pub(super) tail: String,
}

impl Target {
    /// The target of a path of a server that serves these resources.
    pub(super) fn of(served: Served, path: &str) -> Target {
        let segments: Vec<Cow<'_, str>> = path
            .split('/')
            .filter(|segment| !segment.is_empty())
            .map(|segment| percent_decode_str(segment).decode_utf8_lossy())
            .collect();
        let segments: Vec<&str> = segments.iter().map(AsRef::as_ref).collect();
        match segments.as_slice() {
            ["version"] => Target::Version,
            ["healthz" | "livez" | "readyz", ..] => Target::Health,
            ["api"] => Target::CoreVersions,
            ["apis"] => Target::Groups,
            ["openapi", "v2"] => Target::OpenApiV2,
            ["openapi", "v3"] => Target::OpenApiV3Index,
            ["openapi", "v3", rest @ ..] => Target::OpenApiV3(rest.join("/")),
            ["api", "v1", "nodes", name, "proxy", ..] => {
                let nodes = Resource::find("", "v1", "nodes");
                proxy(cluster_wide(nodes, name, "proxy"), path, 5)
            }
            ["api", "v1", "namespaces", namespace, "pods", name, "proxy", ..] => {
                let pods = Resource::find("", "v1", "pods");
                proxy(namespaced(pods, namespace, name, "proxy"), path, 7)
            }
            ["api", version, rest @ ..] => below(served, "", version, rest),
            ["apis", group] => known_group(served, group).map_or(Target::Nothing, Target::Group),
            ["apis", group, version, rest @ ..] => below(served, group, version, rest),
            _ => Target::Nothing,
        }
    }
}

/// `segments` are those of the path up to `proxy`.
fn proxy(found: Option<ObjectPath>, path: &str, segments: usize) -> Target {
    let tail = path
        .trim_start_matches('/')
        .splitn(segments + 1, '/')
        .nth(segments);
    match found {
        None => Target::UnknownResource,
        Some(proxied) => Target::Objects(ObjectPath {
            tail: tail.map(|tail| format!("/{tail}")).unwrap_or_default(),
            ..proxied
        }),
    }
}

fn known_group(served: Served, group: &str) -> Option<String> {
    served
        .resources()
        .any(|r| r.group == group && !group.is_empty())
        .then(|| group.to_owned())
}

fn below(served: Served, group: &str, version: &str, rest: &[&str]) -> Target {
    if !served
        .resources()
        .any(|r| r.group == group && r.version == version)
    {
        return Target::Nothing;
    }
    let find = |plural: &str| served.find(group, version, plural);
    let target = match rest {
        [] => {
            return Target::Resources {
                group: group.to_owned(),
                version: version.to_owned(),
            };
        }
        ["namespaces", name, subresource @ ("status" | "finalize")] if group.is_empty() => {
            object(find("namespaces"), "", name, subresource)
        }
        ["namespaces", namespace, plural] => namespaced(find(plural), namespace, "", ""),
        ["namespaces", namespace, plural, name] => namespaced(find(plural), namespace, name, ""),
        ["namespaces", namespace, plural, name, subresource] => {
            namespaced(find(plural), namespace, name, subresource)
        }
        [plural] => object(find(plural), "", "", ""),
        [plural, name] => cluster_wide(find(plural), name, ""),
        [plural, name, subresource] => cluster_wide(find(plural), name, subresource),
        _ => None,
    };
    target.map_or(Target::UnknownResource, Target::Objects)
}

fn namespaced(
    resource: Option<&'static Resource>,
    namespace: &str,
    name: &str,
    subresource: &str,
) -> Option<ObjectPath> {
    object(resource.filter(|r| r.namespaced), namespace, name, subresource)
}

fn cluster_wide(resource: Option<&'static Resource>, name: &str, subresource: &str) -> Option<ObjectPath> {
    object(resource.filter(|r| !r.namespaced), "", name, subresource)
}

fn object(
    resource: Option<&'static Resource>,
    namespace: &str,
    name: &str,
    subresource: &str,
) -> Option<ObjectPath> {
    let resource = resource?;
    let subresource = match subresource {
        "" => "",
        name => resource.subresources.iter().find(|s| **s == name)?,
    };
    Some(ObjectPath {
        resource,
        subresource,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        tail: String::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn understands_paths() {
        let objects = |path| match Target::of(Served::default(), path) {
            Target::Objects(path) => (path.resource.kind, path.namespace, path.name, path.subresource),
            other => panic!("{path}: {other:?}"),
        };
        for (path, kind, namespace, name, subresource) in [
            ("/api/v1/pods", "Pod", "", "", ""),
            ("/api/v1/namespaces/n/pods", "Pod", "n", "", ""),
            ("/api/v1/namespaces/n/pods/a%2Db/", "Pod", "n", "a-b", ""),
            ("/api/v1/namespaces/n/pods/a/status", "Pod", "n", "a", "status"),
            ("/api/v1/namespaces", "Namespace", "", "", ""),
            ("/api/v1/namespaces/n", "Namespace", "", "n", ""),
            ("/api/v1/namespaces/n/status", "Namespace", "", "n", "status"),
            ("/api/v1/nodes/n/status", "Node", "", "n", "status"),
            (
                "/apis/coordination.k8s.io/v1/namespaces/n/leases/l",
                "Lease",
                "n",
                "l",
                "",
            ),
        ] {
            assert_eq!(objects(path), (kind, namespace.into(), name.into(), subresource));
        }
        #[cfg(feature = "tls")]
        for (path, name, tail) in [
            ("/api/v1/nodes/n/proxy", "n", ""),
            ("/api/v1/nodes/n:10250/proxy/", "n:10250", "/"),
            (
                "/api/v1/nodes/https:n:/proxy/logs/a%2Fb//c/",
                "https:n:",
                "/logs/a%2Fb//c/",
            ),
            ("/api/v1/namespaces/n/pods/p/proxy", "p", ""),
            ("/api/v1/namespaces/n/pods/p:80/proxy/a%2Fb//", "p:80", "/a%2Fb//"),
        ] {
            let Target::Objects(found) = Target::of(Served::default(), path) else {
                panic!("{path}")
            };
            assert_eq!(
                (&*found.name, found.subresource, &*found.tail),
                (name, "proxy", tail)
            );
        }
        for (path, target) in [
            ("/version", Target::Version),
            ("/livez/ping", Target::Health),
            ("/api/v1/bogus", Target::UnknownResource),
            ("/api/v1/namespaces/n/nodes/a", Target::UnknownResource),
            ("/api/v1/pods/a", Target::UnknownResource),
            ("/api/v1/namespaces/n/pods/a/bogus", Target::UnknownResource),
            ("/apis/bogus/v1", Target::Nothing),
            ("/api/v2", Target::Nothing),
            ("/", Target::Nothing),
        ] {
            assert_eq!(Target::of(Served::default(), path), target, "{path}");
        }
    }
}
