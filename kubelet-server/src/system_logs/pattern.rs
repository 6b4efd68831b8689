//! Finds what is plainly wrong with a regular expression, with the messages of Go's `regexp`.
//!
//! `journalctl` reads the pattern as PCRE2, which is a different language, and reports what else it does not like. So no
//! engine is needed here.

/// Checks brackets, escapes and repetitions.
pub(super) fn check(pattern: &str) -> Result<(), String> {
    let fail = |what: &str, part: &str| Err(format!("error parsing regexp: {what}: `{part}`"));
    let mut open = 0_usize;
    // Whether there is something before that can be repeated, and where the last repetition began.
    let (mut repeatable, mut repetition) = (false, None);
    let mut chars = pattern.char_indices();
    while let Some((at, c)) = chars.next() {
        let rest = pattern.get(at..).unwrap_or_default();
        let length = if c == '{' { counted_repetition(rest) } else { None };
        match c {
            '*' | '+' | '?' => {}
            '{' if length.is_some() => {}
            _ => repetition = None,
        }
        match c {
            '\\' => match chars.next() {
                Some(_) => repeatable = true,
                None => return fail("trailing backslash at end of expression", ""),
            },
            '(' => {
                open += 1;
                // What follows is no repetition: (?:x), (?i), (?P<name>x).
                if rest.starts_with("(?") {
                    chars.next();
                }
                repeatable = false;
            }
            ')' if open == 0 => return fail("unexpected )", pattern),
            ')' => {
                open -= 1;
                repeatable = true;
            }
            '[' => {
                let Some(end) = end_of_class(rest) else {
                    return fail("missing closing ]", rest);
                };
                while chars.offset() < at + end {
                    chars.next();
                }
                repeatable = true;
            }
            '|' => repeatable = false,
            '*' | '+' | '?' | '{' if c != '{' || length.is_some() => {
                let mut end = at + length.unwrap_or(1);
                // A question mark after it makes it lazy.
                if pattern.get(end..).is_some_and(|rest| rest.starts_with('?')) {
                    end += 1;
                }
                let written = pattern.get(at..end).unwrap_or_default();
                if !repeatable {
                    return fail(
                        "missing argument to repetition operator",
                        pattern.get(at..at + length.unwrap_or(1)).unwrap_or_default(),
                    );
                }
                if let Some(start) = repetition {
                    let both = pattern.get(start..end).unwrap_or(written);
                    return fail("invalid nested repetition operator", both);
                }
                if let Some(length) = length
                    && too_often(pattern.get(at..at + length).unwrap_or_default())
                {
                    return fail(
                        "invalid repeat count",
                        pattern.get(at..at + length).unwrap_or_default(),
                    );
                }
                repetition = Some(at);
                while chars.offset() < end {
                    chars.next();
                }
            }
            _ => repeatable = true,
        }
    }
    if open > 0 {
        return fail("missing closing )", pattern);
    }
    Ok(())
}

/// The length of `{2}`, `{2,}` or `{2,3}` at the start of a text. Any other brace stands for itself.
fn counted_repetition(text: &str) -> Option<usize> {
    let (inner, _) = text.strip_prefix('{')?.split_once('}')?;
    let (low, high) = inner.split_once(',').unwrap_or((inner, ""));
    let is_number = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    (!low.is_empty() && is_number(low) && is_number(high)).then_some(inner.len() + 2)
}

/// Whether the numbers of a counted repetition are too large, or in the wrong order.
fn too_often(repetition: &str) -> bool {
    let inner = repetition.trim_matches(['{', '}']);
    let (low, high) = inner.split_once(',').unwrap_or((inner, ""));
    let number = |text: &str| text.parse::<u32>().unwrap_or(u32::MAX);
    number(low) > 1000 || (!high.is_empty() && (number(high) > 1000 || number(high) < number(low)))
}

/// The length of the class at the start of a text, brackets included.
fn end_of_class(text: &str) -> Option<usize> {
    let body = text.strip_prefix('[')?;
    let body = body.strip_prefix('^').unwrap_or(body);
    let start = text.len() - body.len();
    let mut chars = body.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => _ = chars.next(),
            '[' if body.get(at..).is_some_and(|rest| rest.starts_with("[:")) => {
                let end = body.get(at..)?.find(":]");
                while end.is_some_and(|end| chars.offset() < at + end + 2) {
                    chars.next();
                }
            }
            // A bracket that comes first stands for itself.
            ']' if at > 0 => return Some(start + at + 1),
            _ => (),
        }
    }
    None
}
