//! Configuration files as the API machinery reads them: YAML or JSON, strict or lenient, of a kind.

mod deserializer;
mod json;
mod tree;

use std::cell::RefCell;

use serde::de::DeserializeOwned;

use crate::yaml::{self, Duplicates};
use deserializer::Cursor;
pub(crate) use tree::{Content, Node};

/// A configuration file, not yet of any type.
#[derive(Debug)]
pub(crate) struct Document {
    pub(crate) root: Node,
    /// Fields that are there twice, one line each. The last one counts.
    pub(crate) duplicates: Vec<String>,
    /// What the text holds besides, one line each.
    pub(crate) passed_over: Vec<String>,
}

/// A value and the fields of the document that it has no place for, one line each.
#[derive(Debug)]
pub(crate) struct Decoded<T> {
    pub(crate) value: T,
    pub(crate) unknown: Vec<String>,
}

/// How a document becomes a value.
#[derive(Clone, Copy, Default)]
pub(crate) struct Rules {
    /// Fields that take no `null`; everywhere else it is as if the field was not there.
    pub(crate) not_null: &'static [&'static str],
    /// Fields that the type has, but not in the version of the document.
    pub(crate) missing: &'static [&'static str],
    /// Whether `MaxPods` stands for `maxPods`, as long as there is no field of that very name.
    pub(crate) fold_case: bool,
}

impl Document {
    /// Reads a text that starts with `{` as JSON and all else as YAML.
    ///
    /// Hostile input meets a limit of nodes and of depth.
    pub(crate) fn read(text: &[u8]) -> Result<Self, String> {
        if text.trim_ascii_start().starts_with(b"{") {
            return json::read(text);
        }
        let (document, duplicates) = match yaml::read::<Content>(text, Duplicates::Refused) {
            Ok(document) => (document, Vec::new()),
            Err(duplicate) => (yaml::read(text, Duplicates::LastWins)?, vec![duplicate]),
        };
        Ok(Self {
            root: Node {
                line: 1,
                content: document.value,
            },
            duplicates,
            passed_over: document.passed_over,
        })
    }

    /// The kind of object that this is: its `apiVersion` and `kind`.
    pub(crate) fn kind(&self) -> Result<(&str, &str), String> {
        let kind = match self.meta("kind")? {
            "" => return Err("Object 'Kind' is missing".into()),
            kind => kind,
        };
        match self.meta("apiVersion")? {
            "" => Err("Object 'apiVersion' is missing".into()),
            version => Ok((version, kind)),
        }
    }

    /// The API machinery does not mind how `kind` and `apiVersion` are capitalised.
    fn meta(&self, name: &str) -> Result<&str, String> {
        let fields = match &self.root.content {
            Content::Map(fields) => fields,
            Content::Null => return Ok(""),
            other => return Err(format!("expected an object, found {}", other.describe())),
        };
        let field = fields
            .iter()
            .find(|(key, _)| key == name)
            .or_else(|| fields.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)));
        match field {
            None => Ok(""),
            Some((_, node)) => match &node.content {
                Content::Text(text) => Ok(text),
                Content::Null => Ok(""),
                other => Err(format!(
                    "{}{name}: expected a string, found {}",
                    place(node.line),
                    other.describe()
                )),
            },
        }
    }

    /// The document as a value. `apiVersion` and `kind` are not among its fields.
    pub(crate) fn decode<T: DeserializeOwned>(&self, rules: Rules) -> Result<Decoded<T>, String> {
        let unknown = RefCell::new(Vec::new());
        let cursor = Cursor::root(&self.root, rules, &unknown);
        let value = T::deserialize(cursor).map_err(|error| error.to_string())?;
        Ok(Decoded {
            value,
            unknown: unknown.into_inner(),
        })
    }
}

/// `line 3: `, if the line is known.
fn place(line: u64) -> String {
    match line {
        0 => String::new(),
        line => format!("line {line}: "),
    }
}
