//! Which paths the server knows, and what serves them.

use kubelet_core::HealthChecks;

/// What serves a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Endpoint {
    Healthz,
    Metrics,
    Pods,
    Stats,
    ContainerLogs,
    Exec,
    Attach,
    PortForward,
    Run,
    RunningPods,
    Checkpoint,
    Configz,
    SystemLogs,
    DebugFlags,
    Pprof,
    Flagz,
    Statusz,
    /// A path of the embedder.
    Other(usize),
}

/// Which requests a path takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Match {
    /// This path alone.
    Exact,
    /// The path, and all below it.
    Tree,
    /// All below the path. Without the slash at its end, the client is redirected.
    Below,
}

/// What becomes of a request before its sender is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// It goes to this endpoint.
    Endpoint(Endpoint),
    /// The endpoint is switched off.
    DebuggingDisabled,
    /// The path lacks a slash at its end.
    Redirect,
}

/// A path of the table.
struct Route {
    path: &'static str,
    matches: Match,
    endpoint: Endpoint,
    /// Whether the read-only server has it, too (`InstallAuthNotRequiredHandlers`).
    read_only: bool,
    /// Whether the path says so where debugging handlers are off (`InstallDebuggingDisabledHandlers`).
    says_disabled: bool,
}

const fn route(path: &'static str, matches: Match, endpoint: Endpoint) -> Route {
    Route {
        path,
        matches,
        endpoint,
        read_only: false,
        says_disabled: false,
    }
}

const fn open(route: Route) -> Route {
    Route {
        read_only: true,
        ..route
    }
}

const fn debugging(route: Route) -> Route {
    Route {
        says_disabled: true,
        ..route
    }
}

/// All paths but those of single health checks.
const ROUTES: &[Route] = &[
    open(route("/healthz", Match::Exact, Endpoint::Healthz)),
    open(route("/metrics", Match::Exact, Endpoint::Metrics)),
    open(route("/metrics/cadvisor", Match::Exact, Endpoint::Metrics)),
    open(route("/metrics/probes", Match::Exact, Endpoint::Metrics)),
    open(route("/metrics/resource", Match::Exact, Endpoint::Metrics)),
    open(route("/metrics/slis", Match::Exact, Endpoint::Metrics)),
    open(route("/pods", Match::Tree, Endpoint::Pods)),
    open(route("/stats/", Match::Below, Endpoint::Stats)),
    debugging(route("/containerLogs", Match::Tree, Endpoint::ContainerLogs)),
    debugging(route("/exec", Match::Tree, Endpoint::Exec)),
    debugging(route("/attach", Match::Tree, Endpoint::Attach)),
    debugging(route("/portForward", Match::Tree, Endpoint::PortForward)),
    debugging(route("/run", Match::Tree, Endpoint::Run)),
    debugging(route("/runningpods/", Match::Below, Endpoint::RunningPods)),
    debugging(route("/logs/", Match::Below, Endpoint::SystemLogs)),
    debugging(route("/debug/pprof/", Match::Below, Endpoint::Pprof)),
    route("/checkpoint/", Match::Below, Endpoint::Checkpoint),
    route("/configz", Match::Exact, Endpoint::Configz),
    route("/debug/flags/v", Match::Exact, Endpoint::DebugFlags),
    route("/flagz", Match::Exact, Endpoint::Flagz),
    route("/statusz", Match::Exact, Endpoint::Statusz),
];

/// The paths of one server.
#[derive(Clone, Debug)]
pub(crate) struct Routes {
    /// Whether it has all endpoints, or only those that read the state of the node.
    pub(crate) debugging: bool,
    pub(crate) checkpoint: bool,
    pub(crate) flagz: bool,
    pub(crate) statusz: bool,
    pub(crate) checks: HealthChecks,
    /// The paths of the embedder, each with all below it.
    pub(crate) others: Vec<String>,
}

impl Routes {
    /// What serves a path. `None`: Go's "404 page not found", for everybody.
    pub(crate) fn find(&self, path: &str) -> Option<Found> {
        let other = self.others.iter().position(|prefix| is_below(path, prefix));
        if let Some(other) = other {
            return Some(Found::Endpoint(Endpoint::Other(other)));
        }
        if let Some(name) = path.strip_prefix("/healthz/") {
            return self
                .checks
                .names()
                .any(|check| check == name)
                .then_some(Found::Endpoint(Endpoint::Healthz));
        }
        ROUTES.iter().find_map(|route| {
            let bare = route.path.trim_end_matches('/');
            let matches = match route.matches {
                Match::Exact => path == route.path,
                Match::Tree => is_below(path, route.path),
                Match::Below => path.starts_with(route.path),
            };
            let served = route.read_only || self.debugging && self.has(route.endpoint);
            match served {
                true if matches => Some(Found::Endpoint(route.endpoint)),
                true => (route.matches == Match::Below && path == bare).then_some(Found::Redirect),
                // Where it is off, only what is below says so.
                false if self.debugging || !route.says_disabled => None,
                false if path == bare => Some(Found::Redirect),
                false => is_below(path, bare).then_some(Found::DebuggingDisabled),
            }
        })
    }

