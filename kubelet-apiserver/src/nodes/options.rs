//! The options of logs and streams, and how the kubelet gets them.

use form_urlencoded::Serializer;

use super::NodeRequest;
use crate::schema::{format_time, parse_time};
use crate::status_error::{Cause, StatusError};

/// The query for `/containerLogs` (`PodLogOptions`).
///
/// # Errors
///
/// 400 for a value that cannot be read, 422 for options that are not valid.
pub(super) fn log(request: &NodeRequest<'_>) -> Result<String, StatusError> {
    let tail_lines = number(request, "tailLines")?;
    let limit_bytes = number(request, "limitBytes")?;
    let since_seconds = number(request, "sinceSeconds")?;
    let since_time = match &*request.parameter("sinceTime") {
        "" | "null" => None,
        text => Some(parse_time(text, false).map_err(StatusError::bad_request)?),
    };
    let mut causes = Vec::new();
    let mut problem = |reason: &'static str, field: &str, message: String| {
        causes.push(Cause {
            reason,
            field: field.to_owned(),
            message,
        });
    };
    let mut invalid = |field: &str, value: Option<i64>, least: i64, why: &str| {
        if let Some(value) = value.filter(|value| *value < least) {
            problem(
                "FieldValueInvalid",
                field,
                format!("Invalid value: {value}: {why}"),
            );
        }
    };
    invalid("tailLines", tail_lines, 0, "must be greater than or equal to 0");
    invalid("limitBytes", limit_bytes, 1, "must be greater than 0");
    if since_time.is_none() {
        invalid("sinceSeconds", since_seconds, 1, "must be greater than 0");
    } else if since_seconds.is_some() {
        let why = "Forbidden: at most one of `sinceTime` or `sinceSeconds` may be specified";
        problem("FieldValueForbidden", "", why.into());
    }
    if request.parameters("stream").next().is_some() {
        let why = "Forbidden: may not be specified";
        problem("FieldValueForbidden", "stream", why.into());
    }
    if !causes.is_empty() {
        return Err(StatusError::invalid(
            &LOG_OPTIONS,
            &request.attributes.name,
            &causes,
        ));
    }

    let mut query = Query::default();
    for name in ["follow", "previous", "timestamps"] {
        query.add_if(request.is_set(name), name, "true");
    }
    for (name, value) in [
        ("sinceSeconds", since_seconds),
        ("tailLines", tail_lines),
        ("limitBytes", limit_bytes),
    ] {
        query.add_if(value.is_some(), name, value.unwrap_or_default());
    }
    if let Some(time) = since_time {
        query.add("sinceTime", format_time(time, false));
    }
    Ok(query.encode())
}

/// The query for `/exec` and `/attach` (`PodExecOptions`, `PodAttachOptions`).
pub(super) fn streams(request: &NodeRequest<'_>) -> String {
    let mut query = Query::default();
    for (asked, name) in [
        ("stdin", "input"),
        ("stdout", "output"),
        ("stderr", "error"),
        ("tty", "tty"),
    ] {
        query.add_if(request.is_set(asked), name, 1);
    }
    if request.attributes.subresource == "exec" {
        for word in request.parameters("command") {
            query.add("command", word);
        }
    }
    query.encode()
}

/// The query for `/portForward` (`PodPortForwardOptions`).
///
/// # Errors
///
/// 400 for a port that is no number.
pub(super) fn ports(request: &NodeRequest<'_>) -> Result<String, StatusError> {
    let mut query = Query::default();
    let ports: Result<Vec<String>, _> = request
        .parameters("ports")
        .map(|port| integer(&port).map(|port| port.to_string()))
        .collect();
    let ports = ports?;
    query.add_if(!ports.is_empty(), "port", ports.join(","));
    Ok(query.encode())
}

/// A query as Go writes it: ordered by name.
#[derive(Default)]
struct Query(Vec<(&'static str, String)>);

impl Query {
    fn add(&mut self, name: &'static str, value: impl ToString) {
        self.0.push((name, value.to_string()));
    }

    fn add_if(&mut self, condition: bool, name: &'static str, value: impl ToString) {
        if condition {
            self.add(name, value);
        }
    }

    fn encode(mut self) -> String {
        self.0.sort_by_key(|(name, _)| *name);
        Serializer::new(String::new()).extend_pairs(self.0).finish()
    }
}

fn number(request: &NodeRequest<'_>, name: &str) -> Result<Option<i64>, StatusError> {
    request
        .parameters(name)
        .next()
        .map(|text| integer(&text))
        .transpose()
}

fn integer(text: &str) -> Result<i64, StatusError> {
    let invalid = |_| StatusError::bad_request(format!("strconv.ParseInt: parsing {text:?}: invalid syntax"));
    text.parse().map_err(invalid)
}

/// Log options are no resource; this is their kind in messages.
static LOG_OPTIONS: crate::resource::Resource = crate::resource::Resource {
    group: "",
    version: "v1",
    plural: "podlogoptions",
    singular: "podlogoptions",
    kind: "PodLogOptions",
    namespaced: true,
    short_names: &[],
    subresources: &[],
};
