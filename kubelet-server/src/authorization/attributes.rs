//! What a request asks for, in the words of the API (`nodeAuthorizerAttributesGetter`).

use std::sync::Arc;

use http::Method;

/// What a request asks for: a verb on a subresource of the node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Attributes {
    /// The verb: `get`, `create`… Empty for a method that the API does not know.
    pub verb: &'static str,
    /// The subresource of `nodes`: `proxy`, `stats`, `metrics`, `log`, `checkpoint`, `pods`, `healthz`, `configz` or
    /// `statusz`.
    pub subresource: &'static str,
    /// The name of the node.
    pub node_name: Arc<str>,
}

/// The verb that a user needs for exec, attach, port-forward and run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StreamVerb {
    /// `create`, whatever the method. A WebSocket request is a `GET`; so the kubelet lets users that may only read
    /// `nodes/proxy` run commands.
    #[default]
    Create,
    /// The verb of the method, as the kubelet has it: `get` for a `GET`.
    OfMethod,
}

/// The attributes of a request, in the order in which they are tried. One that is allowed is enough.
pub(super) fn of_request(
    node_name: &Arc<str>,
    method: &Method,
    path: &str,
    streams: StreamVerb,
) -> Vec<Attributes> {
    let below = |root: &str| {
        path.strip_prefix(root)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let is_stream = ["/exec", "/attach", "/portForward", "/run"]
        .into_iter()
        .any(below);
    let verb = match *method {
        _ if is_stream && streams == StreamVerb::Create => "create",
        Method::POST => "create",
        Method::GET => "get",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => "",
    };
    let subresources: &[&str] = match () {
        () if below("/pods") || below("/runningpods") => &["pods", "proxy"],
        () if below("/healthz") => &["healthz", "proxy"],
        () if below("/configz") => &["configz", "proxy"],
        () if below("/stats") => &["stats"],
        () if below("/metrics") => &["metrics"],
        () if below("/logs") => &["log"],
        () if below("/checkpoint") => &["checkpoint"],
        () if below("/statusz") => &["statusz"],
        () if below("/flagz") => &["configz"],
        () => &["proxy"],
    };
    let attributes = |subresource: &&'static str| Attributes {
        verb,
        subresource,
        node_name: node_name.clone(),
    };
    subresources.iter().map(attributes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_attributes_of_requests() {
        let of = |method: &str, path: &str, streams| {
            let method = Method::from_bytes(method.as_bytes()).unwrap();
            let all = of_request(&Arc::from("n"), &method, path, streams);
            all.iter()
                .map(|it| format!("{} {}", it.verb, it.subresource))
                .collect::<Vec<_>>()
                .join(", ")
        };
        for (method, path, expected) in [
            ("GET", "/pods", "get pods, get proxy"),
            ("GET", "/pods/", "get pods, get proxy"),
            ("GET", "/podsy", "get proxy"),
            ("POST", "/runningpods/", "create pods, create proxy"),
            ("GET", "/healthz/ping", "get healthz, get proxy"),
            ("PUT", "/configz", "update configz, update proxy"),
            ("GET", "/metrics/cadvisor", "get metrics"),
            ("GET", "/stats/summary", "get stats"),
            ("DELETE", "/logs/syslog", "delete log"),
            ("POST", "/checkpoint/ns/pod/c", "create checkpoint"),
            ("GET", "/statusz", "get statusz"),
            ("GET", "/flagz", "get configz"),
            ("HEAD", "/metrics", " metrics"),
            ("OPTIONS", "/debug/pprof/", " proxy"),
            ("GET", "/containerLogs/ns/pod/c", "get proxy"),
            ("GET", "/exec/ns/pod/c", "create proxy"),
            ("POST", "/exec/ns/pod/c", "create proxy"),
            ("GET", "/attach/ns/pod/c", "create proxy"),
            ("GET", "/portForward/ns/pod", "create proxy"),
            ("PUT", "/run/ns/pod/c", "create proxy"),
            ("GET", "/execute", "get proxy"),
        ] {
            assert_eq!(of(method, path, StreamVerb::Create), expected, "{method} {path}");
        }
        assert_eq!(of("GET", "/exec/ns/pod/c", StreamVerb::OfMethod), "get proxy");
    }
}
