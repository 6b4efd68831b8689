//! Traces (`k8s.io/component-base/tracing/api/v1`).

use super::super::TracingConfiguration;
use super::errors::Problems;

/// All of a million (`maxSamplingRatePerMillion`).
const MAX_SAMPLING_RATE_PER_MILLION: i32 = 1_000_000;

pub(super) fn validate(tracing: Option<&TracingConfiguration>, problems: &mut Problems) {
    let Some(tracing) = tracing else {
        return;
    };
    if let Some(rate) = tracing.sampling_rate_per_million {
        problems.unless_within(
            "tracing.samplingRatePerMillion",
            rate,
            0,
            MAX_SAMPLING_RATE_PER_MILLION,
        );
    }
    if let Some(endpoint) = &tracing.endpoint
        && let Err(why) = check_endpoint(endpoint)
    {
        problems.invalid_text("tracing.endpoint", endpoint, why);
    }
}

/// A host and port, or a URL of one of the schemes that gRPC resolves.
fn check_endpoint(endpoint: &str) -> Result<(), String> {
    if !endpoint.contains("//") {
        return check_url("dns", &format!("//{endpoint}"));
    }
    let (scheme, rest) = split_scheme(endpoint)?;
    let scheme = scheme.to_ascii_lowercase();
    check_url(&scheme, rest)?;
    if matches!(scheme.as_str(), "dns" | "unix" | "unix-abstract") {
        Ok(())
    } else {
        Err(format!(
            "unsupported scheme {scheme:?}: must be none, dns, unix or unix-abstract"
        ))
    }
}

/// What precedes the first colon, if it has the form of a scheme.
fn split_scheme(url: &str) -> Result<(&str, &str), String> {
    let end = url.find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.')));
    match end {
        Some(0) if url.starts_with(':') => Err("missing protocol scheme".into()),
        Some(end) if url[end..].starts_with(':') && url.starts_with(|c: char| c.is_ascii_alphabetic()) => {
            Ok((&url[..end], &url[end + 1..]))
        }
        _ => Ok(("", url)),
    }
}

/// What Go's `url.Parse` minds in what follows a scheme.
fn check_url(scheme: &str, rest: &str) -> Result<(), String> {
    if rest.bytes().any(|c| c.is_ascii_control()) {
        return Err("invalid control character in URL".into());
    }
    let (rest, fragment) = rest.split_once('#').unwrap_or((rest, ""));
    check_escapes(fragment)?;
    let path = rest.split_once('?').map_or(rest, |(path, _)| path);
    if !path.starts_with('/') && !scheme.is_empty() {
        // Opaque: it is not checked.
        return Ok(());
    }
    let path = match path.strip_prefix("//") {
        Some(after) if !scheme.is_empty() || !path.starts_with("///") => {
            let (authority, path) = after.split_at(after.find('/').unwrap_or(after.len()));
            check_authority(authority)?;
            path
        }
        _ if !path.starts_with('/') && path.split('/').next().is_some_and(|first| first.contains(':')) => {
            return Err("first path segment in URL cannot contain colon".into());
        }
        _ => path,
    };
    check_escapes(path)
}

fn check_authority(authority: &str) -> Result<(), String> {
    let host = match authority.rsplit_once('@') {
        Some((user, host)) => {
            let valid = |c: char| c.is_ascii_alphanumeric() || "-._:~!$&'()*+,;=%@".contains(c);
            if !user.chars().all(valid) {
                return Err("invalid userinfo".into());
            }
            check_escapes(user)?;
            host
        }
        None => authority,
    };
    let port = if host.starts_with('[') {
        let Some((_, port)) = host.rsplit_once(']') else {
            return Err("missing ']' in host".into());
        };
        port
    } else {
        host.rfind(':').map_or("", |colon| &host[colon..])
    };
    let digits = port.strip_prefix(':').unwrap_or(port);
    if digits.bytes().any(|c| !c.is_ascii_digit()) || (!port.is_empty() && !port.starts_with(':')) {
        return Err(format!("invalid port {port:?} after host"));
    }
    check_host(host)
}

/// A host may have only such escapes as stand for what is not ASCII, or for a percent sign before a zone.
fn check_host(host: &str) -> Result<(), String> {
    let valid = |c: char| !c.is_ascii() || c.is_ascii_alphanumeric() || "-._~!$&'()*+,;=:[]<>\"%".contains(c);
    if let Some(wrong) = host.chars().find(|&c| !valid(c)) {
        return Err(format!("invalid character {wrong:?} in host name"));
    }
    check_escapes(host)?;
    let zone_allowed = host.starts_with('[');
    let ascii = host.match_indices('%').any(|(at, _)| {
        let escape = &host.as_bytes()[at + 1..at + 3];
        escape[0] < b'8' && !(zone_allowed && escape == b"25")
    });
    if ascii {
        return Err("invalid URL escape in host name".into());
    }
    Ok(())
}

/// Each percent sign is followed by two hexadecimal digits.
fn check_escapes(text: &str) -> Result<(), String> {
    let bytes = text.as_bytes();
    for (at, _) in text.match_indices('%') {
        let digits = bytes.get(at + 1..at + 3);
        if !digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)) {
            return Err(format!("invalid URL escape at {:?}", &text[at..]));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints() {
        for endpoint in [
            "",
            "localhost:4317",
            "localhost",
            "10.0.0.1:4317",
            "[::1]:4317",
            "[fe80::1%25eth0]:4317",
            "dns://8.8.8.8/collector:4317",
            "DNS://collector",
            "dns:///collector:4317",
            "unix:///run/otel.sock",
            "unix-abstract://otel",
            "user@collector:4317",
            "ä:1",
        ] {
            assert_eq!(check_endpoint(endpoint), Ok(()), "{endpoint}");
        }
        for endpoint in [
            "http://localhost:4317",
            "https://localhost",
            "//localhost",
            "://localhost",
            "1dns://localhost",
            "localhost:port",
            "local host",
            "localhost:4317 ",
            "%zz",
            "host%41",
            "[::1",
            "[::1]4317",
            "a\nb",
            "us er@host",
            "dns://host/%zz",
            "foo:bar//baz:1",
        ] {
            assert!(check_endpoint(endpoint).is_err(), "{endpoint}");
        }
    }
}
