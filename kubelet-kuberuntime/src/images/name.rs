//! Names of images, and the tag that one without gets (`parsers.ParseImageName`, `distribution/reference`).

/// The tag of an image that names neither tag nor digest.
const DEFAULT_TAG: &str = "latest";
/// What a short name lies in: no other registry is meant by `busybox` or `user/app`.
const DEFAULT_DOMAIN: &str = "docker.io";
/// The longest name of a repository with its domain (`RepositoryNameTotalLengthMax`).
const REPOSITORY_NAME_MAX: usize = 255;

/// The image's name with a tag if it names neither tag nor digest (`applyDefaultImageTag`). It is not made longer
/// otherwise: what a short name means is the runtime's business.
///
/// # Errors
///
/// Why it is no name, in the kubelet's words.
pub(super) fn apply_default_image_tag(image: &str) -> Result<String, String> {
    let parsed = parse(image).map_err(|problem| format!("couldn't parse image name {image:?}: {problem}"))?;
    match parsed.has_suffix {
        true => Ok(image.to_owned()),
        false => Ok(format!("{image}:{DEFAULT_TAG}")),
    }
}

/// The image's name in full, without tag and digest: `docker.io/library/busybox`. What is no name is left as it is.
pub(super) fn repository(image: &str) -> String {
    parse(image).map_or_else(|_| image.to_owned(), |parsed| parsed.repository)
}

/// The image's name as it is given, without tag and digest (`trimImageTagDigest`).
pub(super) fn without_tag_and_digest(image: &str) -> &str {
    let name = image.split_once('@').map_or(image, |(name, _)| name);
    match name.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => name,
        _ => name,
    }
}

struct Parsed {
    /// With its domain.
    repository: String,
    /// There is a tag or digest.
    has_suffix: bool,
}

fn parse(image: &str) -> Result<Parsed, String> {
    if image.len() == 64 && image.bytes().all(is_lower_hex) {
        return Err(format!(
            "invalid repository name ({image}), cannot specify 64-byte hexadecimal strings"
        ));
    }
    let (domain, rest) = split_domain(image);
    let remote = rest.split(':').next().unwrap_or_default();
    if remote.chars().any(char::is_uppercase) {
        return Err(format!(
            "invalid reference format: repository name ({remote}) must be lowercase"
        ));
    }
    let invalid = || "invalid reference format".to_owned();
    let (name_and_tag, digest) = match rest.split_once('@') {
        Some((before, digest)) => (before, Some(digest)),
        None => (rest.as_str(), None),
    };
    // A path has no colon, so the first one starts the tag.
    let (path, tag) = match name_and_tag.split_once(':') {
        Some((path, tag)) => (path, Some(tag)),
        None => (name_and_tag, None),
    };
    let well_formed = is_domain(domain)
        && path.split('/').all(is_path_component)
        && tag.is_none_or(is_tag)
        && digest.is_none_or(is_digest);
    if !well_formed {
        return Err(invalid());
    }
    if domain.len() + 1 + path.len() > REPOSITORY_NAME_MAX {
        return Err(format!(
            "repository name must not be more than {REPOSITORY_NAME_MAX} characters"
        ));
    }
    if digest.is_some_and(|digest| !is_known_digest(digest)) {
        return Err("invalid checksum digest format".to_owned());
    }
    Ok(Parsed {
        repository: format!("{domain}/{path}"),
        has_suffix: tag.is_some() || digest.is_some(),
    })
}

/// What stands before the first slash is a domain only if it cannot be part of a path.
fn split_domain(image: &str) -> (&str, String) {
    let domain = image.split_once('/').filter(|(first, _)| {
        first.contains(['.', ':']) || *first == "localhost" || first.chars().any(char::is_uppercase)
    });
    match domain {
        Some(("docker.io" | "index.docker.io", rest)) => (DEFAULT_DOMAIN, in_default_domain(rest)),
        Some((domain, rest)) => (domain, rest.to_owned()),
        None => (DEFAULT_DOMAIN, in_default_domain(image)),
    }
}

fn in_default_domain(rest: &str) -> String {
    match rest.contains('/') {
        true => rest.to_owned(),
        false => format!("library/{rest}"),
    }
}

fn is_domain(domain: &str) -> bool {
    let (host, port) = match domain.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, rest)) => {
            let is_address =
                !address.is_empty() && address.bytes().all(|b| b.is_ascii_hexdigit() || b == b':');
            match (is_address, rest.strip_prefix(':')) {
                (false, _) => return false,
                (true, Some(port)) => return is_port(port),
                (true, None) => return rest.is_empty(),
            }
        }
        None => match domain.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (domain, None),
        },
    };
    let is_label = |label: &str| {
        !label.is_empty()
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    host.split('.').all(is_label) && port.is_none_or(is_port)
}

fn is_port(port: &str) -> bool {
    !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit())
}

