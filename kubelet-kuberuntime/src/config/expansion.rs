//! `$(VAR)` in commands, arguments, environment variables and sub-paths (`third_party/forked/golang/expansion`).

use std::borrow::Cow;

/// Replaces each `$(NAME)` by the result of `lookup`, and `$$` by `$`. Everything else stays unchanged: a `$` before
/// any other character, and a `$(` without `)`.
///
/// `lookup` also returns the replacement of an unknown name: see [`reference`].
pub(crate) fn expand<'a>(input: &str, mut lookup: impl FnMut(&str) -> Cow<'a, str>) -> String {
    let mut output = String::with_capacity(input.len());
    let mut rest = input;
    while let Some(at) = rest.find('$') {
        output.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        if let Some(escaped) = after.strip_prefix('$') {
            output.push('$');
            rest = escaped;
        } else if let Some((name, closed)) = after.strip_prefix('(').and_then(|open| open.split_once(')')) {
            output.push_str(&lookup(name));
            rest = closed;
        } else {
            output.push('$');
            rest = after;
        }
    }
    output.push_str(rest);
    output
}

/// The replacement of an unknown name: the reference itself.
pub(crate) fn reference(name: &str) -> Cow<'static, str> {
    Cow::Owned(format!("$({name})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_replaced_and_the_rest_stays() {
        let cases = [
            ("", ""),
            ("plain", "plain"),
            ("$(A)", "1"),
            ("x$(A)y$(B)z", "x1y$(A)z"),
            ("$$(A)", "$(A)"),
            ("$$$(A)", "$1"),
            ("$$$$(A)", "$$(A)"),
            ("$(MISSING)", "$(MISSING)"),
            ("$()", "$()"),
            ("$", "$"),
            ("$$", "$"),
            ("a$", "a$"),
            ("$A", "$A"),
            ("$(A", "$(A"),
            ("$($(A))", "$($(A))"),
            ("$(A)$", "1$"),
            ("$é(A)", "$é(A)"),
            ("$ $(A)", "$ 1"),
        ];
        for (input, output) in cases {
            let expanded = expand(input, |name| match name {
                "A" => Cow::Borrowed("1"),
                "B" => Cow::Borrowed("$(A)"),
                other => reference(other),
            });
            assert_eq!(expanded, output, "{input}");
        }
    }
}
