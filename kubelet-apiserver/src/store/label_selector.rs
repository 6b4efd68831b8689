//! [`LabelSelector`]: `app=web,tier in (front,back),!canary`.

use std::collections::BTreeSet;
use std::iter::Peekable;
use std::vec;

use serde_json::Value;

use crate::status_error::StatusError;

/// Requirements on labels, all of which must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LabelSelector {
    requirements: Vec<Requirement>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Requirement {
    key: String,
    operator: Operator,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Operator {
    Exists,
    DoesNotExist,
    /// `=`, `==` and `in`.
    In(BTreeSet<String>),
    /// `!=` and `notin`; also true if the label does not exist.
    NotIn(BTreeSet<String>),
    GreaterThan(i64),
    LessThan(i64),
}

impl LabelSelector {
    /// Parses a selector.
    ///
    /// # Errors
    ///
    /// 400 for an invalid one.
    pub(crate) fn parse(text: &str) -> Result<Self, StatusError> {
        Parser::new(text).selector().map_err(StatusError::bad_request)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Whether the labels (`null` for none) fulfil all requirements.
    pub(crate) fn matches(&self, labels: &Value) -> bool {
        self.requirements.iter().all(|requirement| {
            let label = labels.get(&requirement.key).and_then(Value::as_str);
            let number = || label.and_then(|l| l.parse::<i64>().ok());
            match &requirement.operator {
                Operator::Exists => label.is_some(),
                Operator::DoesNotExist => label.is_none(),
                Operator::In(values) => label.is_some_and(|l| values.contains(l)),
                Operator::NotIn(values) => !label.is_some_and(|l| values.contains(l)),
                Operator::GreaterThan(bound) => number().is_some_and(|n| n > *bound),
                Operator::LessThan(bound) => number().is_some_and(|n| n < *bound),
            }
        })
    }
}

/// The operators that stand between a key and its values, as messages list them.
const BINARY_OPERATORS: &str = "in, notin, =, ==, !=, gt, lt";

/// Symbols and words; the empty word marks the end.
struct Parser {
    tokens: Peekable<vec::IntoIter<String>>,
}

impl Parser {
    fn new(text: &str) -> Self {
        Parser {
            tokens: tokens(text).into_iter().peekable(),
        }
    }

    fn next(&mut self) -> String {
        self.tokens.next().unwrap_or_default()
    }

    fn peek(&mut self) -> &str {
        self.tokens.peek().map_or("", String::as_str)
    }

    fn selector(mut self) -> Result<LabelSelector, String> {
        let mut requirements = Vec::new();
        while !self.peek().is_empty() {
            if !is_word(self.peek()) && self.peek() != "!" {
                let found = self.next();
                return Err(format!(
                    "found '{found}', expected: !, identifier, or 'end of string'"
                ));
            }
            let requirement = self.requirement();
            requirements.push(requirement.map_err(|e| format!("unable to parse requirement: {e}"))?);
            match self.next().as_str() {
                "" => break,
                "," if is_word(self.peek()) || self.peek() == "!" => {}
                "," => return Err(format!("found '{}', expected: identifier after ','", self.peek())),
                found => return Err(format!("found '{found}', expected: ',' or 'end of string'")),
            }
        }
        Ok(LabelSelector { requirements })
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let mut key = self.next();
        let absent = key == "!";
        if absent {
            key = self.next();
        }
        if !is_word(&key) {
            return Err(format!("found '{key}', expected: identifier"));
        }
        check_key(&key)?;
        if absent || matches!(self.peek(), "" | ",") {
            let operator = if absent {
                Operator::DoesNotExist
            } else {
                Operator::Exists
            };
            return Ok(Requirement { key, operator });
        }
        let operator = match self.next().as_str() {
            "=" | "==" => Operator::In(self.exact_value(&key)?),
            "!=" => Operator::NotIn(self.exact_value(&key)?),
            "in" => Operator::In(self.values(&key)?),
            "notin" => Operator::NotIn(self.values(&key)?),
            ">" => Operator::GreaterThan(self.number()?),
            "<" => Operator::LessThan(self.number()?),
            found => return Err(format!("found '{found}', expected: {BINARY_OPERATORS}")),
        };
        Ok(Requirement { key, operator })
    }

    /// One value, that may be empty.
    fn exact_value(&mut self, key: &str) -> Result<BTreeSet<String>, String> {
        if matches!(self.peek(), "" | ",") {
            return Ok(BTreeSet::from([String::new()]));
        }
        let value = self.next();
        if !is_word(&value) {
            return Err(format!("found '{value}', expected: identifier"));
        }
        check_value(key, &value)?;
        Ok(BTreeSet::from([value]))
    }

    fn number(&mut self) -> Result<i64, String> {
        let value = self.next();
        value.parse().map_err(|_| {
            format!(
                "values[0][0]: Invalid value: {value:?}: for 'Gt', 'Lt' operators, the value must be an integer"
            )
        })
    }

    /// Values in parentheses, of which some may be empty.
    fn values(&mut self, key: &str) -> Result<BTreeSet<String>, String> {
        match self.next().as_str() {
            "(" => {}
            found => return Err(format!("found '{found}' expected: '('")),
        }
        let mut values = BTreeSet::new();
        loop {
            if matches!(self.peek(), "," | ")") {
                values.insert(String::new());
            } else {
                let value = self.next();
                if !is_word(&value) {
                    return Err(format!("found '{value}', expected: ',', or identifier"));
                }
                check_value(key, &value)?;
                values.insert(value);
            }
            match self.next().as_str() {
                "," => {}
                ")" => return Ok(values),
                found => return Err(format!("found '{found}', expected: ',' or ')'")),
            }
        }
    }
}

fn tokens(text: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    let mut chars = text.chars().peekable();
    while let Some(&c) = chars.peek() {
        let mut token = String::from(c);
        chars.next();
        match c {
            c if c.is_whitespace() => continue,
            '!' | '=' => {
                token.extend(chars.next_if_eq(&'='));
            }
            '(' | ')' | ',' | '<' | '>' => {}
            _ => {
                while let Some(c) = chars
                    .next_if(|c| !c.is_whitespace() && !matches!(c, '!' | '=' | '(' | ')' | ',' | '<' | '>'))
                {
                    token.push(c);
                }
            }
        }
        tokens.push(token);
    }
    tokens
}

fn is_word(token: &str) -> bool {
    !token.is_empty() && !token.starts_with(['!', '=', '(', ')', ',', '<', '>'])
}

fn check_key(key: &str) -> Result<(), String> {
    let (prefix, name) = key.rsplit_once('/').unwrap_or(("x", key));
    let prefix_is_well = !prefix.is_empty()
        && prefix.len() <= 253
        && prefix.split('.').all(|label| {
            !label.is_empty()
                && label
                    .chars()
                    .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
        });
    if prefix_is_well && !name.is_empty() && is_label_value(name) {
        return Ok(());
    }
    Err(format!(
        "key: Invalid value: {key:?}: name part must consist of alphanumeric characters, '-', '_' or '.', and must start \
         and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation \
         is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
    ))
}

fn check_value(key: &str, value: &str) -> Result<(), String> {
    if is_label_value(value) {
        return Ok(());
    }
    Err(format!(
        "values[0][{key}]: Invalid value: {value:?}: a valid label must be an empty string or consist of alphanumeric \
         characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or \
         'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
    ))
}

fn is_label_value(value: &str) -> bool {
    value.len() <= 63
        && value
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
        && !value.starts_with(['-', '_', '.'])
        && !value.ends_with(['-', '_', '.'])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn selects_by_labels() {
        let labels = json!({"app": "web", "tier": "front", "n": "5", "in": "x"});
        for (selector, selects) in [
            ("", true),
            ("app=web", true),
            ("app==web", true),
            (" app = web ", true),
            ("app!=web", false),
            ("other!=web", true),
            ("app", true),
            ("!app", false),
            ("! other", true),
            ("app,tier=front", true),
            ("app in (web,db)", true),
            ("app in (db)", false),
            ("app in (,web)", true),
            ("app in ()", false),
            ("app notin (db)", true),
            ("app notin (web, db),tier", false),
            ("other notin (web)", true),
            ("app=", false),
            ("app=,tier", false),
            ("n>4", true),
            ("n<5", false),
            ("app>4", false),
            ("in in (x)", true),
        ] {
            let selector = LabelSelector::parse(selector).unwrap();
            assert_eq!(selector.matches(&labels), selects, "{selector:?}");
        }
        assert!(!LabelSelector::parse("app").unwrap().matches(&Value::Null));
    }

    #[test]
    fn refuses_what_is_no_selector() {
        for (selector, message) in [
            ("=a", "found '=', expected: !, identifier, or 'end of string'"),
            ("a,", "found '', expected: identifier after ','"),
            ("a in", "unable to parse requirement: found '' expected: '('"),
            (
                "a in (b",
                "unable to parse requirement: found '', expected: ',' or ')'",
            ),
            (
                "a b",
                "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt",
            ),
            ("a=b c", "found 'c', expected: ',' or 'end of string'"),
        ] {
            assert_eq!(LabelSelector::parse(selector).unwrap_err().message, message);
        }
        for selector in ["a/b/c=d", "-a", "a=-", "a=b=c", "!a=b"] {
            assert_eq!(
                LabelSelector::parse(selector).unwrap_err().code,
                400,
                "{selector}"
            );
        }
    }
}
