//! Names of images: `busybox`, `registry.k8s.io/pause:3.10`, `app@sha256:…` (`parsers.ParseImageName`,
//! `distribution/reference`).
//!
//! ```
//! use kubelet_core::image_name::{ImageName, default_pull_policy};
//!
//! let name = ImageName::parse("busybox:1.36").unwrap();
//! assert_eq!(name.repository(), "docker.io/library/busybox");
//! assert_eq!(name.tag(), Some("1.36"));
//! assert_eq!(default_pull_policy("busybox"), "Always");
//! ```

use std::fmt;

/// The tag of an image whose name has neither tag nor digest.
const DEFAULT_TAG: &str = "latest";
/// The registry of a short name such as `busybox` or `user/app`.
const DEFAULT_DOMAIN: &str = "docker.io";
/// The most characters of a repository's path, without its registry (`RepositoryNameTotalLengthMax`).
const REPOSITORY_NAME_MAX: usize = 255;

/// A parsed name of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageName<'a> {
    repository: String,
    tag: Option<&'a str>,
    digest: Option<&'a str>,
}

/// The text is not a name of an image. It says why in the words of the kubelet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseImageNameError {
    image: String,
    problem: String,
}

impl fmt::Display for ParseImageNameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "couldn't parse image name {:?}: {}", self.image, self.problem)
    }
}

impl std::error::Error for ParseImageNameError {}

impl<'a> ImageName<'a> {
    /// Parses a name as a container spells it.
    ///
    /// # Errors
    ///
    /// [`ParseImageNameError`] if the text is not a name of an image.
    pub fn parse(image: &'a str) -> Result<Self, ParseImageNameError> {
        parse(image).map_err(|problem| ParseImageNameError {
            image: image.to_owned(),
            problem,
        })
    }

    /// The full name of the repository, without tag and digest: `docker.io/library/busybox`.
    pub fn repository(&self) -> &str {
        &self.repository
    }

    /// The tag. It is `latest` if the name has neither tag nor digest.
    pub fn tag(&self) -> Option<&'a str> {
        match (self.tag, self.digest) {
            (None, None) => Some(DEFAULT_TAG),
            (tag, _) => tag,
        }
    }

    /// The digest, e.g. `sha256:` and 64 hexadecimal digits.
    pub fn digest(&self) -> Option<&'a str> {
        self.digest
    }
}

/// The `imagePullPolicy` of a container that sets none (`SetDefaults_Container`): `Always` if the tag is `latest`, else
/// `IfNotPresent`.
pub fn default_pull_policy(image: &str) -> &'static str {
    match ImageName::parse(image) {
        Ok(name) if name.tag() == Some(DEFAULT_TAG) => "Always",
        _ => "IfNotPresent",
    }
}

/// The name with the tag `latest` if it has neither tag nor digest (`applyDefaultImageTag`). A short name stays short:
/// the runtime resolves it.
///
/// # Errors
///
/// [`ParseImageNameError`] if the text is not a name of an image.
pub fn with_default_tag(image: &str) -> Result<String, ParseImageNameError> {
    let name = ImageName::parse(image)?;
    Ok(match (name.tag, name.digest) {
        (None, None) => format!("{image}:{DEFAULT_TAG}"),
        _ => image.to_owned(),
    })
}

/// The name as it is spelled, without tag and digest (`trimImageTagDigest`).
pub fn without_tag_and_digest(image: &str) -> &str {
    let name = image.split_once('@').map_or(image, |(name, _)| name);
    match name.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => name,
        _ => name,
    }
}

/// Whether the text is the name of a repository, as it is spelled, without tag and digest: `busybox`,
/// `registry.k8s.io/pause`.
pub fn is_repository(name: &str) -> bool {
    let is_path = |path: &str| path.len() <= REPOSITORY_NAME_MAX && path.split('/').all(is_path_component);
    match name.split_once('/') {
        Some((domain, path)) if is_domain(domain) => is_path(path),
        _ => is_path(name),
    }
}

