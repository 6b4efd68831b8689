//! `Table`: objects as `kubectl get` shows them (`pkg/printers/internalversion`).

#[cfg(feature = "tls")]
mod metrics;
mod pod;
mod storage;

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::objects::Fields;
use super::resource::Resource;

const NONE: &str = "<none>";
const UNKNOWN: &str = "<unknown>";

/// A column: its name, its type, and whether only `-o wide` shows it.
type Column = (&'static str, &'static str, bool);

/// The `columnDefinitions` of a resource.
pub(crate) fn columns(resource: &Resource) -> Value {
    let definitions = columns_of(resource).iter().map(|(name, kind, wide)| {
        let format = if *name == "Name" { "name" } else { "" };
        json!({
            "name": name, "type": kind, "format": format, "description": "", "priority": i32::from(*wide),
        })
    });
    definitions.collect()
}

fn columns_of(resource: &Resource) -> &'static [Column] {
    const NAME: Column = ("Name", "string", false);
    const AGE: Column = ("Age", "string", false);
    match resource.kind {
        "Pod" => &[
            NAME,
            ("Ready", "string", false),
            ("Status", "string", false),
            ("Restarts", "string", false),
            AGE,
            ("IP", "string", true),
            ("Node", "string", true),
            ("Nominated Node", "string", true),
            ("Readiness Gates", "string", true),
        ],
        "Node" => &[
            NAME,
            ("Status", "string", false),
            ("Roles", "string", false),
            AGE,
            ("Version", "string", false),
            ("Internal-IP", "string", true),
            ("External-IP", "string", true),
            ("OS-Image", "string", true),
            ("Kernel-Version", "string", true),
            ("Container-Runtime", "string", true),
        ],
        "Event" => &[
            ("Last Seen", "string", false),
            ("Type", "string", false),
            ("Reason", "string", false),
            ("Object", "string", false),
            ("Subobject", "string", true),
            ("Source", "string", true),
            ("Message", "string", false),
            ("First Seen", "string", true),
            ("Count", "string", true),
            ("Name", "string", true),
        ],
        "Service" => &[
            NAME,
            ("Type", "string", false),
            ("Cluster-IP", "string", false),
            ("External-IP", "string", false),
            ("Port(s)", "string", false),
            AGE,
            ("Selector", "string", true),
        ],
        #[cfg(feature = "tls")]
        "CertificateSigningRequest" => &[
            NAME,
            AGE,
            ("SignerName", "string", false),
            ("Requestor", "string", false),
            ("RequestedDuration", "string", false),
            ("Condition", "string", false),
        ],
        "Lease" => &[NAME, ("Holder", "string", false), AGE],
        "Namespace" => &[NAME, ("Status", "string", false), AGE],
        "ConfigMap" => &[NAME, ("Data", "string", false), AGE],
        "Secret" => &[NAME, ("Type", "string", false), ("Data", "string", false), AGE],
        "ServiceAccount" => &[NAME, ("Secrets", "string", false), AGE],
        "RuntimeClass" => &[NAME, ("Handler", "string", false), AGE],
        #[cfg(feature = "tls")]
        "NodeMetrics" | "PodMetrics" => metrics::COLUMNS,
        _ => storage::columns(resource.kind).unwrap_or(&[NAME, AGE]),
    }
}

/// The `cells` of one object.
pub(crate) fn cells(resource: &Resource, object: &Value, now: Timestamp) -> Value {
    let meta = &object["metadata"];
    let (name, age) = (meta.text("name"), since(&meta["creationTimestamp"], now));
    match resource.kind {
        "Pod" => pod::cells(object, &age, now),
        "Node" => node(object, &age),
        "Event" => event(object, now),
        "Service" => service(object, &age),
        #[cfg(feature = "tls")]
        "CertificateSigningRequest" => csr(object, &age),
        "Lease" => json!([name, object["spec"].text("holderIdentity"), age]),
        "Namespace" => json!([name, object["status"].text("phase"), age]),
        "ConfigMap" => {
            let count = object.entries("data").count() + object.entries("binaryData").count();
            json!([name, count, age])
        }
        "Secret" => json!([name, object.text("type"), object.entries("data").count(), age]),
        "ServiceAccount" => json!([name, object.list("secrets").len(), age]),
        "RuntimeClass" => json!([name, object.text("handler"), age]),
        #[cfg(feature = "tls")]
        "NodeMetrics" | "PodMetrics" => metrics::cells(object),
        _ => storage::cells(resource.kind, object, &age).unwrap_or_else(|| json!([name, age])),
    }
}

fn node(node: &Value, age: &str) -> Value {
    let conditions = node["status"].list("conditions");
    let ready = conditions
        .iter()
        .find(|condition| condition.text("type") == "Ready");
    let mut status = match ready.map(|condition| condition.text("status")) {
        Some("True") => "Ready".to_owned(),
        Some(_) => "NotReady".to_owned(),
        None => "Unknown".to_owned(),
    };
    if node["spec"].flag("unschedulable") {
        status.push_str(",SchedulingDisabled");
    }
    let mut roles: Vec<&str> = node["metadata"]
        .entries("labels")
        .filter_map(|(key, value)| match key.as_str() {
            "kubernetes.io/role" => value.as_str(),
            key => key.strip_prefix("node-role.kubernetes.io/"),
        })
        .filter(|role| !role.is_empty())
        .collect();
    roles.sort_unstable();
    let address = |kind: &str| {
        let addresses = node["status"].list("addresses").iter();
        let mut found = addresses.filter(|address| address.text("type") == kind);
        found
            .next()
            .map_or(NONE, |address| address.text("address"))
            .to_owned()
    };
    let info = |key: &str| or(node["status"]["nodeInfo"].text(key), UNKNOWN).to_owned();
    json!([
        node["metadata"].text("name"),
        status,
        or(&roles.join(","), NONE),
        age,
        node["status"]["nodeInfo"].text("kubeletVersion"),
        address("InternalIP"),
        address("ExternalIP"),
        info("osImage"),
        info("kernelVersion"),
        info("containerRuntimeVersion"),
    ])
}

