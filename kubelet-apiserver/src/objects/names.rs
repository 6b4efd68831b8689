//! Validation of names and values (`k8s.io/apimachinery/pkg/util/validation`). Each function returns all problems.

use std::net::IpAddr;

const LABEL_FORMAT: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const SUBDOMAIN_FORMAT: &str = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const KEY_FORMAT: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";

/// `IsDNS1123Label`.
pub(super) fn dns_label(text: &str) -> Vec<String> {
    let mut found = no_longer_than(text, 63, "characters");
    if !is_dns_label(text) {
        found.push(if is_dns_subdomain(text) {
            "must not contain dots".into()
        } else {
            explain(
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must \
                 start and end with an alphanumeric character",
                LABEL_FORMAT,
                &["my-name", "123-abc"],
            )
        });
    }
    found
}

/// `IsDNS1123Subdomain`.
pub(super) fn dns_subdomain(text: &str) -> Vec<String> {
    let mut found = no_longer_than(text, 253, "characters");
    if !is_dns_subdomain(text) {
        found.push(explain(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and \
             must start and end with an alphanumeric character",
            SUBDOMAIN_FORMAT,
            &["example.com"],
        ));
    }
    found
}

/// `IsDNS1123SubdomainWithUnderscore`, with `.` and a trailing dot let through as DNS searches may have them.
pub(super) fn dns_search(text: &str) -> Vec<String> {
    if text == "." {
        return Vec::new();
    }
    let text = text.strip_suffix('.').unwrap_or(text);
    let mut found = no_longer_than(text, 253, "characters");
    let label = |label: &str| {
        let label = label.strip_prefix('_').unwrap_or(label);
        framed(label, |c| c.is_ascii_lowercase() || c.is_ascii_digit(), "-_")
    };
    if !text.split('.').all(label) {
        found.push(explain(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', \
             and must start and end with an alphanumeric character",
            r"_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*",
            &["example.com"],
        ));
    }
    found
}

/// `IsDNS1035Label`.
pub(super) fn dns_1035_label(text: &str) -> Vec<String> {
    let mut found = no_longer_than(text, 63, "characters");
    if !is_dns_label(text) || !text.starts_with(|c: char| c.is_ascii_lowercase()) {
        found.push(explain(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic \
             character, and end with an alphanumeric character",
            "[a-z]([-a-z0-9]*[a-z0-9])?",
            &["my-name", "abc-123"],
        ));
    }
    found
}

/// `IsPathSegmentName`.
pub(super) fn path_segment(text: &str) -> Vec<String> {
    if matches!(text, "." | "..") {
        return vec![format!("may not be '{text}'")];
    }
    ["/", "%"]
        .iter()
        .filter(|illegal| text.contains(*illegal))
        .map(|illegal| format!("may not contain '{illegal}'"))
        .collect()
}

/// `IsQualifiedName`: the key of a label or an annotation.
pub(super) fn qualified_name(text: &str) -> Vec<String> {
    const WORDS: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
                         alphanumeric character";
    let explained = explain(WORDS, KEY_FORMAT, &["MyName", "my.name", "123-abc"]);
    let mut found = Vec::new();
    let parts: Vec<&str> = text.split('/').collect();
    let name = match parts.as_slice() {
        [name] => name,
        [prefix, name] => {
            if prefix.is_empty() {
                found.push("prefix part must be non-empty".into());
            } else {
                found.extend(
                    dns_subdomain(prefix)
                        .into_iter()
                        .map(|why| format!("prefix part {why}")),
                );
            }
            name
        }
        _ => {
            return vec![format!(
                "a valid label key {explained} with an optional DNS subdomain prefix and '/' (e.g. \
                 'example.com/MyName')"
            )];
        }
    };
    if name.is_empty() {
        found.push("name part must be non-empty".into());
    }
    found.extend(
        no_longer_than(name, 63, "bytes")
            .into_iter()
            .map(|why| format!("name part {why}")),
    );
    if !framed(name, |c| c.is_ascii_alphanumeric(), "-_.") {
        found.push(format!("name part {explained}"));
    }
    found
}

/// `IsValidLabelValue`.
pub(super) fn label_value(text: &str) -> Vec<String> {
    let mut found = no_longer_than(text, 63, "bytes");
    if !text.is_empty() && !framed(text, |c| c.is_ascii_alphanumeric(), "-_.") {
        found.push(explain(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must \
             start and end with an alphanumeric character",
            "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?",
            &["MyValue", "my_value", "12345"],
        ));
    }
    found
}

/// `IsValidPortName`.
pub(super) fn port_name(text: &str) -> Vec<String> {
    let lower = |c: char| c.is_ascii_lowercase();
    let mut found = no_longer_than(text, 15, "characters");
    let mut find = |wrong: bool, why: &str| {
        if wrong {
            found.push(why.to_owned());
        }
    };
    find(
        text.is_empty() || !text.chars().all(|c| lower(c) || c.is_ascii_digit() || c == '-'),
        "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)",
    );
    find(!text.contains(lower), "must contain at least one letter (a-z)");
    find(text.contains("--"), "must not contain consecutive hyphens");
    find(
        text.starts_with('-') || text.ends_with('-'),
        "must not begin or end with a hyphen",
    );
    found
}

