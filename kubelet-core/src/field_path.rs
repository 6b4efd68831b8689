//! Where in an object a field is.

use std::fmt;

/// The path of a field, e.g. `spec.containers[0].name` (`field.Path`).
#[derive(Clone, Debug)]
pub struct FieldPath(String);

impl FieldPath {
    /// The field of this name in the object itself. Without a name: the object.
    pub fn root(name: &str) -> Self {
        Self(name.into())
    }

    /// The field of this name in the field.
    pub fn child(&self, name: &str) -> Self {
        if self.0.is_empty() {
            return Self::root(name);
        }
        Self(format!("{self}.{name}"))
    }

    /// The element of a list.
    pub fn index(&self, index: usize) -> Self {
        Self(format!("{self}[{index}]"))
    }

    /// The value of a key.
    pub fn key(&self, key: &str) -> Self {
        Self(format!("{self}[{key}]"))
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