/// Events of both API groups.
fn event(event: &Value, now: Timestamp) -> Value {
    let twin = |core: &str, new: &str| {
        event
            .field(core)
            .or(event.field(new))
            .cloned()
            .unwrap_or_default()
    };
    let (object, source) = (
        twin("involvedObject", "regarding"),
        twin("source", "deprecatedSource"),
    );
    let time = |core: &str, new: &str| match twin(core, new) {
        Value::Null => event["eventTime"].clone(),
        time => time,
    };
    let first = since(&time("firstTimestamp", "deprecatedFirstTimestamp"), now);
    let mut last = since(&time("lastTimestamp", "deprecatedLastTimestamp"), now);
    let mut count = twin("count", "deprecatedCount").as_i64().unwrap_or(0);
    if let Some(series) = event.field("series") {
        last = since(&series["lastObservedTime"], now);
        count = series.number("count").unwrap_or(0);
    } else if count == 0 {
        count = 1;
    }
    let component = or(
        source.text("component"),
        or(
            event.text("reportingComponent"),
            event.text("reportingController"),
        ),
    )
    .to_owned();
    let host = or(source.text("host"), event.text("reportingInstance"));
    let source = if host.is_empty() {
        component
    } else {
        format!("{component}, {host}")
    };
    let kind = object.text("kind").to_lowercase();
    json!([
        last,
        event.text("type"),
        event.text("reason"),
        format!("{kind}/{}", object.text("name")),
        object.text("fieldPath"),
        source,
        twin("message", "note").as_str().unwrap_or_default().trim(),
        first,
        count,
        event["metadata"].text("name"),
    ])
}

fn service(service: &Value, age: &str) -> Value {
    let spec = &service["spec"];
    let ports: Vec<String> = spec
        .list("ports")
        .iter()
        .map(|port| {
            let number = match port.number("nodePort").unwrap_or(0) {
                0 => port["port"].to_string(),
                node => format!("{}:{node}", port["port"]),
            };
            format!("{number}/{}", port.text("protocol"))
        })
        .collect();
    let selector: Vec<String> = spec
        .entries("selector")
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    let external = match spec.text("type") {
        "ExternalName" => spec.text("externalName"),
        "LoadBalancer" => "<pending>",
        _ => NONE,
    };
    json!([
        service["metadata"].text("name"),
        spec.text("type"),
        or(spec.text("clusterIP"), NONE),
        external,
        or(&ports.join(","), NONE),
        age,
        or(&selector.join(","), NONE),
    ])
}

#[cfg(feature = "tls")]
fn csr(csr: &Value, age: &str) -> Value {
    let status = &csr["status"];
    let mut words = Vec::new();
    let has = |kind: &str| {
        let mut conditions = status.list("conditions").iter();
        conditions.any(|condition| condition.text("type") == kind)
    };
    if has("Denied") {
        words.push("Denied");
    } else if has("Approved") {
        words.push("Approved");
    } else {
        words.push("Pending");
    }
    if has("Failed") {
        words.push("Failed");
    }
    if !status.text("certificate").is_empty() {
        words.push("Issued");
    }
    let duration = csr["spec"]
        .number("expirationSeconds")
        .map_or(NONE.to_owned(), human);
    json!([
        csr["metadata"].text("name"),
        age,
        or(csr["spec"].text("signerName"), NONE),
        csr["spec"].text("username"),
        duration,
        words.join(","),
    ])
}

fn or<'a>(text: &'a str, other: &'a str) -> &'a str {
    if text.is_empty() { other } else { text }
}

/// The age, as `kubectl` prints it.
fn since(time: &Value, now: Timestamp) -> String {
    match time.as_str().and_then(|text| text.parse::<Timestamp>().ok()) {
        Some(time) => human(now.duration_since(time).as_secs()),
        None => UNKNOWN.into(),
    }
}

/// `duration.HumanDuration`: at most two units, and small units only for short durations.
fn human(seconds: i64) -> String {
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let (days, years) = (hours / 24, hours / 24 / 365);
    let pair = |number: i64, unit: &str, rest: i64, finer: &str| match rest {
        0 => format!("{number}{unit}"),
        rest => format!("{number}{unit}{rest}{finer}"),
    };
    match seconds {
        ..-1 => "<invalid>".into(),
        -1..0 => "0s".into(),
        _ if seconds < 120 => format!("{seconds}s"),
        _ if minutes < 10 => pair(minutes, "m", seconds % 60, "s"),
        _ if minutes < 180 => format!("{minutes}m"),
        _ if hours < 8 => pair(hours, "h", minutes % 60, "m"),
        _ if hours < 48 => format!("{hours}h"),
        _ if hours < 192 => pair(days, "d", hours % 24, "h"),
        _ if days < 730 => format!("{days}d"),
        _ if years < 8 => pair(years, "y", days % 365, "d"),
        _ => format!("{years}y"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_durations_as_kubectl_does() {
        let cases = [
            (-5, "<invalid>"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (125, "2m5s"),
            (600, "10m"),
            (3 * 3600, "3h"),
            (3 * 3600 + 60, "3h1m"),
            (8 * 3600, "8h"),
            (48 * 3600, "2d"),
            (49 * 3600, "2d1h"),
            (8 * 86400, "8d"),
            (730 * 86400, "2y"),
        ];
        for (seconds, expected) in cases {
            assert_eq!(human(seconds), expected, "{seconds}");
        }
    }
}
