//! What a document holds, and where in its text.

use std::collections::HashMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use serde_saphyr::Spanned;

/// A part of a document.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Node {
    /// The line of its text, from 1; 0 if it has none. A field's is that of its name.
    pub(crate) line: u64,
    pub(crate) content: Content,
}

/// What a part of a document holds.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Content {
    Null,
    Bool(bool),
    Int(i64),
    /// More than [`Content::Int`] holds.
    Uint(u64),
    Float(f64),
    Text(String),
    List(Vec<Node>),
    /// Each key once.
    Map(Vec<(String, Node)>),
}

impl Content {
    /// A number with a fraction, or one written like that.
    ///
    /// YAML goes through JSON on its way into an object. What is whole loses its point there.
    pub(super) fn whole_or_float(number: f64) -> Self {
        /// 2⁶³: here and beyond there is no `i64`.
        const END: f64 = 9_223_372_036_854_775_808.0;
        if number.fract() == 0.0 && (-END..END).contains(&number) {
            #[expect(clippy::cast_possible_truncation, reason = "whole and within bounds")]
            return Self::Int(number as i64);
        }
        Self::Float(number)
    }

    pub(super) fn uint(number: u64) -> Self {
        i64::try_from(number).map_or(Self::Uint(number), Self::Int)
    }

    /// What it is, for who expected something else.
    pub(super) fn describe(&self) -> String {
        match self {
            Self::Null => "null".into(),
            Self::Bool(value) => format!("{value}"),
            Self::Int(value) => format!("the number {value}"),
            Self::Uint(value) => format!("the number {value}"),
            Self::Float(value) => format!("the number {value}"),
            Self::Text(value) => format!("the string {value:?}"),
            Self::List(_) => "a list".into(),
            Self::Map(_) => "an object".into(),
        }
    }

    /// Whether it is an object with this field, which is not null.
    pub(crate) fn sets(&self, field: &str) -> bool {
        let Self::Map(fields) = self else { return false };
        let mut fields = fields.iter();
        fields.any(|(key, node)| key == field && node.content != Self::Null)
    }

    /// As JSON, in which whole numbers have no point.
    pub(crate) fn to_json(&self) -> Value {
        match self {
            Self::Null => Value::Null,
            Self::Bool(value) => Value::Bool(*value),
            Self::Int(value) => Value::from(*value),
            Self::Uint(value) => Value::from(*value),
            Self::Float(value) => match Self::whole_or_float(*value) {
                Self::Int(value) => Value::from(value),
                _ => Number::from_f64(*value).map_or(Value::Null, Value::Number),
            },
            Self::Text(value) => Value::String(value.clone()),
            Self::List(items) => items.iter().map(|item| item.content.to_json()).collect(),
            Self::Map(fields) => {
                let fields = fields.iter();
                Value::Object(
                    fields
                        .map(|(key, node)| (key.clone(), node.content.to_json()))
                        .collect(),
                )
            }
        }
    }
}

/// Without lines.
impl From<Value> for Node {
    fn from(value: Value) -> Self {
        let content = match value {
            Value::Null => Content::Null,
            Value::Bool(value) => Content::Bool(value),
            Value::Number(number) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
                (Some(number), ..) => Content::Int(number),
                (_, Some(number), _) => Content::Uint(number),
                (.., number) => Content::Float(number.unwrap_or(f64::NAN)),
            },
            Value::String(text) => Content::Text(text),
            Value::Array(items) => Content::List(items.into_iter().map(Self::from).collect()),
            Value::Object(fields) => Content::Map(from_fields(fields)),
        };
        Self { line: 0, content }
    }
}

fn from_fields(fields: Map<String, Value>) -> Vec<(String, Node)> {
    fields
        .into_iter()
        .map(|(key, value)| (key, Node::from(value)))
        .collect()
}

/// The fields of an object while they are read.
#[derive(Default)]
pub(super) struct Fields {
    pub(super) list: Vec<(String, Node)>,
    at: HashMap<String, usize>,
}

impl Fields {
    /// Sets a field. Returns whether it was set before.
    pub(super) fn set(&mut self, key: String, node: Node) -> bool {
        let at = *self.at.entry(key.clone()).or_insert(self.list.len());
        match self.list.get_mut(at) {
            Some(field) => field.1 = node,
            None => {
                self.list.push((key, node));
                return false;
            }
        }
        true
    }
}

/// From YAML, with lines.
impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;

        impl<'de> Visitor<'de> for Reader {
            type Value = Content;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value")
            }

            fn visit_unit<E>(self) -> Result<Content, E> {
                Ok(Content::Null)
            }

            fn visit_none<E>(self) -> Result<Content, E> {
                Ok(Content::Null)
            }

            fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Content, D::Error> {
                Content::deserialize(deserializer)
            }

            fn visit_bool<E>(self, value: bool) -> Result<Content, E> {
                Ok(Content::Bool(value))
            }

            fn visit_i64<E>(self, value: i64) -> Result<Content, E> {
                Ok(Content::Int(value))
            }

            fn visit_u64<E>(self, value: u64) -> Result<Content, E> {
                Ok(Content::uint(value))
            }

            #[expect(clippy::cast_precision_loss, reason = "so does the kubelet's reader")]
            fn visit_i128<E>(self, value: i128) -> Result<Content, E> {
                Ok(Content::Float(value as f64))
            }

            #[expect(clippy::cast_precision_loss, reason = "so does the kubelet's reader")]
            fn visit_u128<E>(self, value: u128) -> Result<Content, E> {
                Ok(Content::Float(value as f64))
            }

            fn visit_f64<E>(self, value: f64) -> Result<Content, E> {
                Ok(Content::whole_or_float(value))
            }

            fn visit_str<E>(self, text: &str) -> Result<Content, E> {
                Ok(Content::Text(text.to_owned()))
            }

            fn visit_string<E>(self, text: String) -> Result<Content, E> {
                Ok(Content::Text(text))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Content, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = list.next_element::<Spanned<Content>>()? {
                    items.push(Node {
                        line: item.referenced.line(),
                        content: item.value,
                    });
                }
                Ok(Content::List(items))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Content, A::Error> {
                let mut fields = Fields::default();
                while let Some((key, content)) = map.next_entry::<Spanned<Key>, Content>()? {
                    let line = key.referenced.line();
                    fields.set(key.value.0, Node { line, content });
                }
                Ok(Content::Map(fields.list))
            }
        }

        deserializer.deserialize_any(Reader)
    }
}

/// The name of a field: whatever it is in YAML, in JSON it is a string.
struct Key(String);

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader<'de>(PhantomData<&'de ()>);

        impl<'de> Visitor<'de> for Reader<'de> {
            type Value = Key;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a field")
            }

            fn visit_str<E>(self, text: &str) -> Result<Key, E> {
                Ok(Key(text.to_owned()))
            }

            fn visit_bool<E: de::Error>(self, value: bool) -> Result<Key, E> {
                Ok(Key(value.to_string()))
            }

            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Key, E> {
                Ok(Key(value.to_string()))
            }

            fn visit_u64<E: de::Error>(self, value: u64) -> Result<Key, E> {
                Ok(Key(value.to_string()))
            }

            fn visit_f64<E: de::Error>(self, value: f64) -> Result<Key, E> {
                #[expect(
                    clippy::cast_possible_truncation,
                    reason = "names have no more digits than that"
                )]
                Ok(Key((value as f32).to_string()))
            }
        }

        deserializer.deserialize_any(Reader(PhantomData))
    }
}
