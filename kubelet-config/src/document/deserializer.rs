//! From a document to a value, by the rules of Go's JSON decoder: `null` is a field that is not there, or the zero
//! value in a list or map; nothing is turned into another type; unknown fields are noted and passed over.

use std::cell::RefCell;
use std::fmt;

use serde::de::{self, DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, SeqAccess, Visitor};
use serde::forward_to_deserialize_any;

use super::tree::{Content, Node};
use super::{Rules, place};

/// What does not fit, and where.
#[derive(Debug)]
pub(super) struct Error {
    place: Option<String>,
    message: String,
}

impl Error {
    fn at(mut self, path: &str, line: u64) -> Self {
        self.place
            .get_or_insert_with(|| format!("{}{path}: ", place(line)));
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.place.as_deref().unwrap_or_default(), self.message)
    }
}

impl std::error::Error for Error {}

impl de::Error for Error {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self {
            place: None,
            message: message.to_string(),
        }
    }
}

/// A part of the document that a value is made of.
#[derive(Clone)]
pub(super) struct Cursor<'a> {
    node: &'a Node,
    path: String,
    rules: Rules,
    unknown: &'a RefCell<Vec<String>>,
}

impl<'a> Cursor<'a> {
    pub(super) fn root(node: &'a Node, rules: Rules, unknown: &'a RefCell<Vec<String>>) -> Self {
        Self {
            node,
            path: String::new(),
            rules,
            unknown,
        }
    }

    fn field(&self, key: &str, node: &'a Node) -> Self {
        let path = match self.path.as_str() {
            "" => key.to_owned(),
            path => format!("{path}.{key}"),
        };
        self.to(path, node)
    }

    fn item(&self, index: usize, node: &'a Node) -> Self {
        self.to(format!("{}[{index}]", self.path), node)
    }

    fn to(&self, path: String, node: &'a Node) -> Self {
        Self {
            node,
            path,
            rules: self.rules,
            unknown: self.unknown,
        }
    }

    /// Reads a value here, so that an error has its place.
    fn read<'de, S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, Error> {
        let (path, line) = (self.path.clone(), self.node.line);
        seed.deserialize(self).map_err(|error| error.at(&path, line))
    }

    fn expected(&self, what: &str) -> Error {
        let found = self.node.content.describe();
        de::Error::custom(format!("expected {what}, found {found}"))
    }

    fn integer<'de, V: Visitor<'de>>(&self, visitor: V) -> Result<V::Value, Error> {
        match self.node.content {
            Content::Int(value) => visitor.visit_i64(value),
            Content::Uint(value) => visitor.visit_u64(value),
            Content::Null => visitor.visit_i64(0),
            _ => Err(self.expected("a whole number")),
        }
    }
}

/// Whole numbers of any size: the visitor knows what fits.
macro_rules! integers {
    ($($method:ident)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            self.integer(visitor)
        })*
    };
}

