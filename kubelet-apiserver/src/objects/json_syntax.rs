//! The error messages of Go's JSON scanner for invalid JSON (`encoding/json`), which API clients see.

/// The error message; `None` for valid JSON.
pub(super) fn complaint(body: &[u8]) -> Option<String> {
    let mut scanner = Scanner { body, at: 0 };
    let found = scanner.value("looking for beginning of value").and_then(|()| {
        scanner.skip_space();
        match scanner.peek() {
            None => Ok(()),
            Some(_) => Err(scanner.complain("after top-level value")),
        }
    });
    found.err()
}

struct Scanner<'a> {
    body: &'a [u8],
    at: usize,
}

type Scanned = Result<(), String>;

impl Scanner<'_> {
    fn peek(&self) -> Option<u8> {
        self.body.get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    /// An error at this position.
    fn complain(&self, context: &str) -> String {
        match self.peek() {
            None => "unexpected end of JSON input".into(),
            Some(byte) => format!("invalid character {} {context}", quote(byte)),
        }
    }

    fn value(&mut self, context: &str) -> Scanned {
        self.skip_space();
        match self.peek() {
            Some(b'{') => self.object(),
            Some(b'[') => self.array(),
            Some(b'"') => self.string(),
            Some(b't') => self.word("true"),
            Some(b'f') => self.word("false"),
            Some(b'n') => self.word("null"),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => Err(self.complain(context)),
        }
    }

    fn object(&mut self) -> Scanned {
        self.at += 1;
        self.skip_space();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(());
        }
        loop {
            self.skip_space();
            if self.peek() != Some(b'"') {
                return Err(self.complain("looking for beginning of object key string"));
            }
            self.string()?;
            self.skip_space();
            if self.peek() != Some(b':') {
                return Err(self.complain("after object key"));
            }
            self.at += 1;
            self.value("looking for beginning of value")?;
            self.skip_space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => {
                    self.at += 1;
                    return Ok(());
                }
                _ => return Err(self.complain("after object key:value pair")),
            }
        }
    }

    fn array(&mut self) -> Scanned {
        self.at += 1;
        self.skip_space();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(());
        }
        loop {
            self.value("looking for beginning of value")?;
            self.skip_space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b']') => {
                    self.at += 1;
                    return Ok(());
                }
                _ => return Err(self.complain("after array element")),
            }
        }
    }

    fn string(&mut self) -> Scanned {
        self.at += 1;
        loop {
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(b'\\') => {
                    self.at += 1;
                    match self.peek() {
                        Some(b'b' | b'f' | b'n' | b'r' | b't' | b'\\' | b'/' | b'"') => {}
                        Some(b'u') => {
                            for _ in 0..4 {
                                self.at += 1;
                                if !self.peek().is_some_and(|byte| byte.is_ascii_hexdigit()) {
                                    return Err(self.complain("in \\u hexadecimal character escape"));
                                }
                            }
                        }
                        _ => return Err(self.complain("in string escape code")),
                    }
                }
                None | Some(0..0x20) => return Err(self.complain("in string literal")),
                Some(_) => {}
            }
            self.at += 1;
        }
    }

    fn word(&mut self, word: &str) -> Scanned {
        for byte in word.bytes() {
            if self.peek() != Some(byte) {
                let wanted = quote(byte);
                return Err(self.complain(&format!("in literal {word} (expecting {wanted})")));
            }
            self.at += 1;
        }
        Ok(())
    }

    fn number(&mut self) -> Scanned {
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        match self.peek() {
            Some(b'0') => self.at += 1,
            Some(b'1'..=b'9') => self.digits(),
            _ => return Err(self.complain("in numeric literal")),
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            if !self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
                return Err(self.complain("after decimal point in numeric literal"));
            }
            self.digits();
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            if !self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
                return Err(self.complain("in exponent of numeric literal"));
            }
            self.digits();
        }
        Ok(())
    }

    fn digits(&mut self) {
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
    }
}

/// A character as Go quotes it: each byte beyond ASCII is written as the character with its number.
pub(super) fn quote(byte: u8) -> String {
    match byte {
        b'\'' => r"'\''".into(),
        b'"' => "'\"'".into(),
        b'\\' => r"'\\'".into(),
        b'\n' => r"'\n'".into(),
        b'\r' => r"'\r'".into(),
        b'\t' => r"'\t'".into(),
        0x07 => r"'\a'".into(),
        0x08 => r"'\b'".into(),
        0x0b => r"'\v'".into(),
        0x0c => r"'\f'".into(),
        0..0x20 | 0x7f => format!("'\\x{byte:02x}'"),
        0x80..0xa1 | 0xad => format!("'\\u{byte:04x}'"),
        _ => format!("'{}'", char::from(byte)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complains_as_go_does() {
        let cases = [
            (r#"{"a": [1, -2.5e3, true, null, "x\u00e9"]}"#, None),
            (
                "{not json",
                Some("invalid character 'n' looking for beginning of object key string"),
            ),
            ("", Some("unexpected end of JSON input")),
            (r#"{"a""#, Some("unexpected end of JSON input")),
            (r#"{"a" 1}"#, Some("invalid character '1' after object key")),
            (
                r#"{"a": 1 "b"}"#,
                Some("invalid character '\"' after object key:value pair"),
            ),
            ("[1 2]", Some("invalid character '2' after array element")),
            (
                "nul!",
                Some("invalid character '!' in literal null (expecting 'l')"),
            ),
            ("{} x", Some("invalid character 'x' after top-level value")),
            ("x", Some("invalid character 'x' looking for beginning of value")),
        ];
        for (text, expected) in cases {
            assert_eq!(complaint(text.as_bytes()).as_deref(), expected, "{text}");
        }
    }
}
