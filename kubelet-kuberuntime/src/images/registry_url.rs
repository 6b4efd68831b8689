//! Matches images with the locations of credentials (`ParseSchemelessURL`, `URLsMatch`).

/// Host, port and path of a URL without its scheme.
struct SchemelessUrl<'a> {
    host: &'a str,
    port: &'a str,
    path: &'a str,
}

impl<'a> SchemelessUrl<'a> {
    /// `None` for a text that Go's `url.Parse` refuses.
    fn parse(text: &'a str) -> Option<Self> {
        let end = text.find(['?', '#']).unwrap_or(text.len());
        let text = &text[..end];
        let (authority, path) = text.split_at(text.find('/').unwrap_or(text.len()));
        let host = authority.rsplit_once('@').map_or(authority, |(_user, host)| host);
        let (host, port) = match host.strip_prefix('[') {
            Some(rest) => {
                let (address, after) = rest.split_once(']')?;
                let port = match after {
                    "" => "",
                    after => after.strip_prefix(':')?,
                };
                (address, port)
            }
            None => host.split_once(':').unwrap_or((host, "")),
        };
        let valid = |c: char| !c.is_ascii_control() && !" \\^`{|}%".contains(c);
        let numeric = port.bytes().all(|digit| digit.is_ascii_digit());
        (numeric && host.chars().all(valid)).then_some(Self { host, port, path })
    }
}

/// Whether the location of credentials matches an image (`URLsMatchStr`): each part of the host is equal or matches a
/// `*`, the port is equal, and the image's path begins with the location's path.
pub(crate) fn urls_match(pattern: &str, image: &str) -> bool {
    let (Some(pattern), Some(image)) = (SchemelessUrl::parse(pattern), SchemelessUrl::parse(image)) else {
        return false;
    };
    let (globs, parts) = (pattern.host.split('.'), image.host.split('.'));
    pattern.port == image.port
        && globs.clone().count() == parts.clone().count()
        && image.path.starts_with(pattern.path)
        && globs.zip(parts).all(|(glob, part)| matches(glob, part))
}

/// The key of credentials in a Docker configuration: host and path without scheme and API version
/// (`BasicDockerKeyring.Add`). `None` if it is not a URL.
pub(super) fn location_key(location: &str) -> Option<String> {
    let bare = ["https://", "http://"]
        .iter()
        .find_map(|scheme| location.strip_prefix(scheme))
        .unwrap_or(location);
    SchemelessUrl::parse(bare)?;
    let end = bare.find(['?', '#']).unwrap_or(bare.len());
    let bare = &bare[..end];
    let (host, path) = bare.split_at(bare.find('/').unwrap_or(bare.len()));
    let host = host.rsplit_once('@').map_or(host, |(_user, host)| host);
    let versioned = path.starts_with("/v1/") || path.starts_with("/v2/");
    let path = if versioned { &path[3..] } else { path };
    Some(match path {
        "/" => host.to_owned(),
        path => format!("{host}{path}"),
    })
}

/// `filepath.Match`; a host can only have `*` of its syntax.
fn matches(glob: &str, text: &str) -> bool {
    let Some((before, rest)) = glob.split_once('*') else {
        return glob == text;
    };
    let Some(text) = text.strip_prefix(before) else {
        return false;
    };
    let starts = text.char_indices().map(|(at, _)| at).chain([text.len()]);
    starts.into_iter().any(|at| matches(rest, &text[at..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_for_hosts_ports_and_paths() {
        let cases = [
            // pattern, image, match
            ("registry.io", "registry.io/a/b", true),
            ("registry.io", "other.io/a", false),
            ("registry.io", "sub.registry.io/a", false),
            ("registry.io/a", "registry.io/a/b", true),
            ("registry.io/a", "registry.io/ab", true),
            ("registry.io/a/", "registry.io/a", false),
            ("registry.io:5000", "registry.io:5000/a", true),
            ("registry.io:5000", "registry.io/a", false),
            ("registry.io", "registry.io:5000/a", false),
            ("*.registry.io", "a.registry.io/x", true),
            ("*.registry.io", "a.b.registry.io/x", false),
            ("*.*.registry.io", "a.b.registry.io/x", true),
            ("app*.k8s.io", "app-5.k8s.io/x", true),
            ("*-app.*.io", "an-app.k8s.io/x", true),
            ("*-app.*.io", "an-ap.k8s.io/x", false),
            ("*.registry.io:80/p", "a.registry.io:80/path", true),
            ("localhost:5000", "localhost:5000/a", true),
            ("[::1]:5000", "[::1]:5000/a", true),
            ("bad port:x", "bad port:x/a", false),
            ("a:x", "a:x/y", false),
        ];
        for (pattern, image, expected) in cases {
            assert_eq!(urls_match(pattern, image), expected, "{pattern} {image}");
        }
    }

    #[test]
    fn locations_lose_their_scheme_and_api_version() {
        let cases = [
            ("https://index.docker.io/v1/", Some("index.docker.io")),
            ("http://registry.io/v2/team", Some("registry.io/team")),
            ("registry.io/v1", Some("registry.io/v1")),
            ("registry.io/", Some("registry.io")),
            ("registry.io:5000/team?x=1", Some("registry.io:5000/team")),
            ("https://", Some("")),
            ("a b", None),
        ];
        for (location, key) in cases {
            assert_eq!(location_key(location).as_deref(), key, "{location}");
        }
    }
}
