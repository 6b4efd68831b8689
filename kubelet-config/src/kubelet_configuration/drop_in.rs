//! The drop-in folder (`--config-dir`): files laid over the configuration, one after the other.
//!
//! Files are taken in the order of their names, folders in the folder at their place among them. Each file changes
//! what it names (JSON merge patch): objects and maps are merged, lists and all else are replaced, `null` takes a
//! field back to its default. Relative paths stay as they are.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::decode::{Decoding, RULES, check_kind, complete};
use super::fields::KubeletConfiguration;
use super::origins::Origins;
use crate::document::{Decoded, Document, Node, Rules};
use crate::{ConfigurationStage, Error, FeatureGates, Result};

/// `dropinFileExtension`
const DROP_IN_FILE_EXTENSION: &[u8] = b".conf";

/// The kubelet reads the merged whole with a decoder that does not mind capitals.
const MERGED_RULES: Rules = Rules {
    fold_case: true,
    ..RULES
};

/// A configuration with drop-ins.
pub(super) struct Merged {
    pub(super) config: KubeletConfiguration,
    /// Files that are not drop-ins by their name.
    pub(super) skipped: Vec<PathBuf>,
    /// What was ignored, one line each.
    pub(super) ignored: Vec<String>,
}

/// Merges the drop-ins in `folder` into `config`. `origins` gets the fields that they set.
pub(super) fn merge(
    config: &KubeletConfiguration,
    folder: &Path,
    decoding: Decoding,
    gates: &FeatureGates,
    origins: &mut Origins,
) -> Result<Merged> {
    let mut merged =
        serde_json::to_value(config).map_err(|error| rejected(vec![error.to_string()], folder))?;
    let mut files = Files::default();
    files.find(folder)?;
    let mut ignored = Vec::new();
    // What is wrong with a file on its own. A later file may replace it, so it counts only if the whole is wrong.
    let mut suspects = Vec::new();
    for path in files.drop_ins {
        let document = read(&path)?;
        origins.add_file(&path, &document.root);
        match document.decode::<KubeletConfiguration>(MERGED_RULES) {
            Err(problem) => suspects.push((problem, path)),
            Ok(Decoded { mut unknown, .. }) => {
                if decoding == Decoding::Strict && !unknown.is_empty() {
                    return Err(rejected(unknown, &path));
                }
                unknown.extend(document.passed_over);
                let named = |problem: String| format!("{}: {problem}", path.display());
                ignored.extend(unknown.into_iter().map(named));
            }
        }
        merge_patch(&mut merged, document.root.content.to_json());
    }
    let root = Node::from(merged);
    let read = Document {
        root,
        duplicates: Vec::new(),
        passed_over: Vec::new(),
    };
    let Decoded { value, .. } = read
        .decode(MERGED_RULES)
        .map_err(|problem| match suspects.pop() {
            Some((problem, path)) => rejected(vec![problem], &path),
            None => rejected(vec![problem], folder),
        })?;
    Ok(Merged {
        config: complete(value, &read.root.content, gates)?,
        skipped: files.skipped,
        ignored,
    })
}

fn rejected(problems: Vec<String>, path: &Path) -> Error {
    Error::configuration(ConfigurationStage::DropIns, problems).in_file(path)
}

/// Reads one drop-in. Fields that are there twice are an error, as there is no lenient way with these.
fn read(path: &Path) -> Result<Document> {
    let rejected = |problem: String| rejected(vec![problem], path);
    let text = fs::read(path).map_err(|error| rejected(error.to_string()))?;
    if text.is_empty() {
        return Err(rejected("the file is empty".into()));
    }
    let document = Document::read(&text).map_err(rejected)?;
    check_kind(&document).map_err(rejected)?;
    let content = &document.root.content;
    if !(content.sets("kind") && content.sets("apiVersion")) {
        return Err(rejected(
            "'kind' and 'apiVersion' must be written like that".into(),
        ));
    }
    if !document.duplicates.is_empty() {
        return Err(self::rejected(document.duplicates, path));
    }
    Ok(document)
}

#[derive(Default)]
struct Files {
    drop_ins: Vec<PathBuf>,
    skipped: Vec<PathBuf>,
}

impl Files {
    /// Walks a folder. A link to a folder is not followed.
    fn find(&mut self, path: &Path) -> Result<()> {
        let unreadable = |error: std::io::Error| rejected(vec![error.to_string()], path);
        if !fs::symlink_metadata(path).map_err(unreadable)?.is_dir() {
            let name = path.as_os_str().as_encoded_bytes();
            let is_drop_in = name.ends_with(DROP_IN_FILE_EXTENSION);
            let files = if is_drop_in {
                &mut self.drop_ins
            } else {
                &mut self.skipped
            };
            files.push(path.to_owned());
            return Ok(());
        }
        let mut entries = Vec::new();
        for entry in fs::read_dir(path).map_err(unreadable)? {
            entries.push(entry.map_err(unreadable)?.file_name());
        }
        entries.sort();
        entries
            .into_iter()
            .try_for_each(|name| self.find(&path.join(name)))
    }
}

/// Lays `patch` over `target` by RFC 7386.
fn merge_patch(target: &mut Value, patch: Value) {
    match (target, patch) {
        (Value::Object(fields), Value::Object(patch)) => merge_fields(fields, patch),
        // Nothing is there that a null could take away.
        (target, mut patch @ Value::Object(_)) => {
            prune_nulls(&mut patch);
            *target = patch;
        }
        // As it is where an object was, as the kubelet's library has it.
        (target @ Value::Object(_), patch) => *target = patch,
        (target, mut patch) => {
            prune_nulls(&mut patch);
            *target = patch;
        }
    }
}

fn merge_fields(fields: &mut Map<String, Value>, patch: Map<String, Value>) {
    for (key, value) in patch {
        if value.is_null() {
            fields.remove(&key);
        } else {
            merge_patch(fields.entry(key).or_insert(Value::Null), value);
        }
    }
}

/// Takes out the fields that are null; nulls in lists stay.
fn prune_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(prune_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(prune_nulls),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Those of RFC 7386, its appendix A, that have an object on both sides, and where the kubelet's library differs.
    #[test]
    fn patches() {
        for (target, patch, expected) in [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"})),
            (json!({"a": "b"}), json!({"a": null}), json!({})),
            (json!({"a": "b", "b": "c"}), json!({"a": null}), json!({"b": "c"})),
            (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "c"}), json!({"a": ["b"]}), json!({"a": ["b"]})),
            (
                json!({"a": {"b": "c"}}),
                json!({"a": {"b": "d", "c": null}}),
                json!({"a": {"b": "d"}}),
            ),
            (json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]})),
            (json!({"e": null}), json!({"a": 1}), json!({"e": null, "a": 1})),
            (
                json!({}),
                json!({"a": {"bb": {"ccc": null}}}),
                json!({"a": {"bb": {}}}),
            ),
            (json!({"a": null}), json!({"a": {"b": null}}), json!({"a": {}})),
            // Nulls within a list: objects lose them, unless the list takes the place of an object.
            (
                json!({"a": [1]}),
                json!({"a": [null, {"b": null}]}),
                json!({"a": [null, {}]}),
            ),
            (
                json!({"a": {"b": 1}}),
                json!({"a": [{"b": null}]}),
                json!({"a": [{"b": null}]}),
            ),
        ] {
            let mut merged = target.clone();
            merge_patch(&mut merged, patch.clone());
            assert_eq!(merged, expected, "{target} + {patch}");
        }
    }
}
