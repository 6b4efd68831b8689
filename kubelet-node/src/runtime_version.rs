//! How the version of a runtime is shown.

/// A semantic version whole, of any other the numbers that it begins with: `1.6.20~ds1` is shown as `1.6.20`
/// (`newRuntimeVersion`). Nothing, if these are not two at least.
pub(crate) fn runtime_version(told: &str) -> Option<String> {
    let told = told.trim_start();
    let told = told.strip_prefix('v').unwrap_or(told);
    let (numbers, extra) = told.split_at(numbers_end(told));
    let numbers: Vec<&str> = numbers.split('.').collect();
    if numbers.len() == 3 && !numbers.iter().any(|it| has_leading_zero(it)) && is_semantic(extra.trim_end()) {
        return Some(told.trim_end().to_owned());
    }
    if numbers.len() < 2 || has_leading_zero(numbers[0]) {
        return None;
    }
    let parsed: Result<Vec<u64>, _> = numbers.iter().map(|it| it.parse()).collect();
    let shown: Vec<String> = parsed.ok()?.iter().map(u64::to_string).collect();
    Some(shown.join("."))
}

/// Where numbers with single dots between them end.
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
        for (told, shown) in [
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
            assert_eq!(runtime_version(told).as_deref(), shown, "{told:?}");
        }
    }
}
