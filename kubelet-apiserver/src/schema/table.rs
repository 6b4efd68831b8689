//! The table of types: a text that reads like the types it describes.
//!
//! ```text
//! LocalObjectReference =atomic
//!   name
//! PodSpec
//!   nodeName containers!:[]Container=map(name)+merge(name) nodeSelector:{}string=atomic priority:*int32
//! ```
//!
//! A line at the margin names a type, indented lines list its fields.
//!
//! * `name` is a string; `name:T` a field of type `T`: `bool`, `int32`, `int64`, `bytes`, `Time`, `MicroTime`, `Quantity`,
//!   `IntOrString`, `FieldsV1`, another type of the table, or else a string with a name of its own (`PodPhase`).
//!   `*T`: zero and not set are two things. `[]T`: a list. `{}T`: a map by strings.
//! * `!`: always written, however empty.
//! * `=set`, `=map(key,…)`, `=atomic`: `x-kubernetes-list-type` with `list-map-keys`, and `map-type`. Lists are atomic, maps
//!   and types granular if nothing is said.
//! * `+merge`, `+merge(key)`, `+retainKeys`: `x-kubernetes-patch-strategy` with `patch-merge-key`.
//! * `~value`: what a key of a list is when it isn't given.

use std::collections::HashMap;
use std::sync::LazyLock;

/// One type: `PodSpec`.
#[derive(Debug)]
pub(crate) struct Type {
    pub(crate) name: &'static str,
    /// Owned and replaced as a whole by server-side apply.
    pub(crate) atomic: bool,
    pub(crate) fields: Vec<Field>,
}

/// One field of a type.
#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    /// Zero is different from unset.
    pub(crate) pointer: bool,
    /// Written even if it is empty.
    pub(crate) always: bool,
    /// How server-side apply merges a list or map.
    pub(crate) topology: Topology,
    /// Whether strategic merge patch merges a list.
    pub(crate) merge: bool,
    /// The key by which strategic merge patch merges a list of objects.
    pub(crate) merge_key: Option<&'static str>,
    /// The default of a list key that is not given.
    pub(crate) default: Option<&'static str>,
}

/// The type of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A string, with the name that Go has for its type.
    String(&'static str),
    Bool,
    Int32,
    Int64,
    /// Base64.
    Bytes,
    /// RFC 3339, seconds.
    Time,
    /// RFC 3339, microseconds.
    MicroTime,
    Quantity,
    IntOrString,
    /// Any JSON.
    Raw,
    Struct(&'static str),
    List(Box<Kind>),
    Map(Box<Kind>),
}

/// How server-side apply merges a list or map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Topology {
    /// As a whole.
    Atomic,
    /// A map, key by key.
    Granular,
    /// A list of scalars, each at most once.
    Set,
    /// A list of objects with these fields as keys.
    Map(Vec<&'static str>),
}

impl Type {
    pub(crate) fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|f| f.name == name)
    }
}

/// A type of the table.
pub(super) fn find(name: &str) -> Option<&'static Type> {
    TYPES.get(name)
}

/// The type without fields.
pub(super) fn empty() -> &'static Type {
    static EMPTY: Type = Type {
        name: "",
        atomic: false,
        fields: Vec::new(),
    };
    &EMPTY
}

static TYPES: LazyLock<HashMap<&'static str, Type>> = LazyLock::new(|| parse(TEXTS));

static TEXTS: &[&str] = &[
    include_str!("meta.txt"),
    include_str!("pods.txt"),
    include_str!("volumes.txt"),
    include_str!("others.txt"),
    include_str!("storage.txt"),
    include_str!("claims.txt"),
];

