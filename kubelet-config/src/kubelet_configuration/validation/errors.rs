//! What is wrong with a configuration.

use std::fmt;

/// What is wrong with one field of a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FieldError {
    /// The field's path, e.g. `authentication.webhook.cacheTTL` or `registerWithTaints[0].effect`.
    pub field: String,
    /// The value it has, text in quotes.
    pub value: String,
    /// Why it cannot have it.
    pub detail: String,
}

/// All that is wrong with a configuration; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValidationErrors(Vec<FieldError>);

impl ValidationErrors {
    pub(crate) fn new(errors: Vec<FieldError>) -> Self {
        Self(errors)
    }

    /// One for each problem, in no order that means anything.
    pub fn errors(&self) -> &[FieldError] {
        &self.0
    }
}

impl IntoIterator for ValidationErrors {
    type Item = FieldError;
    type IntoIter = std::vec::IntoIter<FieldError>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl std::error::Error for ValidationErrors {}

impl fmt::Display for ValidationErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("invalid configuration: ")?;
        for (at, error) in self.0.iter().enumerate() {
            let separator = if at == 0 { "" } else { "; " };
            write!(f, "{separator}{error}")?;
        }
        Ok(())
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { field, value, detail } = self;
        write!(f, "{field}: Invalid value: {value}: {detail}")
    }
}

/// Where the rules put what they find.
#[derive(Debug, Default)]
pub(crate) struct Problems(Vec<FieldError>);

impl Problems {
    /// Adds a problem of a number, a duration or a boolean.
    pub(crate) fn invalid(
        &mut self,
        field: impl Into<String>,
        value: impl fmt::Display,
        detail: impl Into<String>,
    ) {
        self.0.push(FieldError {
            field: field.into(),
            value: value.to_string(),
            detail: detail.into(),
        });
    }

    /// Adds a problem of a text, which is shown in quotes.
    pub(crate) fn invalid_text(&mut self, field: impl Into<String>, value: &str, detail: impl Into<String>) {
        self.invalid(field, format_args!("{value:?}"), detail);
    }

    /// Adds a problem unless the text is one of these.
    pub(crate) fn unless_one_of(&mut self, field: &str, value: &str, valid: &[&str]) {
        if !valid.contains(&value) {
            let valid: Vec<_> = valid.iter().map(|value| format!("{value:?}")).collect();
            self.invalid_text(field, value, format!("must be one of {}", valid.join(", ")));
        }
    }

    /// Adds a problem unless the number is within these bounds.
    pub(crate) fn unless_within(&mut self, field: &str, value: i32, least: i32, most: i32) {
        if !(least..=most).contains(&value) {
            self.invalid(
                field,
                value,
                format!("must be between {least} and {most}, inclusive"),
            );
        }
    }

    /// Adds a problem if the number is less than this.
    pub(crate) fn if_less(&mut self, field: &str, value: impl Into<i64>, least: i64) {
        let value = value.into();
        if value < least {
            self.invalid(field, value, format!("must be at least {least}"));
        }
    }

    pub(crate) fn into_result(self) -> Result<(), ValidationErrors> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(ValidationErrors(self.0))
        }
    }
}
