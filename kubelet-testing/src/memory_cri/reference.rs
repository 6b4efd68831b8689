//! Names of images.

/// The full name of an image: `busybox` is `docker.io/library/busybox:latest`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reference {
    /// `docker.io/library/busybox`
    pub(super) repository: String,
    tag: String,
    pub(super) digest: Option<String>,
}

impl Reference {
    pub(super) fn parse(name: &str) -> Result<Self, &'static str> {
        const INVALID: &str = "invalid reference format";
        let (name, digest) = match name.split_once('@') {
            Some((name, digest)) if is_digest(digest) => (name, Some(digest.to_owned())),
            Some(_) => return Err(INVALID),
            None => (name, None),
        };
        let (path, tag) = match name.rsplit_once(':') {
            // Otherwise it is a port.
            Some((path, tag)) if !tag.contains('/') => (path, tag),
            _ => (name, "latest"),
        };
        let (domain, path) = match path.split_once('/') {
            Some((first, rest)) if first.contains(['.', ':']) || first == "localhost" => {
                (first, rest.to_owned())
            }
            Some(_) => ("docker.io", path.to_owned()),
            None => ("docker.io", format!("library/{path}")),
        };
        if path.chars().any(|c| c.is_ascii_uppercase()) {
            return Err("invalid reference format: repository name must be lowercase");
        }
        let component = |part: &str| {
            let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
            part.starts_with(plain)
                && part.ends_with(plain)
                && part.chars().all(|c| plain(c) || matches!(c, '.' | '_' | '-'))
        };
        let tag_is_good = !tag.is_empty()
            && tag.len() <= 128
            && !tag.starts_with(['.', '-'])
            && tag
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'));
        if domain.is_empty() || !path.split('/').all(component) || !tag_is_good {
            return Err(INVALID);
        }
        Ok(Self {
            repository: format!("{domain}/{path}"),
            tag: tag.to_owned(),
            digest,
        })
    }

    /// The name with its tag, or with its digest if it has one.
    pub(super) fn full(&self) -> String {
        match &self.digest {
            Some(digest) => format!("{}@{digest}", self.repository),
            None => format!("{}:{}", self.repository, self.tag),
        }
    }
}

fn is_digest(text: &str) -> bool {
    text.strip_prefix("sha256:")
        .is_some_and(|hex| hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_full() {
        let digest = format!("sha256:{}", "0a".repeat(32));
        let with_digest = format!("app:1@{digest}");
        let in_full = format!("docker.io/library/app@{digest}");
        for (name, full) in [
            ("busybox", "docker.io/library/busybox:latest"),
            ("busybox:1.36", "docker.io/library/busybox:1.36"),
            ("joe/app", "docker.io/joe/app:latest"),
            ("localhost/app:1", "localhost/app:1"),
            ("host:5000/a/b", "host:5000/a/b:latest"),
            ("host:5000/a/b:V2", "host:5000/a/b:V2"),
            (&with_digest, &in_full),
        ] {
            assert_eq!(Reference::parse(name).map(|r| r.full()).as_deref(), Ok(full));
        }
        for name in [
            "",
            "UPPER:1",
            "a b",
            "app:",
            "app@sha256:12",
            "/app",
            "a//b",
            "app:::",
        ] {
            assert!(Reference::parse(name).is_err(), "{name}");
        }
    }
}
