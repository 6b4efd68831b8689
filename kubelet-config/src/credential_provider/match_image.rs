//! The form of what images are matched with.

/// What may be in a host besides letters, digits and what is above ASCII.
const IN_HOST: &[u8] = b"-_.~!$&'()*+,;=:[]<>\"";
/// What may be in a user name and password besides letters and digits.
const IN_USER_INFO: &[u8] = b"-._:~!$&'()*+,;=%@";

/// Whether Go takes the text for a URL once `https://` is put before it (`ParseSchemelessURL`).
pub(super) fn is_schemeless_url(text: &str) -> bool {
    if text.bytes().any(|byte| byte.is_ascii_control()) {
        return false;
    }
    let (text, fragment) = text.split_once('#').unwrap_or((text, ""));
    let (text, _query) = text.split_once('?').unwrap_or((text, ""));
    let (authority, path) = match text.find('/') {
        Some(at) => text.split_at(at),
        None => (text, ""),
    };
    let (user_info, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    is_escaped_well(fragment) && is_escaped_well(path) && is_user_info(user_info) && is_host(host)
}

/// Whether each `%` stands before two hexadecimal digits.
fn is_escaped_well(text: &str) -> bool {
    escapes(text).all(|escape| escape.is_some())
}

/// The bytes that are written as escapes; none for what only looks like one.
fn escapes(text: &str) -> impl Iterator<Item = Option<u8>> {
    text.split('%').skip(1).map(|after| {
        let digits = after.get(..2)?;
        let both = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        both.then(|| u8::from_str_radix(digits, 16).ok()).flatten()
    })
}

fn is_user_info(text: &str) -> bool {
    let may_be = |byte: u8| byte.is_ascii_alphanumeric() || IN_USER_INFO.contains(&byte);
    text.bytes().all(may_be) && is_escaped_well(text)
}

fn is_host(host: &str) -> bool {
    if let Some(bracketed) = host.strip_prefix('[') {
        return bracketed
            .rsplit_once(']')
            .is_some_and(|(address, port)| is_ipv6(address) && is_optional_port(port));
    }
    let port = host.find(':').and_then(|at| host.get(at..)).unwrap_or_default();
    let may_be = |byte: u8| {
        byte.is_ascii_alphanumeric() || byte == b'%' || !byte.is_ascii() || IN_HOST.contains(&byte)
    };
    // An escape in a host is of what is not ASCII, or of the percent sign.
    let well_escaped = escapes(host).all(|escape| escape.is_some_and(|byte| byte >= 0x80 || byte == b'%'));
    host.bytes().all(may_be) && well_escaped && is_optional_port(port)
}

/// An address, and its zone if it has one.
fn is_ipv6(text: &str) -> bool {
    let (address, zone) = match text.split_once("%25") {
        None => (text, None),
        Some((address, zone)) => (address, Some(zone)),
    };
    let zone_is_well = zone.is_none_or(|zone| !zone.is_empty() && is_escaped_well(zone));
    zone_is_well && address.parse::<std::net::Ipv6Addr>().is_ok()
}

fn is_optional_port(text: &str) -> bool {
    match text.strip_prefix(':') {
        None => text.is_empty(),
        Some(digits) => digits.bytes().all(|digit| digit.is_ascii_digit()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms() {
        for text in [
            "123456789.dkr.ecr.us-east-1.amazonaws.com",
            "*.azurecr.io",
            "gcr.io",
            "*.*.registry.io",
            "registry.io:8080/path",
            "registry.io:",
            "[::1]:5000/a",
            "a/b c",
            "a?%zz",
            "",
            "/only/a/path",
            "user:pass@host",
            "b%C3%A4r",
        ] {
            assert!(is_schemeless_url(text), "{text:?}");
        }
        for text in [
            "%invalid%",
            "a b",
            "a:b",
            "a:1:2",
            "a{b",
            "a/%",
            "a/%g0",
            "a#%",
            "[::1",
            "[::1]x",
            "[nonsense]",
            "a%20b",
            "a\nb",
            "us er@host",
        ] {
            assert!(!is_schemeless_url(text), "{text:?}");
        }
    }
}
