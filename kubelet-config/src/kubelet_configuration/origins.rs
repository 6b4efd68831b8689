//! Where each field of a configuration was set.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use crate::document::{Content, Node};

/// Where a field of the configuration was set.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Origin {
    /// In a file: the one of `--config`, or a drop-in.
    File {
        /// The file.
        path: PathBuf,
        /// The line of the field, from 1; 0 if it is not known.
        line: u64,
    },
    /// By a flag of the command line.
    CommandLine,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, line: 0 } => write!(f, "{}", path.display()),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::CommandLine => f.write_str("command line"),
        }
    }
}

/// Where the fields of a configuration were set last. Fields that have their defaults are not in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origins(BTreeMap<String, Origin>);

impl Origins {
    /// Where the field was set, by a path such as `evictionSoft[memory.available]` or `registerWithTaints[0].effect`. If only an
    /// object or list around it was set, where that was set. `None` if it has its default.
    pub fn of(&self, field: &str) -> Option<&Origin> {
        let mut path = normal(field);
        loop {
            if let Some(origin) = self.0.get(&path) {
                return Some(origin);
            }
            path.truncate(path.rfind('.')?);
        }
    }

    /// Notes all fields that a file sets, over those that others set before.
    pub(super) fn add_file(&mut self, path: &Path, root: &Node) {
        self.add("", path, root);
    }

    fn add(&mut self, prefix: &str, path: &Path, node: &Node) {
        let items: Vec<(String, &Node)> = match &node.content {
            Content::Map(fields) => fields.iter().map(|(name, node)| (name.clone(), node)).collect(),
            Content::List(items) => items
                .iter()
                .enumerate()
                .map(|(at, node)| (at.to_string(), node))
                .collect(),
            _ => return,
        };
        for (name, node) in items {
            let field = match prefix {
                "" => name,
                prefix => format!("{prefix}.{name}"),
            };
            let origin = Origin::File {
                path: path.to_owned(),
                line: node.line,
            };
            self.add(&field, path, node);
            self.0.insert(field, origin);
        }
    }

    /// Notes the fields whose values the command line changed: they differ between the two.
    pub(super) fn add_flags(&mut self, before: &serde_json::Value, after: &serde_json::Value) {
        let (Some(before), Some(after)) = (before.as_object(), after.as_object()) else {
            return;
        };
        for (name, value) in after {
            if before.get(name) != Some(value) {
                // What a file set below it no longer counts.
                let below = format!("{name}.");
                self.0.retain(|field, _| !field.starts_with(&below));
                self.0.insert(name.clone(), Origin::CommandLine);
            }
        }
    }
}

/// `a[b].c` as `a.b.c`.
fn normal(field: &str) -> String {
    field
        .replace("].", ".")
        .replace('[', ".")
        .trim_end_matches(']')
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Document;

    #[test]
    fn a_field_is_where_it_was_set_last() {
        let mut origins = Origins::default();
        let main =
            "evictionSoft:\n  memory.available: 5%\n  nodefs.available: 5%\nmaxPods: 1\ntaints:\n- key: a\n";
        let document = Document::read(main.as_bytes()).unwrap();
        origins.add_file(Path::new("/main"), &document.root);
        let drop_in = "evictionSoft: {nodefs.available: 6%}\n";
        let document = Document::read(drop_in.as_bytes()).unwrap();
        origins.add_file(Path::new("/10.conf"), &document.root);
        origins.add_flags(
            &serde_json::json!({"maxPods": 1, "port": 1}),
            &serde_json::json!({"maxPods": 2, "port": 1}),
        );
        let of = |field: &str| origins.of(field).map(ToString::to_string);
        assert_eq!(of("evictionSoft[memory.available]").unwrap(), "/main:2");
        assert_eq!(of("evictionSoft[nodefs.available]").unwrap(), "/10.conf:1");
        assert_eq!(of("maxPods").unwrap(), "command line");
        assert_eq!(of("taints[0].key").unwrap(), "/main:6");
        assert_eq!(of("taints[0].effect").unwrap(), "/main:6");
        assert_eq!(of("port"), None);
    }
}
