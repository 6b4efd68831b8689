//! [`Html`]: text that is escaped.

use std::fmt::{Display, Write as _};

/// HTML in the making. Only literals of this program get into it as they are.
#[derive(Debug, Default)]
pub(super) struct Html(String);

impl Html {
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// Appends markup.
    pub(super) fn raw(&mut self, markup: &'static str) -> &mut Self {
        self.0.push_str(markup);
        self
    }

    /// Appends text, in an element or in an attribute with quotes.
    pub(super) fn text(&mut self, text: impl Display) -> &mut Self {
        // Writing to a string cannot fail.
        let _ = write!(Escaping(&mut self.0), "{text}");
        self
    }

    /// Appends a number as a coordinate, with one decimal.
    pub(super) fn number(&mut self, number: f64) -> &mut Self {
        let _ = write!(self.0, "{number:.1}");
        self
    }

    /// Appends a part.
    pub(super) fn part(&mut self, part: Html) -> &mut Self {
        self.0.push_str(&part.0);
        self
    }

    pub(super) fn into_string(self) -> String {
        self.0
    }
}

struct Escaping<'a>(&'a mut String);

impl std::fmt::Write for Escaping<'_> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        for letter in text.chars() {
            match letter {
                '&' => self.0.push_str("&amp;"),
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '"' => self.0.push_str("&quot;"),
                '\'' => self.0.push_str("&#39;"),
                // Browsers show nothing for them, and some are not allowed.
                letter if letter.is_control() && !matches!(letter, '\n' | '\t') => self.0.push('\u{fffd}'),
                letter => self.0.push(letter),
            }
        }
        Ok(())
    }
}

/// What is encoded in a segment of a path.
const SEGMENT: &percent_encoding::AsciiSet = &percent_encoding::NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// One segment of a path, percent-encoded.
pub(super) fn segment(name: &str) -> impl Display + '_ {
    percent_encoding::utf8_percent_encode(name, SEGMENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_everything_but_literals() {
        let mut html = Html::new();
        html.raw("<a href=\"")
            .text("\"><script>")
            .raw("\">")
            .text("a & 'b'\u{1b}[0m");
        assert_eq!(
            html.into_string(),
            "<a href=\"&quot;&gt;&lt;script&gt;\">a &amp; &#39;b&#39;\u{fffd}[0m"
        );
        assert_eq!(segment("a/../<b>").to_string(), "a%2F..%2F%3Cb%3E");
    }
}
