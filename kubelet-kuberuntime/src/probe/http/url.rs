//! The URLs of probes: built from the parts of an action, printed as in Go, and resolved for redirects (RFC 3986).

use std::fmt;

use crate::probe::dial::join_host_port;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Url {
    pub(crate) scheme: String,
    /// Without brackets.
    pub(crate) host: String,
    port: Option<u16>,
    /// Empty, or begins with a slash; escaped.
    path: String,
    query: Option<String>,
    fragment: Option<String>,
}

impl Url {
    /// `formatURL`: scheme and host in the path are ignored; a path that is not a valid URL is used literally.
    pub(crate) fn new(scheme: &str, host: &str, port: u16, path: &str) -> Self {
        let parts = match has_broken_escapes(path) {
            true => Reference {
                path,
                ..Reference::default()
            },
            false => Reference::parse(path),
        };
        let mut escaped = escape(parts.path, has_broken_escapes(path));
        if !escaped.is_empty() && !escaped.starts_with('/') {
            escaped.insert(0, '/');
        }
        Self {
            scheme: scheme.to_owned(),
            host: host.to_owned(),
            port: Some(port),
            path: escaped,
            query: parts.query.map(|query| escape(query, false)),
            fragment: parts.fragment.map(str::to_owned),
        }
    }

    /// The port, by default the scheme's.
    pub(crate) fn port(&self) -> u16 {
        self.port.unwrap_or(match self.scheme.as_str() {
            "https" => 443,
            _ => 80,
        })
    }

    /// The header `Host`: `host`, or `host:port` if the URL has a port.
    pub(crate) fn authority(&self) -> String {
        match self.port {
            Some(port) => join_host_port(&self.host, port),
            None if self.host.contains(':') => format!("[{}]", self.host),
            None => self.host.clone(),
        }
    }

    /// The target in the request line.
    pub(crate) fn request_target(&self) -> String {
        let path = if self.path.is_empty() { "/" } else { &self.path };
        match &self.query {
            Some(query) => format!("{path}?{query}"),
            None => path.to_owned(),
        }
    }

    /// Resolves a `Location` against this URL; `None` if it is not a URL.
    pub(crate) fn join(&self, location: &str) -> Option<Self> {
        if has_broken_escapes(location) {
            return None;
        }
        let reference = Reference::parse(location);
        let mut next = self.clone();
        next.query = reference.query.map(|query| escape(query, false));
        // The fragment of the first URL is kept if the second has none (RFC 7231, 7.1.2), as in Go.
        if let Some(fragment) = reference.fragment {
            next.fragment = Some(fragment.to_owned());
        }
        let path = escape(reference.path, false);
        if let Some(scheme) = reference.scheme {
            next.scheme = scheme.to_lowercase();
        }
        if let Some(authority) = reference.authority {
            let (host, port) = split_authority(authority)?;
            (next.host, next.port) = (host.to_owned(), port);
            next.path = without_dots(&path);
        } else if reference.scheme.is_some() {
            return None;
        } else if path.is_empty() {
            if reference.query.is_none() {
                next.query.clone_from(&self.query);
            }
        } else if path.starts_with('/') {
            next.path = without_dots(&path);
        } else {
            let folder = self.path.rfind('/').map_or("/", |end| &self.path[..=end]);
            next.path = without_dots(&format!("{folder}{path}"));
        }
        Some(next)
    }

    /// Whether a `Location` has a scheme (`url.IsAbs`).
    pub(crate) fn is_absolute(location: &str) -> bool {
        Reference::parse(location).scheme.is_some()
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}{}", self.scheme, self.authority(), self.path)?;
        if let Some(query) = &self.query {
            write!(f, "?{query}")?;
        }
        match &self.fragment {
            Some(fragment) => write!(f, "#{fragment}"),
            None => Ok(()),
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Reference<'a> {
    scheme: Option<&'a str>,
    authority: Option<&'a str>,
    path: &'a str,
    query: Option<&'a str>,
    fragment: Option<&'a str>,
}

impl<'a> Reference<'a> {
    fn parse(text: &'a str) -> Self {
        let (text, fragment) = split(text, '#');
        let (text, query) = split(text, '?');
        let (scheme, text) = match text.split_once("://") {
            Some((scheme, _)) if is_scheme(scheme) => (Some(scheme), &text[scheme.len() + 1..]),
            _ => (None, text),
        };
        let (authority, path) = match text.strip_prefix("//") {
            Some(rest) => {
                let end = rest.find('/').unwrap_or(rest.len());
                (Some(&rest[..end]), &rest[end..])
            }
            None => (None, text),
        };
        Self {
            scheme,
            authority,
            path,
            query,
            fragment,
        }
    }
}

fn split(text: &str, at: char) -> (&str, Option<&str>) {
    match text.split_once(at) {
        Some((before, after)) => (before, Some(after)),
        None => (text, None),
    }
}

fn is_scheme(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
}

/// Host without brackets, and port.
fn split_authority(authority: &str) -> Option<(&str, Option<u16>)> {
    let authority = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None => {
            let end = authority.find(':').unwrap_or(authority.len());
            authority.split_at(end)
        }
    };
    let port = match port.strip_prefix(':') {
        None | Some("") => None,
        Some(port) => Some(port.parse().ok()?),
    };
    Some((host, port))
}

