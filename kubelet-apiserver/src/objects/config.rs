//! Secrets and config maps.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::problems::{Field, Problems};
use super::value::Fields;
use super::{metadata, names};

/// The maximum size of all values together, in bytes (`MaxSecretSize`).
const MAX_SIZE: usize = 1 << 20;
/// The keys that secrets of a type must have. Of a row with several keys, one is enough.
const REQUIRED_KEYS: [(&str, &[&[&str]]); 6] = [
    ("kubernetes.io/dockercfg", &[&[".dockercfg"]]),
    ("kubernetes.io/dockerconfigjson", &[&[".dockerconfigjson"]]),
    ("kubernetes.io/basic-auth", &[&["username", "password"]]),
    ("kubernetes.io/ssh-auth", &[&["ssh-privatekey"]]),
    ("kubernetes.io/tls", &[&["tls.crt"], &["tls.key"]]),
    ("Opaque", &[]),
];

/// `stringData` becomes `data`. The default type is opaque.
pub(super) fn set_secret_defaults(secret: &mut Value) {
    if let Some(Value::Object(plain)) = secret.fields_mut().remove("stringData") {
        for (key, text) in plain {
            secret["data"][key] = json!(STANDARD.encode(text.as_str().unwrap_or_default()));
        }
    }
    secret.default_text("type", "Opaque");
}

pub(super) fn validate_secret(secret: &Value, problems: &mut Problems) {
    metadata::validate(secret, true, names::dns_subdomain, problems);
    let (data, field) = (&secret["data"], Field::root("data"));
    let mut size = 0;
    for (key, value) in secret.entries("data") {
        problems.unless_formed(&field.key(key), key, names::config_map_key);
        size += decoded_size(value);
    }
    if size > MAX_SIZE {
        problems.too_long(&field, MAX_SIZE);
    }
    let kind = secret.text("type");
    const ACCOUNT: &str = "kubernetes.io/service-account.name";
    if kind == "kubernetes.io/service-account-token"
        && secret["metadata"]["annotations"].text(ACCOUNT).is_empty()
    {
        let field = Field::root("metadata").child("annotations").key(ACCOUNT);
        problems.required(&field, "");
    }
    let required = REQUIRED_KEYS.iter().find(|(wanted, _)| *wanted == kind);
    for keys in required.into_iter().flat_map(|(_, rows)| *rows) {
        if !keys.iter().any(|key| data.has(key)) {
            for key in *keys {
                problems.required(&field.key(key), "");
            }
        }
    }
    for key in [".dockercfg", ".dockerconfigjson"] {
        let wanted = kind.strip_prefix("kubernetes.io/") == Some(&key[1..]);
        let text = STANDARD.decode(data.text(key)).unwrap_or_default();
        if wanted && data.has(key) && serde_json::from_slice::<serde_json::Map<String, Value>>(&text).is_err()
        {
            let why = "invalid character in the document";
            problems.invalid(&field.key(key), "<secret contents redacted>", why);
        }
    }
}

pub(super) fn validate_secret_update(old: &Value, new: &Value, problems: &mut Problems) {
    metadata::validate_update(new, old, problems);
    problems.unless_same(&Field::root("type"), &new["type"], &old["type"]);
    validate_immutable(old, new, &["data"], problems);
    validate_secret(new, problems);
}

pub(super) fn validate_config_map(map: &Value, problems: &mut Problems) {
    metadata::validate(map, true, names::dns_subdomain, problems);
    let mut size = 0;
    for (key, value) in map.entries("data") {
        let field = Field::root("data").key(key);
        problems.unless_formed(&field, key, names::config_map_key);
        if map["binaryData"].has(key) {
            problems.invalid(&field, key.as_str(), "duplicate of key present in binaryData");
        }
        size += value.as_str().unwrap_or_default().len();
    }
    for (key, value) in map.entries("binaryData") {
        problems.unless_formed(&Field::root("binaryData").key(key), key, names::config_map_key);
        size += decoded_size(value);
    }
    if size > MAX_SIZE {
        problems.too_long(&Field::root("[]"), MAX_SIZE);
    }
}

pub(super) fn validate_config_map_update(old: &Value, new: &Value, problems: &mut Problems) {
    metadata::validate_update(new, old, problems);
    validate_immutable(old, new, &["data", "binaryData"], problems);
    validate_config_map(new, problems);
}

fn validate_immutable(old: &Value, new: &Value, keys: &[&str], problems: &mut Problems) {
    if !old.flag("immutable") {
        return;
    }
    let why = "field is immutable when `immutable` is set";
    if !new.flag("immutable") {
        problems.forbidden(&Field::root("immutable"), why);
    }
    for key in keys {
        if old[key] != new[key] {
            problems.forbidden(&Field::root(key), why);
        }
    }
}

fn decoded_size(value: &Value) -> usize {
    let text = value.as_str().unwrap_or_default();
    let padding = text.bytes().rev().take_while(|byte| *byte == b'=').count();
    (text.len() / 4 * 3).saturating_sub(padding)
}
