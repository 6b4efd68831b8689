//! The forms of names (`k8s.io/apimachinery/pkg/util/validation`).

type Form = Result<(), &'static str>;

const DNS_LABEL_MAX_LENGTH: usize = 63;
const DNS_SUBDOMAIN_MAX_LENGTH: usize = 253;

/// A lowercase RFC 1123 label.
pub(crate) fn dns_label(text: &str) -> Form {
    if text.len() > DNS_LABEL_MAX_LENGTH {
        return Err("must be no more than 63 characters");
    }
    if !is_dns_label(text) {
        return Err(
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must \
             start and end with an alphanumeric character",
        );
    }
    Ok(())
}

/// A lowercase RFC 1123 subdomain.
pub(crate) fn dns_subdomain(text: &str) -> Form {
    if text.len() > DNS_SUBDOMAIN_MAX_LENGTH {
        return Err("must be no more than 253 characters");
    }
    if !text.split('.').all(is_dns_label) {
        return Err(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
             and must start and end with an alphanumeric character",
        );
    }
    Ok(())
}

/// A subdomain as DNS searches may be: with underscores.
pub(crate) fn dns_search(text: &str) -> Form {
    let text = if text == "." {
        return Ok(());
    } else {
        text.strip_suffix('.').unwrap_or(text)
    };
    if text.len() > DNS_SUBDOMAIN_MAX_LENGTH {
        return Err("must be no more than 253 characters");
    }
    let label = |label: &str| {
        let label = label.strip_prefix('_').unwrap_or(label);
        framed(label, |c| c.is_ascii_lowercase() || c.is_ascii_digit(), "-_")
    };
    if !text.split('.').all(label) {
        return Err(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or \
             '.', and must start and end with an alphanumeric character",
        );
    }
    Ok(())
}

/// The key of a label or an annotation: an optional prefix, a slash, a name.
pub(crate) fn qualified_name(text: &str) -> Form {
    let name = match text.split_once('/') {
        None => text,
        Some(("", _)) => return Err("prefix part must be non-empty"),
        Some((prefix, name)) => {
            dns_subdomain(prefix)?;
            name
        }
    };
    if name.is_empty() {
        return Err("name part must be non-empty");
    }
    if name.len() > DNS_LABEL_MAX_LENGTH {
        return Err("name part must be no more than 63 characters");
    }
    if !framed(name, |c| c.is_ascii_alphanumeric(), "-_.") {
        return Err(
            "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with \
             an alphanumeric character",
        );
    }
    Ok(())
}

/// The value of a label.
pub(crate) fn label_value(text: &str) -> Form {
    if text.len() > DNS_LABEL_MAX_LENGTH {
        return Err("must be no more than 63 characters");
    }
    if !text.is_empty() && !framed(text, |c| c.is_ascii_alphanumeric(), "-_.") {
        return Err(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', \
             and must start and end with an alphanumeric character",
        );
    }
    Ok(())
}

/// The name of a port (an IANA service name).
pub(crate) fn port_name(text: &str) -> Form {
    if text.len() > 15 {
        return Err("must be no more than 15 characters");
    }
    if text.is_empty()
        || !text
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
    {
        return Err("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)");
    }
    if !text.contains(|c: char| c.is_ascii_lowercase()) {
        return Err("must contain at least one letter (a-z)");
    }
    if text.contains("--") {
        return Err("must not contain consecutive hyphens");
    }
    if text.starts_with('-') || text.ends_with('-') {
        return Err("must not begin or end with a hyphen");
    }
    Ok(())
}

/// The name of an environment variable.
pub(crate) fn env_var_name(text: &str) -> Form {
    if text.is_empty() {
        return Err("environment variable name must be non-empty");
    }
    if !text.chars().all(|c| (' '..='~').contains(&c) && c != '=') {
        return Err(
            "a valid environment variable name must consist only of printable ASCII characters other than '='",
        );
    }
    Ok(())
}

