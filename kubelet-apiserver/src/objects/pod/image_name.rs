//! Names of images, as far as defaults depend on them (`parsers.ParseImageName`).

/// The tag that an image name means: what it says, `latest` if it says neither tag nor digest, none if it
/// says a digest or is not a valid name.
pub(super) fn tag(image: &str) -> Option<&str> {
    let (named, digest) = match image.split_once('@') {
        Some((named, digest)) => (named, Some(digest)),
        None => (image, None),
    };
    if digest.is_some_and(|digest| !is_digest(digest)) || (digest.is_none() && is_image_id(named)) {
        return None;
    }
    let after_slash = named.rfind('/').map_or(0, |slash| slash + 1);
    let (name, tag) = match named[after_slash..].find(':') {
        Some(colon) => {
            let colon = after_slash + colon;
            (&named[..colon], Some(&named[colon + 1..]))
        }
        None => (named, None),
    };
    if !is_repository(name) || tag.is_some_and(|tag| !is_tag(tag)) {
        return None;
    }
    match (tag, digest) {
        (Some(tag), _) => Some(tag),
        (None, None) => Some("latest"),
        (None, Some(_)) => None,
    }
}

fn is_repository(name: &str) -> bool {
    let (first, rest) = match name.split_once('/') {
        Some((first, rest)) => (first, Some(rest)),
        None => (name, None),
    };
    match rest {
        Some(rest) if is_registry(first) => rest.split('/').all(is_path_component),
        _ => name.split('/').all(is_path_component),
    }
}

fn is_registry(name: &str) -> bool {
    let (host, port) = name
        .split_once(':')
        .map_or((name, None), |(host, port)| (host, Some(port)));
    let labels = host.split('.').all(|label| {
        let inner = label.strip_prefix(|c: char| c.is_ascii_alphanumeric());
        inner.is_some_and(|inner| {
            !inner.ends_with('-') && inner.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
        })
    });
    let remote = name.contains(['.', ':']) || name == "localhost" || name.to_ascii_lowercase() != name;
    remote && labels && port.is_none_or(|port| !port.is_empty() && port.bytes().all(|c| c.is_ascii_digit()))
}

fn is_path_component(text: &str) -> bool {
    let alphanumeric = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    let bytes = text.as_bytes();
    if !bytes.first().copied().is_some_and(alphanumeric) || !bytes.last().copied().is_some_and(alphanumeric) {
        return false;
    }
    let mut separators = text.split(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit());
    separators
        .all(|separator| matches!(separator, "" | "." | "_" | "__") || separator.bytes().all(|c| c == b'-'))
}

fn is_tag(tag: &str) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    tag.len() <= 128 && tag.starts_with(word) && tag.chars().all(|c| word(c) || c == '.' || c == '-')
}

fn is_digest(digest: &str) -> bool {
    let Some((algorithm, hex)) = digest.split_once(':') else {
        return false;
    };
    let length = match algorithm {
        "sha256" => 64,
        "sha384" => 96,
        "sha512" => 128,
        _ => return false,
    };
    hex.len() == length
        && hex
            .bytes()
            .all(|c| c.is_ascii_digit() || (b'a'..=b'f').contains(&c))
}

/// 64 hexadecimal digits name an image by its id, which is no name.
fn is_image_id(name: &str) -> bool {
    name.len() == 64
        && name
            .bytes()
            .all(|c| c.is_ascii_digit() || (b'a'..=b'f').contains(&c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags() {
        let digest = format!("sha256:{}", "a".repeat(64));
        let cases: [(&str, Option<&str>); 14] = [
            ("busybox", Some("latest")),
            ("busybox:1.36", Some("1.36")),
            ("busybox:latest", Some("latest")),
            ("localhost:5000/busybox", Some("latest")),
            ("localhost:5000/a/b:v1", Some("v1")),
            ("registry.k8s.io/pause:3.10", Some("3.10")),
            (&format!("busybox@{digest}"), None),
            (&format!("busybox:latest@{digest}"), Some("latest")),
            ("busybox@sha256:aaaa", None),
            ("Busybox", None),
            (" busybox", None),
            ("", None),
            ("a//b", None),
            (&"a".repeat(64), None),
        ];
        for (image, expected) in cases {
            assert_eq!(tag(image), expected, "{image}");
        }
    }
}
