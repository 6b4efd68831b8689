//! The shortest form of a path.

/// The path without `.`, doubled slashes, and names before `..`, by its text alone (Go's `filepath.Clean`).
pub(crate) fn clean_path(path: &str) -> String {
    let is_absolute = path.starts_with('/');
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => _ = parts.pop(),
            ".." if is_absolute => {}
            part => parts.push(part),
        }
    }
    let joined = parts.join("/");
    match (is_absolute, joined.is_empty()) {
        (true, _) => format!("/{joined}"),
        (false, true) => ".".to_owned(),
        (false, false) => joined,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_shortened_by_their_text() {
        for (path, clean) in [
            ("", "."),
            ("/", "/"),
            ("a//b/./c/", "a/b/c"),
            ("a/../b", "b"),
            ("../../a", "../../a"),
            ("/../a", "/a"),
            ("/a/b/../..", "/"),
            ("a/..", "."),
        ] {
            assert_eq!(clean_path(path), clean, "{path}");
        }
    }
}