/// `IsRelaxedEnvVarName`.
pub(super) fn env_var_name(text: &str) -> Vec<String> {
    if text.is_empty() {
        return vec!["environment variable name must be non-empty".into()];
    }
    if text.chars().all(|c| (' '..='~').contains(&c) && c != '=') {
        return Vec::new();
    }
    vec![
        "a valid environment variable name must consist only of printable ASCII characters other than '='"
            .into(),
    ]
}

/// `IsConfigMapKey`.
pub(super) fn config_map_key(text: &str) -> Vec<String> {
    let mut found = no_longer_than(text, 253, "characters");
    let word = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    if text.is_empty() || !text.chars().all(word) {
        found.push(explain(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
            "[-._a-zA-Z0-9]+",
            &["key.name", "KEY_NAME", "key-name"],
        ));
    }
    match text {
        "." => found.push("must not be '.'".into()),
        ".." => found.push("must not be '..'".into()),
        _ if text.starts_with("..") => found.push("must not start with '..'".into()),
        _ => {}
    }
    found
}

/// `IsHTTPHeaderName`.
pub(super) fn http_header_name(text: &str) -> Vec<String> {
    if !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') {
        return Vec::new();
    }
    let words = "a valid HTTP header must consist of alphanumeric characters or '-'";
    vec![explain(words, "[-A-Za-z0-9]+", &["X-Header-Name"])]
}

/// `IsValidSysctlName`.
pub(super) fn sysctl(text: &str) -> Vec<String> {
    const FORMAT: &str = "([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?";
    let part = |part: &str| framed(part, |c| c.is_ascii_lowercase() || c.is_ascii_digit(), "-_");
    if text.len() <= 253 && text.split(['.', '/']).all(part) {
        return Vec::new();
    }
    vec![format!(
        "must have at most 253 characters and match regex ^{FORMAT}$"
    )]
}

/// `validateLocalDescendingPath`: a path below somewhere.
pub(super) fn local_path(path: &str) -> Vec<String> {
    let mut found = Vec::new();
    if path.starts_with('/') {
        found.push("must be a relative path".into());
    }
    found.extend(no_backsteps(path));
    found
}

/// `ValidateLocalNonReservedPath`: one in a volume whose own names begin with `..`.
pub(super) fn local_non_reserved_path(path: &str) -> Vec<String> {
    let mut found = local_path(path);
    if path.starts_with("..") && !path.starts_with("../") {
        found.push("must not start with '..'".into());
    }
    found
}

/// `validatePathNoBacksteps`.
pub(super) fn no_backsteps(path: &str) -> Vec<String> {
    if path.split('/').any(|part| part == "..") {
        return vec!["must not contain '..'".into()];
    }
    Vec::new()
}

/// `IsValidIPForLegacyField`, strict.
pub(super) fn ip_address(text: &str) -> Vec<String> {
    match text.parse::<IpAddr>() {
        Ok(IpAddr::V6(address)) if address.to_ipv4_mapped().is_some() => {
            vec!["must not be an IPv4-mapped IPv6 address".into()]
        }
        Ok(_) => Vec::new(),
        Err(_) if is_sloppy_v4(text) => vec!["must not have leading 0s".into()],
        Err(_) => vec!["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)".into()],
    }
}

fn is_sloppy_v4(text: &str) -> bool {
    let octet = |octet: &str| {
        let number = octet.trim_start_matches('0');
        octet.bytes().all(|c| c.is_ascii_digit())
            && !octet.is_empty()
            && (number.is_empty() || number.parse::<u8>().is_ok())
    };
    text.split('.').count() == 4 && text.split('.').all(octet)
}

fn explain(words: &str, format: &str, examples: &[&str]) -> String {
    let examples: Vec<String> = examples.iter().map(|example| format!("'{example}', ")).collect();
    let examples = examples.join(" or ");
    format!("{words} (e.g. {examples}regex used for validation is '{format}')")
}

fn no_longer_than(text: &str, most: usize, unit: &str) -> Vec<String> {
    if text.len() > most {
        return vec![format!("must be no more than {most} {unit}")];
    }
    Vec::new()
}

fn is_dns_subdomain(text: &str) -> bool {
    text.split('.').all(is_dns_label)
}

fn is_dns_label(text: &str) -> bool {
    framed(text, |c| c.is_ascii_lowercase() || c.is_ascii_digit(), "-")
}

/// Whether the text is of these characters and, but not at its ends, of `inner`.
fn framed(text: &str, character: fn(char) -> bool, inner: &str) -> bool {
    text.starts_with(character)
        && text.ends_with(character)
        && text.chars().all(|c| character(c) || inner.contains(c))
}