/// Lower case letters and digits, parted by `.`, `_`, `__` or any number of dashes.
fn is_path_component(component: &str) -> bool {
    let mut rest = component;
    loop {
        let word = rest.trim_start_matches(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit());
        if word.len() == rest.len() {
            return false;
        }
        if word.is_empty() {
            return true;
        }
        let separators = ["__", "_", "."];
        rest = match separators
            .iter()
            .find_map(|separator| word.strip_prefix(separator))
        {
            Some(after) => after,
            None if word.starts_with('-') => word.trim_start_matches('-'),
            None => return false,
        };
    }
}

fn is_tag(tag: &str) -> bool {
    let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    tag.len() <= 128
        && tag.bytes().next().is_some_and(word)
        && tag.bytes().all(|b| word(b) || b == b'.' || b == b'-')
}

/// `<algorithm>:<at least 32 hexadecimal digits>`
fn is_digest(digest: &str) -> bool {
    let Some((algorithm, hex)) = digest.split_once(':') else {
        return false;
    };
    let is_word = |word: &str| {
        word.bytes().next().is_some_and(|b| b.is_ascii_alphabetic())
            && word.bytes().all(|b| b.is_ascii_alphanumeric())
    };
    algorithm.split(['-', '_', '+', '.']).all(is_word)
        && hex.len() >= 32
        && hex.bytes().all(|b| b.is_ascii_hexdigit())
}

fn is_known_digest(digest: &str) -> bool {
    let length = match digest.split_once(':') {
        Some(("sha256", hex)) => (hex, 64),
        Some(("sha384", hex)) => (hex, 96),
        Some(("sha512", hex)) => (hex, 128),
        _ => return false,
    };
    length.0.len() == length.1 && length.0.bytes().all(is_lower_hex)
}

fn is_lower_hex(byte: u8) -> bool {
    byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_without_tag_and_digest_gets_the_default_one() {
        let digest = format!("@sha256:{}", "a".repeat(64));
        let given = [
            "busybox:1.36".to_owned(),
            "localhost:5000/app:v1".to_owned(),
            format!("busybox{digest}"),
            format!("busybox:1.36{digest}"),
            "[fe80::1]:5000/app:v1".to_owned(),
        ];
        for image in given {
            assert_eq!(apply_default_image_tag(&image).as_ref(), Ok(&image));
        }
        let bare = [
            "busybox",
            "docker.io/library/busybox",
            "localhost:5000/app",
            "localhost/app",
            "registry.k8s.io/pause",
            "user/my-app__x.y_z",
            "UPPER/app",
            "a---b",
        ];
        for image in bare {
            assert_eq!(apply_default_image_tag(image), Ok(format!("{image}:latest")));
        }
    }

    #[test]
    fn names_are_known_without_tag_and_digest() {
        let digest = format!("sha256:{}", "a".repeat(64));
        let cases = [
            // image, in full, as given
            ("busybox", "docker.io/library/busybox", "busybox"),
            ("user/app:1", "docker.io/user/app", "user/app"),
            ("localhost:5000/app:1", "localhost:5000/app", "localhost:5000/app"),
            ("localhost:5000/app", "localhost:5000/app", "localhost:5000/app"),
            (
                "index.docker.io/app",
                "docker.io/library/app",
                "index.docker.io/app",
            ),
            ("r.io/app:1@DIGEST", "r.io/app", "r.io/app"),
            ("r.io/app@DIGEST", "r.io/app", "r.io/app"),
        ];
        for (image, full, given) in cases {
            let image = image.replace("DIGEST", &digest);
            assert_eq!(repository(&image), full);
            assert_eq!(without_tag_and_digest(&image), given);
        }
    }

    #[test]
    fn other_names_are_refused_with_the_reason() {
        let hex = "a".repeat(64);
        let cases = [
            (
                "Not A Valid Image".to_owned(),
                "invalid reference format: repository name (library/Not A Valid Image) must be lowercase",
            ),
            (
                hex.clone(),
                "invalid repository name (aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa), cannot \
                 specify 64-byte hexadecimal strings",
            ),
            (String::new(), "invalid reference format"),
            ("a b".to_owned(), "invalid reference format"),
            ("a:".to_owned(), "invalid reference format"),
            ("a:b:c".to_owned(), "invalid reference format"),
            ("a@b".to_owned(), "invalid reference format"),
            ("-a".to_owned(), "invalid reference format"),
            ("a..b".to_owned(), "invalid reference format"),
            ("a//b".to_owned(), "invalid reference format"),
            (format!("a:{}", "t".repeat(129)), "invalid reference format"),
            (
                format!("a@md5:{}", "a".repeat(32)),
                "invalid checksum digest format",
            ),
            (
                format!("{}/a", "x".repeat(254)),
                "repository name must not be more than 255 characters",
            ),
        ];
        for (image, problem) in cases {
            assert_eq!(
                apply_default_image_tag(&image),
                Err(format!("couldn't parse image name {image:?}: {problem}"))
            );
        }
    }
}
