//! Fields, and what is wrong with them, worded as the API server words it.

use std::fmt;

pub(super) use kubelet_core::FieldPath as Field;

/// The problems of a pod. Values are shown as they are written: strings in quotes, numbers without.
#[derive(Debug, Default)]
pub(super) struct Problems(Vec<String>);

impl Problems {
    pub(super) fn required(&mut self, field: &Field, why: &str) {
        let colon = if why.is_empty() { "" } else { ": " };
        self.0.push(format!("{field}: Required value{colon}{why}"));
    }

    pub(super) fn invalid(&mut self, field: &Field, value: impl fmt::Debug, why: &str) {
        self.0.push(format!("{field}: Invalid value: {value:?}: {why}"));
    }

    pub(super) fn forbidden(&mut self, field: &Field, why: &str) {
        self.0.push(format!("{field}: Forbidden: {why}"));
    }

    pub(super) fn duplicate(&mut self, field: &Field, value: &str) {
        self.0.push(format!("{field}: Duplicate value: {value:?}"));
    }

    pub(super) fn not_found(&mut self, field: &Field, value: &str) {
        self.0.push(format!("{field}: Not found: {value:?}"));
    }

    /// Adds a problem unless the value is one of these.
    pub(super) fn unless_one_of(&mut self, field: &Field, value: &str, supported: &[&str]) {
        if !supported.contains(&value) {
            let supported: Vec<_> = supported.iter().map(|value| format!("{value:?}")).collect();
            let supported = supported.join(", ");
            self.0.push(format!(
                "{field}: Unsupported value: {value:?}: supported values: {supported}"
            ));
        }
    }

    /// Adds a problem if a check of the value finds one.
    pub(super) fn unless_formed(
        &mut self,
        field: &Field,
        value: &str,
        form: fn(&str) -> Result<(), &'static str>,
    ) {
        if let Err(why) = form(value) {
            self.invalid(field, value, why);
        }
    }

    /// Adds a problem unless the number is within these bounds.
    pub(super) fn unless_within(&mut self, field: &Field, value: i64, least: i64, most: i64) {
        if !(least..=most).contains(&value) {
            self.invalid(
                field,
                value,
                &format!("must be between {least} and {most}, inclusive"),
            );
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn append(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    pub(super) fn into_lines(self) -> Vec<String> {
        self.0
    }
}