fn parse(texts: &[&'static str]) -> HashMap<&'static str, Type> {
    let mut types: HashMap<&'static str, Type> = HashMap::new();
    for text in texts {
        for line in lines(text).filter(|line| !line.starts_with(' ')) {
            let (name, atomic) = match line.strip_suffix(" =atomic") {
                Some(name) => (name, true),
                None => (line, false),
            };
            let fields = Vec::new();
            types.insert(name, Type { name, atomic, fields });
        }
    }
    let names: Vec<&'static str> = types.keys().copied().collect();
    let is_type = |name: &str| names.contains(&name);
    for text in texts {
        let mut current = "";
        for line in lines(text) {
            if let Some(fields) = line.strip_prefix(' ') {
                if let Some(r#type) = types.get_mut(current) {
                    let fields = fields.split_whitespace();
                    r#type.fields.extend(fields.map(|f| field(f, &is_type)));
                }
            } else {
                current = line.split(' ').next().unwrap_or_default();
            }
        }
    }
    types
}

fn lines(text: &'static str) -> impl Iterator<Item = &'static str> {
    text.lines()
        .filter(|line| !line.trim().is_empty() && !line.starts_with('#'))
}

/// Reads `name!:*[]T=map(key)+merge(key)~default`.
fn field(text: &'static str, is_type: &dyn Fn(&str) -> bool) -> Field {
    let (text, default) = match text.split_once('~') {
        Some((text, default)) => (text, Some(default)),
        None => (text, None),
    };
    let mut strategies = text.split('+');
    let text = strategies.next().unwrap_or_default();
    let (mut merge, mut merge_key) = (false, None);
    for strategy in strategies {
        if let Some(how) = strategy.strip_prefix("merge") {
            merge = true;
            merge_key = how.strip_prefix('(').and_then(|how| how.strip_suffix(')'));
        }
    }
    let (text, topology) = match text.split_once('=') {
        Some((text, topology)) => (text, Some(topology)),
        None => (text, None),
    };
    let (name, type_text) = text.split_once(':').unwrap_or((text, "string"));
    let pointer = type_text.starts_with('*');
    let kind = kind(type_text.trim_start_matches('*'), is_type);
    let topology = match (topology, &kind) {
        (Some("set"), _) => Topology::Set,
        (Some("atomic"), _) | (None, Kind::List(_)) => Topology::Atomic,
        (Some(keys), _) => Topology::Map(
            keys.trim_start_matches("map(")
                .trim_end_matches(')')
                .split(',')
                .collect(),
        ),
        (None, _) => Topology::Granular,
    };
    Field {
        name: name.trim_end_matches('!'),
        always: name.ends_with('!'),
        kind,
        pointer,
        topology,
        merge,
        merge_key,
        default,
    }
}

fn kind(text: &'static str, is_type: &dyn Fn(&str) -> bool) -> Kind {
    if let Some(element) = text.strip_prefix("[]") {
        return Kind::List(Box::new(kind(element, is_type)));
    }
    if let Some(element) = text.strip_prefix("{}") {
        return Kind::Map(Box::new(kind(element, is_type)));
    }
    match text {
        "bool" => Kind::Bool,
        "int32" => Kind::Int32,
        "int64" => Kind::Int64,
        "bytes" => Kind::Bytes,
        "Time" => Kind::Time,
        "MicroTime" => Kind::MicroTime,
        "Quantity" => Kind::Quantity,
        "IntOrString" => Kind::IntOrString,
        "FieldsV1" => Kind::Raw,
        name if is_type(name) => Kind::Struct(name),
        name => Kind::String(name),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::resource::RESOURCES;
    use super::*;

    #[test]
    fn every_resource_has_its_type() {
        for resource in RESOURCES {
            let r#type = super::super::of(resource);
            assert!(r#type.field("metadata").is_some(), "{}", resource.kind);
        }
        for name in ["TokenRequest", "Binding", "Eviction", "DeleteOptions"] {
            assert!(find(name).is_some(), "{name}");
        }
    }

    #[test]
    fn keys_are_fields_of_the_elements() {
        for r#type in TYPES.values() {
            for field in &r#type.fields {
                let mut keys: Vec<&str> = field.merge_key.into_iter().collect();
                if let Topology::Map(map_keys) = &field.topology {
                    keys.extend(map_keys);
                }
                if keys.is_empty() {
                    continue;
                }
                let Kind::List(element) = &field.kind else {
                    panic!("{}.{} has keys but is no list", r#type.name, field.name);
                };
                let Kind::Struct(element) = **element else {
                    panic!("{}.{} has keys but no objects", r#type.name, field.name);
                };
                for key in keys {
                    assert!(find(element).unwrap().field(key).is_some(), "{element} {key}");
                }
            }
        }
    }

    #[test]
    fn a_field_is_read_with_all_that_is_said_of_it() {
        let containers = find("PodSpec").unwrap().field("containers").unwrap();
        assert_eq!(containers.kind, Kind::List(Box::new(Kind::Struct("Container"))));
        assert!(containers.always && containers.merge && !containers.pointer);
        assert_eq!(containers.merge_key, Some("name"));
        assert_eq!(containers.topology, Topology::Map(vec!["name"]));

        let ports = find("Container").unwrap().field("ports").unwrap();
        assert_eq!(ports.merge_key, Some("containerPort"));
        assert_eq!(ports.topology, Topology::Map(vec!["containerPort", "protocol"]));
        let protocol = find("ContainerPort").unwrap().field("protocol").unwrap();
        assert_eq!(protocol.default, Some("TCP"));

        let selector = find("PodSpec").unwrap().field("nodeSelector").unwrap();
        assert_eq!(selector.topology, Topology::Atomic);
        let host_ips = find("PodStatus").unwrap().field("hostIPs").unwrap();
        assert_eq!(host_ips.topology, Topology::Atomic);
        assert!(host_ips.merge && host_ips.merge_key == Some("ip"));
        assert!(find("ObjectReference").unwrap().atomic);
        let phase = find("PodStatus").unwrap().field("phase").unwrap();
        assert_eq!(phase.kind, Kind::String("PodPhase"));
    }
}
