//! [`Grants`]: rules that a test adds, in place of RBAC objects.

use parking_lot::Mutex;

use super::access::Access;
use crate::server::ApiServer;

/// The rules, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Grants(Mutex<Vec<Grant>>);

#[derive(Debug)]
struct Grant {
    /// The name of a user or of a group.
    subject: String,
    verbs: Vec<String>,
    /// `plural`, `plural.group`, `plural/subresource`, or a path.
    resources: Vec<String>,
}

impl ApiServer {
    /// Allows a user or a group to do more, as a ClusterRole with a ClusterRoleBinding does. The rule holds for the
    /// requests that this server gets, and for each `SubjectAccessReview`.
    ///
    /// `resources` are named as `kubectl auth can-i` names them: `pods`, `nodes/metrics`, `leases.coordination.k8s.io`, `*`.
    /// `pods/*` are the sub-resources of pods; `*/scale` is this sub-resource of each resource. An entry that begins with
    /// `/` is a path that is no resource, such as `/metrics`; with `*` at its end it is a prefix. The verb `*` is every verb.
    ///
    /// ```
    /// let server = kubelet_apiserver::ApiServer::new();
    /// server.grant("system:serviceaccount:monitoring:prometheus", &["get"], &["nodes/metrics", "/metrics"]);
    /// ```
    pub fn grant(&self, subject: &str, verbs: &[&str], resources: &[&str]) {
        let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        self.shared.grants.0.lock().push(Grant {
            subject: subject.to_owned(),
            verbs: owned(verbs),
            resources: owned(resources),
        });
    }

    /// Removes all rules that [`grant`](Self::grant) added for a user or a group.
    pub fn revoke(&self, subject: &str) {
        let mut grants = self.shared.grants.0.lock();
        grants.retain(|grant| grant.subject != subject);
    }
}

impl Grants {
    /// Why the user may do this; `None` if no rule allows it.
    pub(super) fn allow(&self, access: &Access<'_>) -> Option<String> {
        let grants = self.0.lock();
        let grant = grants.iter().find(|grant| grant.allows(access))?;
        let kind = if grant.subject == access.user.name {
            "User"
        } else {
            "Group"
        };
        Some(super::bound("granted", kind, &grant.subject))
    }
}

impl Grant {
    fn allows(&self, access: &Access<'_>) -> bool {
        let subject = self.subject == access.user.name || access.is_in(&self.subject);
        let verb = self.verbs.iter().any(|verb| verb == "*" || verb == access.verb);
        subject && verb && self.resources.iter().any(|resource| covers(resource, access))
    }
}

fn covers(rule: &str, access: &Access<'_>) -> bool {
    if let Some(path) = access.path {
        return super::path_matches(rule, path);
    }
    if rule == "*" {
        return true;
    }
    let (resource, subresource) = rule.split_once('/').unwrap_or((rule, ""));
    let same_resource = match resource.split_once('.') {
        _ if resource == "*" => true,
        Some((plural, group)) => plural == access.resource && group == access.group,
        None => resource == access.resource && access.group.is_empty(),
    };
    let same_subresource = match subresource {
        "*" => !access.subresource.is_empty(),
        other => other == access.subresource,
    };
    same_resource && same_subresource
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::*;
    use crate::request::User;

    #[test]
    fn cover_what_rbac_covers() {
        let user = User::node("n");
        // The rule, the group, the resource, the sub-resource, whether it is allowed.
        let cases = [
            ("pods", "", "pods", "", true),
            ("pods", "", "pods", "log", false),
            ("pods", "metrics.k8s.io", "pods", "", false),
            ("pods.metrics.k8s.io", "metrics.k8s.io", "pods", "", true),
            ("pods/log", "", "pods", "log", true),
            ("pods/*", "", "pods", "log", true),
            ("pods/*", "", "pods", "", false),
            ("*/scale", "apps", "deployments", "scale", true),
            ("*/scale", "apps", "deployments", "status", false),
            ("*", "apps", "deployments", "status", true),
            ("/metrics", "", "pods", "", false),
        ];
        for (rule, group, resource, subresource, allowed) in cases {
            let access = Access {
                user: &user,
                verb: "get",
                path: None,
                group,
                resource,
                subresource,
                namespace: "",
                name: Cow::Borrowed(""),
                field_selector: "",
            };
            assert_eq!(covers(rule, &access), allowed, "{rule} {resource}/{subresource}");
            let path = |path| Access {
                path: Some(path),
                ..access.clone()
            };
            assert_eq!(
                covers(rule, &path("/metrics")),
                matches!(rule, "/metrics" | "*"),
                "{rule}"
            );
        }
    }
}
