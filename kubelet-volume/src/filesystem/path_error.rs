//! Errors about a path, in the words that the kubelet uses in events.

use std::io;
use std::path::Path;

/// `open /srv/file: no such file or directory`: the call, the path, and the error of the operating system (Go's
/// `os.PathError`).
pub(crate) fn path_io_error(call: &str, path: &Path, error: &io::Error) -> io::Error {
    let text = format!("{call} {}: {}", path.display(), reason(error));
    io::Error::new(error.kind(), text)
}

/// The message of the operating system: in lower case, without its number.
pub(crate) fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    if error.raw_os_error().is_none() {
        return text;
    }
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut letters = text.chars();
    match (letters.next(), letters.next()) {
        // Abbreviations stay.
        (Some(_), Some(second)) if second.is_uppercase() => text.to_owned(),
        (Some(first), _) => first.to_lowercase().collect::<String>() + &text[first.len_utf8()..],
        (None, _) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_are_those_of_the_kubelet() {
        let missing = std::fs::read("/no/such/file").unwrap_err();
        let error = path_io_error("open", Path::new("/no/such/file"), &missing);
        assert_eq!(error.to_string(), "open /no/such/file: no such file or directory");
        assert_eq!(reason(&io::Error::other("Mine")), "Mine");
    }
}