    fn has(&self, endpoint: Endpoint) -> bool {
        match endpoint {
            Endpoint::Checkpoint => self.checkpoint,
            Endpoint::Flagz => self.flagz,
            Endpoint::Statusz => self.statusz,
            _ => true,
        }
    }

    /// The paths that `/statusz` lists: those of single handlers, not of go-restful's services.
    pub(crate) fn listed(&self) -> Vec<&str> {
        let exact = ROUTES
            .iter()
            .filter(|route| route.matches == Match::Exact && self.has(route.endpoint));
        let mut paths: Vec<&str> = exact
            .map(|route| route.path)
            .filter(|path| *path != "/statusz")
            .collect();
        paths.sort_unstable();
        paths
    }

    /// Every path that the server may serve, without those below them.
    pub(crate) fn all(&self) -> impl Iterator<Item = String> {
        let checks = self.checks.names().map(|name| format!("/healthz/{name}"));
        ROUTES
            .iter()
            .map(|route| route.path.to_owned())
            .chain(checks)
            .chain(self.others.iter().cloned())
    }
}

fn is_below(path: &str, root: &str) -> bool {
    path.strip_prefix(root)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The path without `.`, `..` and doubled slashes, as Go's `ServeMux` has it (`cleanPath`).
pub(crate) fn clean(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    let mut clean = format!("/{}", parts.join("/"));
    if path.ends_with('/') && clean != "/" {
        clean.push('/');
    }
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    fn routes(debugging: bool) -> Routes {
        let checks = HealthChecks::new().check("syncloop", || Ok(()));
        let others = vec!["/mine".to_owned()];
        Routes {
            debugging,
            checkpoint: true,
            flagz: true,
            statusz: true,
            checks,
            others,
        }
    }

    #[test]
    fn paths_are_cleaned_as_in_go() {
        for (path, expected) in [
            ("/", "/"),
            ("", "/"),
            ("/pods", "/pods"),
            ("/pods/", "/pods/"),
            ("//pods", "/pods"),
            ("/logs/../etc/passwd", "/etc/passwd"),
            ("/logs/./x", "/logs/x"),
            ("/../..", "/"),
            ("/a/b/..", "/a"),
            ("/a/b/../", "/a/"),
        ] {
            assert_eq!(clean(path), expected, "{path}");
        }
    }

    #[test]
    fn what_serves_a_path() {
        use Endpoint::*;
        let endpoint = |endpoint| Some(Found::Endpoint(endpoint));
        for (path, full, read_only) in [
            ("/", None, None),
            ("/nope", None, None),
            ("/readyz", None, None),
            ("/healthz", endpoint(Healthz), endpoint(Healthz)),
            ("/healthz/syncloop", endpoint(Healthz), endpoint(Healthz)),
            ("/healthz/nope", None, None),
            ("/pods", endpoint(Pods), endpoint(Pods)),
            ("/pods/", endpoint(Pods), endpoint(Pods)),
            ("/podsy", None, None),
            ("/stats", Some(Found::Redirect), Some(Found::Redirect)),
            ("/stats/summary", endpoint(Stats), endpoint(Stats)),
            ("/metrics/slis", endpoint(Metrics), endpoint(Metrics)),
            ("/metrics/nope", None, None),
            ("/exec/a/b/c", endpoint(Exec), Some(Found::DebuggingDisabled)),
            ("/exec", endpoint(Exec), Some(Found::Redirect)),
            (
                "/logs/syslog",
                endpoint(SystemLogs),
                Some(Found::DebuggingDisabled),
            ),
            ("/logs", Some(Found::Redirect), Some(Found::Redirect)),
            ("/configz", endpoint(Configz), None),
            ("/checkpoint/a/b/c", endpoint(Checkpoint), None),
            ("/debug/flags/v", endpoint(DebugFlags), None),
            ("/mine/x", endpoint(Other(0)), endpoint(Other(0))),
        ] {
            assert_eq!(routes(true).find(path), full, "{path}");
            assert_eq!(
                routes(false).find(path),
                read_only,
                "{path} where debugging is off"
            );
        }
    }
}
