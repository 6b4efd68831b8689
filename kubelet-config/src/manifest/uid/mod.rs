//! The UID that the kubelet v1.36 gives a static pod, so that either can take over the pods of the other.
//!
//! The kubelet hashes a dump of its own Go structs in memory. The dump depends on the names, types and order of the
//! fields of that version, on the pod after decoding and defaulting, on what is empty and what is not there at all, and
//! on how quantities were written.

use serde_json::Value;

use super::Location;
use crate::fnv128a::Fnv128a;

mod core_types;
mod dump;
pub(super) mod json_text;
mod natural;
mod pod_resources;
mod quantity;
#[cfg(test)]
mod tests;
mod written;

pub(super) use written::Syntax;

/// The UID of a pod that sets none. `pod` has the defaults and is not yet bound to the node; `written` is what the
/// manifest has for it.
///
/// # Errors
/// The reason why it is not known what the kubelet would make of this pod.
pub(super) fn kubelet_uid(
    pod: &Value,
    written: &Value,
    syntax: Syntax,
    node_name: &str,
    location: Location<'_>,
) -> Result<String, &'static str> {
    Ok(hash(&pod_dump(pod, written, syntax)?, node_name, location))
}

fn pod_dump(pod: &Value, written: &Value, syntax: Syntax) -> Result<String, &'static str> {
    let mut written = written.clone();
    pod_resources::request_what_is_limited(&mut written);
    let resources = pod_resources::pod_resources(&written["spec"])?;
    dump::dump(pod, &written, &resources, syntax)
}

/// A UID of our own, for a pod of which the kubelet's is not known: a hash of the manifest as JSON with sorted keys and
/// no spaces.
pub(super) fn own_uid(manifest: &Value, node_name: &str, location: Location<'_>) -> String {
    let mut content = String::new();
    write_sorted(manifest, &mut content);
    hash(&content, node_name, location)
}

fn write_sorted(value: &Value, out: &mut String) {
    match value {
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_by_key(|(key, _)| *key);
            out.push('{');
            for (key, value) in fields {
                write_sorted(&Value::String(key.clone()), out);
                out.push(':');
                write_sorted(value, out);
                out.push(',');
            }
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for item in items {
                write_sorted(item, out);
                out.push(',');
            }
            out.push(']');
        }
        scalar => out.push_str(&scalar.to_string()),
    }
}

/// Hashes the content of a manifest, the node and the location (`applyDefaults` of the kubelet's `config` package).
fn hash(content: &str, node_name: &str, location: Location<'_>) -> String {
    let mut hasher = Fnv128a::default();
    hasher.write(content.as_bytes());
    match location {
        Location::File(path) => {
            hasher.write(format!("host:{node_name}").as_bytes());
            hasher.write(b"file:");
            hasher.write(path.as_os_str().as_encoded_bytes());
        }
        Location::Url(url) => hasher.write(format!("url:{url}").as_bytes()),
    }
    hasher.hex()
}
