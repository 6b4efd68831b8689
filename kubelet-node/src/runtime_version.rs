//! How the node reports the version of its runtime.

/// A full semantic version is reported as it is. Of any other version only the leading numbers are reported:
/// `1.6.20~ds1` becomes `1.6.20` (`newRuntimeVersion`). `None` if there are fewer than two numbers.
pub(crate) fn runtime_version(text: &str) -> Option<String> {
    let text = text.trim_start();
    let text = text.strip_prefix('v').unwrap_or(text);
    let (numbers, extra) = text.split_at(numbers_end(text));
    let numbers: Vec<&str> = numbers.split('.').collect();
    if numbers.len() == 3 && !numbers.iter().any(|it| has_leading_zero(it)) && is_semantic(extra.trim_end()) {
        return Some(text.trim_end().to_owned());
    }
    if numbers.len() < 2 || has_leading_zero(numbers[0]) {
        return None;
    }
    let parsed: Result<Vec<u64>, _> = numbers.iter().map(|it| it.parse()).collect();
    let shown: Vec<String> = parsed.ok()?.iter().map(u64::to_string).collect();
    Some(shown.join("."))
}

/// The end of the leading dot-separated numbers.
fn numbers_end(text: &str) -> usize {
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let mut end = digits(text);
    while end > 0 && text[end..].starts_with('.') {
        match digits(&text[end + 1..]) {
            0 => break,
            more => end += 1 + more,
        }
    }
    end
}

/// Nothing, or `-pre.release`, or `+meta.data`, or both.
fn is_semantic(extra: &str) -> bool {
    let is_word =
        |word: &str| !word.is_empty() && word.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'-');
    let (before, metadata) = match extra.split_once('+') {
        Some((before, metadata)) => (before, Some(metadata)),
        None => (extra, None),
    };
    let is_number = |word: &str| word.bytes().all(|it| it.is_ascii_digit());
    let is_pre_release = |text: &str| {
        text.split('.')
            .all(|word| is_word(word) && !(is_number(word) && has_leading_zero(word)))
    };
    (before.is_empty() || before.strip_prefix('-').is_some_and(is_pre_release))
        && metadata.is_none_or(|metadata| metadata.split('.').all(is_word))
}

fn has_leading_zero(number: &str) -> bool {
    number.len() > 1 && number.starts_with('0')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_shown_as_the_kubelet_shows_it() {
        for (text, shown) in [
            ("1.6.20~ds1", Some("1.6.20")),
            ("v2.1.0", Some("2.1.0")),
            (" 1.7.24-rc.1+build.5 ", Some("1.7.24-rc.1+build.5")),
            ("1.7.24-rc.01", Some("1.7.24")),
            ("1.7.24+", Some("1.7.24")),
            ("1.7", Some("1.7")),
            ("1.07.3", Some("1.7.3")),
            ("19.3.1.2.", Some("19.3.1.2")),
            ("1.2..3", Some("1.2")),
            ("1", None),
            ("01.2", None),
            ("dev", None),
            ("", None),
            ("99999999999999999999.1", None),
        ] {
            assert_eq!(runtime_version(text).as_deref(), shown, "{text:?}");
        }
    }
}
