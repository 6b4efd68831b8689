//! The text of Go values that is hashed for a checksum (`dump.ForHash`).

use std::collections::BTreeMap;
use std::fmt::{Display, Write};

use kubelet_core::fnv32a;

/// The hash of a dump (`checksum.New`).
pub(crate) fn checksum(text: &str) -> u64 {
    u64::from(fnv32a(text.bytes()))
}

/// A struct that is being written: `{Name:(type)value Name:(type)value}`.
pub(crate) struct GoText {
    text: String,
    first: bool,
}

impl GoText {
    /// A pointer to a struct of this type.
    pub(crate) fn pointer_to(type_name: &str) -> Self {
        Self {
            text: format!("(*{type_name}){{"),
            first: true,
        }
    }

    /// A struct of this type.
    pub(crate) fn of(type_name: &str) -> Self {
        Self {
            text: format!("({type_name}){{"),
            first: true,
        }
    }

    /// A struct where the type is known, e.g. in a map.
    pub(crate) fn value() -> Self {
        Self {
            text: "{".to_owned(),
            first: true,
        }
    }

    /// A pointer to a struct where the type is known.
    pub(crate) fn pointer() -> Self {
        Self {
            text: "<*>{".to_owned(),
            first: true,
        }
    }

    /// Adds a field.
    #[must_use]
    pub(crate) fn field(mut self, name: &str, type_name: &str, value: impl Display) -> Self {
        let separator = if self.first { "" } else { " " };
        self.first = false;
        // Writing to a string does not fail.
        let _ = write!(self.text, "{separator}{name}:({type_name}){value}");
        self
    }

    pub(crate) fn end(mut self) -> String {
        self.text.push('}');
        self.text
    }

    /// `map[key:value key:value]`
    pub(crate) fn map<K: Display, V>(map: &BTreeMap<K, V>, value: impl Fn(&V) -> String) -> String {
        let items: Vec<String> = map
            .iter()
            .map(|(key, item)| format!("{key}:{}", value(item)))
            .collect();
        format!("map[{}]", items.join(" "))
    }

    /// `[item item]`
    pub(crate) fn list<T>(list: &[T], item: impl Fn(&T) -> String) -> String {
        let items: Vec<String> = list.iter().map(item).collect();
        format!("[{}]", items.join(" "))
    }
}
