//! `/flagz` and `/statusz`: the flags and the state of the agent, as text or as an object of `config.k8s.io`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use http::header::{ACCEPT, WARNING};
use http::{HeaderMap, Response, StatusCode};
use k8s_openapi::jiff::Timestamp;
use k8s_openapi::jiff::tz::TimeZone;
use serde_json::{Value, json};

use crate::body::{self, Body};

/// What `/statusz` reports of the agent (`statusz` of `k8s.io/component-base/zpages`).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AgentVersion {
    /// Its version.
    pub binary_version: String,
    /// What it was built with. The kubelet has the version of Go here.
    pub compiler: String,
    /// The version of Kubernetes whose kubelet it emulates, `MAJOR.MINOR`.
    pub emulation_version: String,
    /// When it was started.
    pub start_time: Timestamp,
}

impl AgentVersion {
    /// An agent of this version, built with `rustc`, that emulates Kubernetes 1.36.
    pub fn new(binary_version: impl Into<String>, start_time: Timestamp) -> Self {
        let binary_version = binary_version.into();
        Self {
            binary_version,
            compiler: "rustc".into(),
            emulation_version: "1.36".into(),
            start_time,
        }
    }
}

/// The answer to `/flagz`.
pub(crate) fn flagz(flags: &BTreeMap<String, String>, headers: &HeaderMap) -> Response<Body> {
    let mut text = heading("flagz");
    for (name, value) in flags {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{name}={value}");
    }
    negotiate("Flagz", headers, text, || json!({ "flags": flags }))
}

/// The answer to `/statusz`.
pub(crate) fn statusz(
    agent: &AgentVersion,
    paths: &[&str],
    now: Timestamp,
    headers: &HeaderMap,
) -> Response<Body> {
    let started = agent.start_time.to_zoned(TimeZone::UTC);
    let uptime = now.as_second() - agent.start_time.as_second();
    let (hours, minutes, seconds) = (uptime / 3600, uptime / 60 % 60, uptime % 60);
    let text = format!(
        "{}\nStarted: {}\nUp: {} hr {minutes:02} min {seconds:02} sec\nCompiler: {}\nBinary version: {}\n\
         Emulation version: {}\nPaths: {}\n",
        heading("statusz"),
        started.strftime("%a %b %e %H:%M:%S UTC %Y"),
        hours,
        agent.compiler,
        agent.binary_version,
        agent.emulation_version,
        paths.join(" "),
    );
    negotiate("Statusz", headers, text, || {
        json!({
            "startTime": agent.start_time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            "uptimeSeconds": uptime,
            "goVersion": agent.compiler,
            "binaryVersion": agent.binary_version,
            "emulationVersion": agent.emulation_version,
            "paths": paths,
        })
    })
}

fn heading(page: &str) -> String {
    format!(
        "\nkubelet {page}\nWarning: This endpoint is not meant to be machine parseable, has no formatting \
         compatibility guarantees and is for debugging purposes only.\n"
    )
}

/// The page as text, or as an object if the client asks for one: `application/json;g=config.k8s.io;v=v1beta1;as=Flagz`.
fn negotiate(kind: &str, headers: &HeaderMap, text: String, object: impl Fn() -> Value) -> Response<Body> {
    let accept = headers
        .get(ACCEPT)
        .and_then(|accept| accept.to_str().ok())
        .unwrap_or_default();
    if accept.trim().is_empty() {
        return body::text(StatusCode::OK, text);
    }
    for wanted in accept.split(',') {
        let mut words = wanted.split(';').map(str::trim);
        let media = words.next().unwrap_or_default();
        let parameters: BTreeMap<&str, &str> = words.filter_map(|word| word.split_once('=')).collect();
        let of = |name: &str| parameters.get(name).copied();
        let asked = (of("g"), of("v"), of("as"));
        match (media, asked) {
            ("*/*" | "text/*" | "text/plain", (None, None, None)) => return body::text(StatusCode::OK, text),
            (
                "application/json" | "application/*" | "*/*",
                (Some("config.k8s.io"), Some(version), Some(asked)),
            ) if asked == kind && matches!(version, "v1alpha1" | "v1beta1") => {
                return structured(kind, version, object());
            }
            _ => {}
        }
    }
    let message = "only the following media types are accepted: text/plain, application/json";
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": "NotAcceptable", "code": 406,
    });
    body::answer(StatusCode::NOT_ACCEPTABLE, body::JSON, format!("{status}\n"))
}

fn structured(kind: &str, version: &str, mut object: Value) -> Response<Body> {
    object["kind"] = kind.into();
    object["apiVersion"] = format!("config.k8s.io/{version}").into();
    object["metadata"] = json!({ "name": "kubelet" });
    let response = body::answer(StatusCode::OK, body::JSON, format!("{object}\n"));
    match (version, kind) {
        ("v1alpha1", "Flagz") => body::with(response, WARNING, FLAGZ_DEPRECATED),
        ("v1alpha1", _) => body::with(response, WARNING, STATUSZ_DEPRECATED),
        _ => response,
    }
}

const FLAGZ_DEPRECATED: &str =
    r#"299 - "This version of the flagz endpoint is deprecated. Please use a newer version.""#;
const STATUSZ_DEPRECATED: &str =
    r#"299 - "This version of the statusz endpoint is deprecated. Please use a newer version.""#;