fn parse(image: &str) -> Result<ImageName<'_>, String> {
    if image.len() == 64 && image.bytes().all(is_lower_hex) {
        return Err(format!(
            "invalid repository name ({image}), cannot specify 64-byte hexadecimal strings"
        ));
    }
    let (domain, remote) = split_domain(image);
    let library = match domain {
        DEFAULT_DOMAIN if !remote.contains('/') => "library/",
        _ => "",
    };
    let before_colon = remote.split(':').next().unwrap_or_default();
    if before_colon.chars().any(char::is_uppercase) {
        return Err(format!(
            "invalid reference format: repository name ({library}{before_colon}) must be lowercase"
        ));
    }
    let (name_and_tag, digest) = match remote.split_once('@') {
        Some((before, digest)) => (before, Some(digest)),
        None => (remote, None),
    };
    // A path has no colon, so the first one starts the tag.
    let (name, tag) = match name_and_tag.split_once(':') {
        Some((name, tag)) => (name, Some(tag)),
        None => (name_and_tag, None),
    };
    let path = format!("{library}{name}");
    let well_formed = is_domain(domain)
        && path.split('/').all(is_path_component)
        && tag.is_none_or(is_tag)
        && digest.is_none_or(is_digest);
    if !well_formed {
        return Err("invalid reference format".to_owned());
    }
    if path.len() > REPOSITORY_NAME_MAX {
        return Err(format!(
            "repository name must not be more than {REPOSITORY_NAME_MAX} characters"
        ));
    }
    if digest.is_some_and(|digest| !is_known_digest(digest)) {
        return Err("invalid checksum digest format".to_owned());
    }
    Ok(ImageName {
        repository: format!("{domain}/{path}"),
        tag,
        digest,
    })
}

/// What stands before the first slash is a domain only if it cannot be part of a path.
fn split_domain(image: &str) -> (&str, &str) {
    let domain = image.split_once('/').filter(|(first, _)| {
        first.contains(['.', ':']) || *first == "localhost" || first.chars().any(char::is_uppercase)
    });
    match domain {
        Some((DEFAULT_DOMAIN | "index.docker.io", remote)) => (DEFAULT_DOMAIN, remote),
        Some(parts) => parts,
        None => (DEFAULT_DOMAIN, image),
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

/// Words of lower case letters and digits, separated by `.`, `_`, `__` or any number of dashes.
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
            assert_eq!(with_default_tag(&image).as_ref(), Ok(&image));
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
            assert_eq!(with_default_tag(image), Ok(format!("{image}:latest")));
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
            assert_eq!(ImageName::parse(&image).unwrap().repository(), full);
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
                with_default_tag(&image).unwrap_err().to_string(),
                format!("couldn't parse image name {image:?}: {problem}")
            );
            assert_eq!(default_pull_policy(&image), "IfNotPresent");
        }
    }

    #[test]
    fn tags() {
        let digest = format!("sha256:{}", "a".repeat(64));
        let cases: [(&str, Option<&str>, &str); 8] = [
            ("busybox", Some("latest"), "Always"),
            ("busybox:1.36", Some("1.36"), "IfNotPresent"),
            ("busybox:latest", Some("latest"), "Always"),
            ("localhost:5000/busybox", Some("latest"), "Always"),
            ("localhost:5000/a/b:v1", Some("v1"), "IfNotPresent"),
            ("registry.k8s.io/pause:3.10", Some("3.10"), "IfNotPresent"),
            ("busybox@DIGEST", None, "IfNotPresent"),
            ("busybox:latest@DIGEST", Some("latest"), "Always"),
        ];
        for (image, tag, policy) in cases {
            let image = image.replace("DIGEST", &digest);
            let name = ImageName::parse(&image).unwrap();
            assert_eq!(name.tag(), tag, "{image}");
            assert_eq!(
                name.digest(),
                image.contains('@').then_some(digest.as_str()),
                "{image}"
            );
            assert_eq!(default_pull_policy(&image), policy, "{image}");
        }
    }

    #[test]
    fn repositories() {
        for name in [
            "busybox",
            "user/app",
            "registry.k8s.io/pause",
            "localhost:5000/a/b",
            "HOST/a",
        ] {
            assert!(is_repository(name), "{name}");
        }
        for name in ["", "a:1", "localhost:5000", "Busybox", "a@b", "a//b", "a/", "/a"] {
            assert!(!is_repository(name), "{name}");
        }
        assert!(!is_repository(&"a".repeat(256)));
    }
}
