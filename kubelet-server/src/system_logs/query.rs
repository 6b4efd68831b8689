//! The parameters of the node log query, and what the kubelet refuses of them.

use std::fmt::Write;
use std::path::Path;

use jiff::Timestamp;

use super::{pattern, within};

const MAX_TAIL_LINES: i64 = 100_000;
const MAX_SERVICE_LENGTH: usize = 256;
const MAX_SERVICES: usize = 4;

/// Asks for the lines of services, or for one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Query {
    pub(super) services: Vec<String>,
    files: Vec<String>,
    pub(super) options: Options,
}

/// Which lines of services.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Options {
    pub(super) since: Option<Time>,
    pub(super) until: Option<Time>,
    pub(super) tail_lines: Option<i64>,
    pub(super) boot: Option<i64>,
    pub(super) pattern: String,
}

/// A time, and how the client wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Time {
    pub(super) at: Timestamp,
    written: String,
}

impl Query {
    /// `None` if there is no parameter of the query. The error is the body of the answer.
    pub(super) fn parse(parameters: &str) -> Result<Option<Self>, String> {
        let parameters: Vec<_> = form_urlencoded::parse(parameters.as_bytes()).collect();
        let first = |name: &str| {
            let mut found = parameters.iter().filter(|(key, _)| key == name);
            found
                .next()
                .map(|(_, value)| &**value)
                .filter(|value| !value.is_empty())
        };
        let mut errors = Errors::default();
        let mut query = Self::default();
        let queries = parameters.iter().filter(|(key, _)| key == "query");
        let queries: Vec<&str> = queries.map(|(_, value)| &**value).collect();
        for &asked in &queries {
            // A slash is a sign of a file. A file's name without one may still be found as a service's.
            if asked.contains(['/', '\\']) {
                query.files.push(asked.to_owned());
            } else if !asked.trim().is_empty() {
                query.services.push(asked.to_owned());
            }
        }
        if !queries.is_empty() && query.files.is_empty() && query.services.is_empty() {
            errors.invalid("query", &json(&queries), "query cannot be empty");
        }
        for (name, time) in [
            ("sinceTime", &mut query.options.since),
            ("untilTime", &mut query.options.until),
        ] {
            if let Some(value) = first(name) {
                *time = Time::parse(value);
                if time.is_none() {
                    errors.invalid(name, &quoted(value), "invalid time format");
                }
            }
        }
        for (name, number) in [
            ("boot", &mut query.options.boot),
            ("tailLines", &mut query.options.tail_lines),
        ] {
            if let Some(value) = first(name) {
                match parse_integer(value) {
                    Ok(parsed) => *number = Some(parsed),
                    Err(message) => errors.invalid(name, &quoted(value), &message),
                }
            }
        }
        query.options.pattern = first("pattern").unwrap_or_default().to_owned();
        errors.result()?;
        Ok(Some(query).filter(|query| *query != Self::default()))
    }

    /// The error is the body of the answer.
    pub(super) async fn validate(&self, root: &Path) -> Result<(), String> {
        let mut errors = Errors::default();
        for service in &self.services {
            if service.len() > MAX_SERVICE_LENGTH {
                let message = format!("length must be less than {MAX_SERVICE_LENGTH}");
                errors.invalid("query", &quoted(service), &message);
            } else if !service
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"-_.:@".contains(&b))
            {
                errors.invalid("query", &quoted(service), "input contains unsupported characters");
            }
        }
        if self.services.len() > MAX_SERVICES {
            let count = self.services.len();
            errors.add(format!(
                "query: Too many: {count}: must have at most {MAX_SERVICES} items"
            ));
        }
        self.validate_files(root, &mut errors).await;
        let Options {
            since,
            until,
            tail_lines,
            boot,
            pattern,
        } = &self.options;
        if let (Some(since), Some(until)) = (since, until)
            && since.at > until.at
        {
            errors.invalid(
                "untilTime",
                &json(&until.as_go_writes_it()),
                "must be after `sinceTime`",
            );
        }
        if let Some(boot) = boot.filter(|&boot| boot > 0) {
            errors.invalid("boot", &boot.to_string(), "must be less than 1");
        }
        if let Some(lines) = tail_lines.filter(|lines| !(0..=MAX_TAIL_LINES).contains(lines)) {
            let message = format!("must be between 0 and {MAX_TAIL_LINES}, inclusive");
            errors.invalid("tailLines", &lines.to_string(), &message);
        }
        if let Err(message) = pattern::check(pattern) {
            errors.invalid("pattern", &quoted(pattern), &message);
        }
        errors.result()
    }

    async fn validate_files(&self, root: &Path, errors: &mut Errors) {
        let message = match (self.files.as_slice(), self.services.as_slice()) {
            ([], []) => return errors.add("query: Required value: cannot be empty with options".to_owned()),
            ([], _) => return,
            (files, services @ [_, ..]) => {
                let both = format!("[{}], [{}]", files.join(" "), services.join(" "));
                return errors.invalid("query", &quoted(&both), "cannot specify a file and service");
            }
            ([_, _, ..], []) => "cannot specify more than one file".to_owned(),
            ([_], []) if self.options != Options::default() => "cannot specify file with options".to_owned(),
            ([file], []) => match within::open(root, file).await {
                Ok(_) => return,
                Err(error) => format!("statat {file}: {}", within::explain(&error)),
            },
        };
        errors.invalid("query", &json(&self.files), &message);
    }

    /// The only file of a valid query.
    pub(super) fn file(&self) -> Option<&str> {
        self.files.first().map(String::as_str)
    }
}