/// The name of an HTTP header.
pub(crate) fn http_header_name(text: &str) -> Form {
    if text.is_empty() || !text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') {
        return Err("a valid HTTP header must consist of alphanumeric characters or '-'");
    }
    Ok(())
}

/// A sysctl, with dots or slashes between its parts.
pub(crate) fn sysctl(text: &str) -> Form {
    let part = |part: &str| framed(part, |c| c.is_ascii_lowercase() || c.is_ascii_digit(), "-_");
    if text.len() > 253 || !text.split(['.', '/']).all(part) {
        return Err(
            "must have at most 253 characters, and lower case alphanumeric parts between dots or slashes",
        );
    }
    Ok(())
}

/// A path below somewhere.
pub(crate) fn local_path(path: &str) -> Form {
    if path.starts_with('/') {
        return Err("must be a relative path");
    }
    no_backsteps(path)
}

/// A path below somewhere, in a volume whose own names begin with `..`.
pub(crate) fn local_non_reserved_path(path: &str) -> Form {
    local_path(path)?;
    if path.starts_with("..") {
        return Err("must not start with '..'");
    }
    Ok(())
}

/// A path that does not go back.
pub(crate) fn no_backsteps(path: &str) -> Form {
    if path.split('/').any(|part| part == "..") {
        return Err("must not contain '..'");
    }
    Ok(())
}

/// An IP address as API objects have accepted it ever since: leading zeros are let through.
pub(crate) fn ip_address(text: &str) -> Form {
    let octet = |octet: &str| {
        let number = octet.trim_start_matches('0');
        octet.bytes().all(|c| c.is_ascii_digit())
            && !octet.is_empty()
            && (number.is_empty() || number.parse::<u8>().is_ok())
    };
    let v4 = text.split('.').count() == 4 && text.split('.').all(octet);
    if v4 || text.parse::<std::net::Ipv6Addr>().is_ok() {
        Ok(())
    } else {
        Err("must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)")
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms() {
        type Case<'a> = (fn(&str) -> Form, &'a str, bool);
        let cases: [Case<'_>; 40] = [
            (dns_label, "a-1", true),
            (dns_label, "1", true),
            (dns_label, "", false),
            (dns_label, "-a", false),
            (dns_label, "a.b", false),
            (dns_label, "A", false),
            (dns_label, &"a".repeat(64), false),
            (dns_subdomain, "a.b-c", true),
            (dns_subdomain, "a..b", false),
            (dns_subdomain, &"a".repeat(253), true),
            (dns_subdomain, &"a".repeat(254), false),
            (dns_search, "_a._b.svc.", true),
            (dns_search, ".", true),
            (dns_search, "A", false),
            (qualified_name, "example.com/A_b.c", true),
            (qualified_name, "a", true),
            (qualified_name, "/a", false),
            (qualified_name, "a/", false),
            (qualified_name, "a/b/c", false),
            (label_value, "", true),
            (label_value, "A.b_c", true),
            (label_value, "a b", false),
            (port_name, "http-2", true),
            (port_name, "80", false),
            (port_name, "a--b", false),
            (port_name, "a-name-too-long-for-this", false),
            (env_var_name, "A B!", true),
            (env_var_name, "a=b", false),
            (env_var_name, "ä", false),
            (http_header_name, "X-A", true),
            (http_header_name, "X A", false),
            (sysctl, "net.ipv4.ip_forward", true),
            (sysctl, "net/ipv4", true),
            (sysctl, "a b", false),
            (local_path, "a/b", true),
            (local_path, "/a", false),
            (local_non_reserved_path, "..a", false),
            (ip_address, "010.0.0.1", true),
            (ip_address, "1.2.3.256", false),
            (ip_address, "::1", true),
        ];
        for (form, text, good) in cases {
            assert_eq!(form(text).is_ok(), good, "{text}");
        }
    }
}