fn has_broken_escapes(text: &str) -> bool {
    text.split('%').skip(1).any(|after| {
        !after
            .as_bytes()
            .get(..2)
            .is_some_and(|hex| hex.iter().all(u8::is_ascii_hexdigit))
    })
}

/// Escapes characters that are not allowed in a request line. `literal`: the text is not part of a URL yet, so the
/// special characters of URLs are escaped as well.
fn escape(text: &str, literal: bool) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        let plain = byte.is_ascii_graphic() && !b"\"<>\\^`{|}".contains(&byte);
        match plain && !(literal && b"%?#".contains(&byte)) {
            true => escaped.push(char::from(byte)),
            false => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    escaped
}

/// `remove_dot_segments`
fn without_dots(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    let mut segments = path
        .split('/')
        .skip(usize::from(path.starts_with('/')))
        .peekable();
    while let Some(segment) = segments.next() {
        let last = segments.peek().is_none();
        match segment {
            "." | ".." => {
                if segment == ".." {
                    kept.pop();
                }
                if last {
                    kept.push("");
                }
            }
            _ => kept.push(segment),
        }
    }
    format!("/{}", kept.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_actions() {
        // scheme, host, port, path → URL, request target
        let table = [
            ("http", "localhost", 93, "", "http://localhost:93", "/"),
            (
                "https",
                "localhost",
                93,
                "/path",
                "https://localhost:93/path",
                "/path",
            ),
            (
                "http",
                "localhost",
                93,
                "?foo",
                "http://localhost:93?foo",
                "/?foo",
            ),
            (
                "https",
                "localhost",
                93,
                "/path?bar",
                "https://localhost:93/path?bar",
                "/path?bar",
            ),
            ("http", "10.0.0.1", 42, "foo", "http://10.0.0.1:42/foo", "/foo"),
            ("baz", "10.0.0.1", 80, "foo", "baz://10.0.0.1:80/foo", "/foo"),
            ("http", "h", 80, "foo#frag", "http://h:80/foo#frag", "/foo"),
            ("http", "fd00::1", 80, "/", "http://[fd00::1]:80/", "/"),
            (
                "http",
                "h",
                80,
                "/a b/ü",
                "http://h:80/a%20b/%C3%BC",
                "/a%20b/%C3%BC",
            ),
            (
                "http",
                "h",
                80,
                "/a%20b?c=%2F",
                "http://h:80/a%20b?c=%2F",
                "/a%20b?c=%2F",
            ),
            (
                "http",
                "h",
                80,
                "/100%?x",
                "http://h:80/100%25%3Fx",
                "/100%25%3Fx",
            ),
            ("http", "h", 80, "https://other:1/x?y", "http://h:80/x?y", "/x?y"),
            ("http", "h", 80, "//other/x", "http://h:80/x", "/x"),
        ];
        for (scheme, host, port, path, url, target) in table {
            let made = Url::new(scheme, host, port, path);
            assert_eq!(
                (made.to_string().as_str(), made.request_target().as_str()),
                (url, target)
            );
        }
    }

    #[test]
    fn locations_are_resolved() {
        let table = [
            ("/new", Some("http://h:80/new")),
            ("new", Some("http://h:80/a/new")),
            ("../new?x", Some("http://h:80/new?x")),
            ("./", Some("http://h:80/a/")),
            ("/a/./b/../c", Some("http://h:80/a/c")),
            ("?x", Some("http://h:80/a/b?x")),
            ("", Some("http://h:80/a/b?q")),
            ("//other/x", Some("http://other/x")),
            ("https://other", Some("https://other/")),
            ("HTTPS://other:8443/y", Some("https://other:8443/y")),
            ("http://[::1]:8/y", Some("http://[::1]:8/y")),
            ("http://user:secret@other/y", Some("http://other/y")),
            ("http://other:x/y", None),
            ("/%zz", None),
        ];
        for (location, expected) in table {
            let base = Url::new("http", "h", 80, "/a/b?q");
            let joined = base.join(location).map(|url| url.to_string());
            assert_eq!(joined.as_deref(), expected, "{location}");
        }
    }
}