impl Time {
    /// RFC 3339 as Go reads it: upper case, with seconds and an offset.
    fn parse(written: &str) -> Option<Self> {
        let bytes = written.as_bytes();
        let separators = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')];
        let is_date = separators
            .iter()
            .all(|&(at, separator)| bytes.get(at) == Some(&separator));
        let offset = written
            .get(19..)?
            .trim_start_matches(|c: char| c == '.' || c.is_ascii_digit());
        let is_offset = match offset.as_bytes() {
            b"Z" => true,
            [b'+' | b'-', hours @ .., b':', _, _] => hours.len() == 2,
            _ => false,
        };
        let at = (is_date && is_offset).then(|| written.parse().ok())??;
        Some(Self {
            at,
            written: written.to_owned(),
        })
    }

    /// As Go writes what it has read: no zeros at the end of a fraction, no offset of zero.
    fn as_go_writes_it(&self) -> String {
        let (date, rest) = self.written.split_at_checked(19).unwrap_or((&self.written, ""));
        let digits = rest
            .find(|c: char| c != '.' && !c.is_ascii_digit())
            .unwrap_or(rest.len());
        let (fraction, offset) = rest.split_at_checked(digits).unwrap_or((rest, ""));
        let fraction = fraction.trim_end_matches('0').trim_end_matches('.');
        let offset = if offset == "+00:00" { "Z" } else { offset };
        format!("{date}{fraction}{offset}")
    }
}

/// Errors as the kubelet lists them: one alone, more in brackets, none twice.
#[derive(Default)]
struct Errors(Vec<String>);

impl Errors {
    fn add(&mut self, message: String) {
        if !self.0.contains(&message) {
            self.0.push(message);
        }
    }

    fn invalid(&mut self, field: &str, value: &str, detail: &str) {
        self.add(format!("{field}: Invalid value: {value}: {detail}"));
    }

    fn result(mut self) -> Result<(), String> {
        match self.0.len() {
            0 => Ok(()),
            1 => Err(self.0.remove(0)),
            _ => Err(format!("[{}]", self.0.join(", "))),
        }
    }
}

/// As Go's `strconv.Atoi`, with its messages.
fn parse_integer(text: &str) -> Result<i64, String> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let is_number = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    let why = if is_number {
        "value out of range"
    } else {
        "invalid syntax"
    };
    let parsed = text.parse().ok().filter(|_| is_number);
    parsed.ok_or_else(|| format!("strconv.Atoi: parsing {}: {why}", quoted(text)))
}

/// As Go's `%q`.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\x07' => out.push_str("\\a"),
            '\x08' => out.push_str("\\b"),
            '\x0b' => out.push_str("\\v"),
            '\x0c' => out.push_str("\\f"),
            // Writing to a string does not fail.
            c if c.is_ascii_control() => _ = write!(out, "\\x{:02x}", u32::from(c)),
            c if c.is_control() => _ = write!(out, "\\u{:04x}", u32::from(c)),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// As Go's `json.Marshal`, which escapes for HTML.
fn json<T: serde::Serialize>(value: &T) -> String {
    let text = serde_json::to_string(value).unwrap_or_default();
    text.replace('&', "\\u0026")
        .replace('<', "\\u003c")
        .replace('>', "\\u003e")
}