impl<'de> Deserializer<'de> for Cursor<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match &self.node.content {
            Content::Null => visitor.visit_unit(),
            Content::Bool(value) => visitor.visit_bool(*value),
            Content::Int(value) => visitor.visit_i64(*value),
            Content::Uint(value) => visitor.visit_u64(*value),
            Content::Float(value) => visitor.visit_f64(*value),
            Content::Text(text) => visitor.visit_str(text),
            Content::List(_) => self.deserialize_seq(visitor),
            Content::Map(_) => self.deserialize_map(visitor),
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.node.content {
            Content::Bool(value) => visitor.visit_bool(value),
            Content::Null => visitor.visit_bool(false),
            _ => Err(self.expected("true or false")),
        }
    }

    integers! {
        deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.node.content {
            Content::Float(value) => visitor.visit_f64(value),
            Content::Int(_) | Content::Uint(_) | Content::Null => self.integer(visitor),
            _ => Err(self.expected("a number")),
        }
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match &self.node.content {
            Content::Text(text) => visitor.visit_str(text),
            Content::Null => visitor.visit_str(""),
            _ => Err(self.expected("a string")),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.node.content {
            Content::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    /// Of quantities, which may be written as numbers.
    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        let text = match &self.node.content {
            Content::Text(text) => text.clone(),
            Content::Int(value) => value.to_string(),
            Content::Uint(value) => value.to_string(),
            Content::Float(value) => value.to_string(),
            Content::Null => "0".into(),
            _ => return Err(self.expected("a quantity")),
        };
        visitor.visit_newtype_struct(IntoDeserializer::<Error>::into_deserializer(text))
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let items: &[Node] = match &self.node.content {
            Content::List(items) => items,
            Content::Null => &[],
            _ => return Err(self.expected("a list")),
        };
        visitor.visit_seq(Items {
            rest: items.iter().enumerate(),
            of: self,
        })
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let fields: &[_] = match &self.node.content {
            Content::Map(fields) => fields,
            Content::Null => &[],
            _ => return Err(self.expected("an object")),
        };
        let fields: Vec<_> = fields.iter().map(|(key, node)| (key.as_str(), node)).collect();
        visitor.visit_map(Fields::new(fields, self))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        known: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let given: &[_] = match &self.node.content {
            Content::Map(fields) => fields,
            Content::Null => &[],
            _ => return Err(self.expected("an object")),
        };
        let mut fields: Vec<(&str, &Node)> = Vec::new();
        for (key, node) in given {
            let Some(name) = self.known_as(key, known) else {
                let Cursor { path, .. } = self.field(key, node);
                let unknown = format!("{}unknown field {path:?}", place(node.line));
                self.unknown.borrow_mut().push(unknown);
                continue;
            };
            if node.content == Content::Null && !self.rules.not_null.contains(&name) {
                continue;
            }
            match fields.iter_mut().find(|(earlier, _)| *earlier == name) {
                Some(earlier) => earlier.1 = node,
                None => fields.push((name, node)),
            }
        }
        visitor.visit_map(Fields::new(fields, self))
    }

    forward_to_deserialize_any! {
        i128 u128 f32 char bytes byte_buf unit unit_struct tuple tuple_struct enum identifier ignored_any
    }
}

impl Cursor<'_> {
    /// The known field that a key stands for. The type of an object is known before its fields are.
    fn known_as<'k>(&self, key: &'k str, known: &'static [&'static str]) -> Option<&'k str>
    where
        'static: 'k,
    {
        if self.rules.missing.contains(&key) {
            return None;
        }
        if known.contains(&key) || self.path.is_empty() && ["apiVersion", "kind"].contains(&key) {
            return Some(key);
        }
        let folded = known.iter().copied().find(|name| name.eq_ignore_ascii_case(key));
        folded.filter(|_| self.rules.fold_case)
    }
}

struct Items<'a> {
    rest: std::iter::Enumerate<std::slice::Iter<'a, Node>>,
    of: Cursor<'a>,
}

impl<'de> SeqAccess<'de> for Items<'_> {
    type Error = Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Error> {
        match self.rest.next() {
            None => Ok(None),
            Some((index, node)) => self.of.item(index, node).read(seed).map(Some),
        }
    }
}

struct Fields<'a> {
    rest: std::vec::IntoIter<(&'a str, &'a Node)>,
    value: Option<(&'a str, &'a Node)>,
    of: Cursor<'a>,
}

impl<'a> Fields<'a> {
    fn new(fields: Vec<(&'a str, &'a Node)>, of: Cursor<'a>) -> Self {
        Self {
            rest: fields.into_iter(),
            value: None,
            of,
        }
    }
}

impl<'de> MapAccess<'de> for Fields<'_> {
    type Error = Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Error> {
        self.value = self.rest.next();
        match self.value {
            None => Ok(None),
            Some((key, _)) => seed.deserialize(key.into_deserializer()).map(Some),
        }
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Error> {
        match self.value.take() {
            Some((key, node)) => self.of.field(key, node).read(seed),
            None => Err(de::Error::custom("a value was asked for before its key")),
        }
    }
}
