//! `ObjectMeta`: system fields, generated names.

use serde_json::{Value, json};

use super::super::request::Attributes;
use super::super::status_error::StatusError;

/// The letters of random suffixes: no vowels, nothing that looks like another.
const ALPHANUMS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// Names a new object and fills in what only the server writes.
pub(super) fn fill(
    attributes: &Attributes,
    rng: &mut fastrand::Rng,
    object: &mut Value,
) -> Result<(), StatusError> {
    let meta = &mut object["metadata"];
    if meta["name"].as_str().unwrap_or_default().is_empty()
        && let Some(base) = meta["generateName"].as_str()
    {
        let name = format!("{base}{}", suffix(rng));
        meta["name"] = json!(name);
    }
    meta["uid"] = json!(uid(rng));
    meta["creationTimestamp"] = json!(time(attributes.now));
    if attributes.resource.namespaced {
        meta["namespace"] = json!(attributes.namespace);
    }
    Ok(())
}

/// A time as the API writes it: whole seconds, UTC.
pub(crate) fn time(at: k8s_openapi::jiff::Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Five random letters and digits, as behind `generateName`.
pub(crate) fn suffix(rng: &mut fastrand::Rng) -> String {
    (0..5)
        .map(|_| char::from(ALPHANUMS[rng.usize(..ALPHANUMS.len())]))
        .collect()
}

/// A random (version 4) UUID.
pub(crate) fn uid(rng: &mut fastrand::Rng) -> String {
    let n = (rng.u128(..) & !(0xf << 76) & !(0x3 << 62)) | (0x4 << 76) | (0x2 << 62);
    let hex = format!("{n:032x}");
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}
