//! Writes a pod in protobuf, as Kubernetes' own programs read it.
//!
//! The types of `k8s-openapi` have names of JSON only. They are serialized with serde, and each name gets its number from a
//! table. Empty fields are left out, which a reader takes for their zero value.

use std::fmt;

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use serde::ser::{Impossible, Serialize, SerializeMap, SerializeSeq, SerializeStruct, Serializer};

use super::fields::{Fields, TYPES};

/// Encodes a pod with a status that is newer than the pod's own, if there is one.
pub(super) fn pod(pod: &Pod, status: Option<&PodStatus>) -> Result<Vec<u8>, EncodeError> {
    let mut out = Vec::with_capacity(4096);
    let status = status.or(pod.status.as_ref());
    WithStatus { pod, status }.serialize(Value::new(&mut out, (0, 0)))?;
    Ok(out)
}

/// Why a value has no place in protobuf.
#[derive(Debug)]
pub(super) struct EncodeError(String);

impl fmt::Display for EncodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for EncodeError {}

impl serde::ser::Error for EncodeError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self(message.to_string())
    }
}

fn unsupported<T>(what: &str) -> Result<T, EncodeError> {
    Err(EncodeError(format!("no protobuf for {what}")))
}

struct WithStatus<'a> {
    pod: &'a Pod,
    status: Option<&'a PodStatus>,
}

impl Serialize for WithStatus<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut pod = serializer.serialize_struct("Pod", 3)?;
        pod.serialize_field("metadata", &self.pod.metadata)?;
        pod.serialize_field("spec", &self.pod.spec)?;
        pod.serialize_field("status", &self.status)?;
        pod.end()
    }
}

const VARINT: u64 = 0;
const LENGTH_DELIMITED: u64 = 2;

/// Writes one value as a field. The field has a number, or two if it is in an inner message; `(0, 0)` is the pod itself.
struct Value<'a> {
    out: &'a mut Vec<u8>,
    number: (u8, u8),
    kind: Kind,
}

/// What a string or number stands for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Itself,
    Quantity,
    Time,
    IntOrString,
}

/// Messages that are being written: where each begins, outermost first.
#[derive(Default)]
struct Open([Option<usize>; 2]);

impl<'a> Value<'a> {
    fn new(out: &'a mut Vec<u8>, number: (u8, u8)) -> Self {
        Self {
            out,
            number,
            kind: Kind::Itself,
        }
    }

    fn varint(self, value: i64) -> Result<(), EncodeError> {
        let open = match self.number {
            (number, 0) => {
                write_tag(self.out, number, VARINT);
                Open::default()
            }
            (outer, inner) => {
                let open = open_message(self.out, outer);
                write_tag(self.out, inner, VARINT);
                Open([Some(open), None])
            }
        };
        // A negative number has ten bytes, as in Go.
        write_varint(self.out, value.cast_unsigned());
        open.close(self.out);
        Ok(())
    }

    fn bytes(self, value: &[u8]) {
        let open = open(self.out, self.number);
        self.out.extend_from_slice(value);
        open.close(self.out);
    }

    fn message(self, write: impl FnOnce(&mut Vec<u8>) -> Result<(), EncodeError>) -> Result<(), EncodeError> {
        let open = open(self.out, self.number);
        write(self.out)?;
        open.close(self.out);
        Ok(())
    }
}

/// Begins a field of variable length.
fn open(out: &mut Vec<u8>, number: (u8, u8)) -> Open {
    match number {
        (0, _) => Open::default(),
        (number, 0) => Open([Some(open_message(out, number)), None]),
        (outer, inner) => Open([Some(open_message(out, outer)), Some(open_message(out, inner))]),
    }
}

fn open_message(out: &mut Vec<u8>, number: u8) -> usize {
    write_tag(out, number, LENGTH_DELIMITED);
    out.len()
}

impl Open {
    /// Puts the lengths before the messages.
    fn close(self, out: &mut Vec<u8>) {
        for start in self.0.into_iter().rev().flatten() {
            let mut length = Vec::with_capacity(5);
            write_varint(&mut length, (out.len() - start) as u64);
            out.splice(start..start, length);
        }
    }
}

fn write_tag(out: &mut Vec<u8>, number: u8, wire: u64) {
    write_varint(out, u64::from(number) << 3 | wire);
}

fn write_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

impl<'a> Serializer for Value<'a> {
    type Ok = ();
    type Error = EncodeError;
    type SerializeSeq = Elements<'a>;
    type SerializeTuple = Impossible<(), EncodeError>;
    type SerializeTupleStruct = Impossible<(), EncodeError>;
    type SerializeTupleVariant = Impossible<(), EncodeError>;
    type SerializeMap = Entries<'a>;
    type SerializeStruct = Message<'a>;
    type SerializeStructVariant = Impossible<(), EncodeError>;

    fn serialize_bool(self, value: bool) -> Result<(), EncodeError> {
        self.varint(i64::from(value))
    }

    fn serialize_i8(self, value: i8) -> Result<(), EncodeError> {
        self.serialize_i64(value.into())
    }

    fn serialize_i16(self, value: i16) -> Result<(), EncodeError> {
        self.serialize_i64(value.into())
    }

    fn serialize_i32(self, value: i32) -> Result<(), EncodeError> {
        self.serialize_i64(value.into())
    }

    fn serialize_i64(self, value: i64) -> Result<(), EncodeError> {
        match self.kind {
            // Type 0 is a number.
            Kind::IntOrString => self.message(|out| Value::new(out, (2, 0)).varint(value)),
            _ => self.varint(value),
        }
    }

    fn serialize_u8(self, value: u8) -> Result<(), EncodeError> {
        self.serialize_i64(value.into())
    }

    fn serialize_u16(self, value: u16) -> Result<(), EncodeError> {
        self.serialize_i64(value.into())
    }

    fn serialize_u32(self, value: u32) -> Result<(), EncodeError> {
        self.serialize_i64(value.into())
    }

    fn serialize_u64(self, _: u64) -> Result<(), EncodeError> {
        unsupported("an unsigned number")
    }

    fn serialize_f32(self, _: f32) -> Result<(), EncodeError> {
        unsupported("a fraction")
    }

    fn serialize_f64(self, _: f64) -> Result<(), EncodeError> {
        unsupported("a fraction")
    }

    fn serialize_char(self, value: char) -> Result<(), EncodeError> {
        self.serialize_str(value.encode_utf8(&mut [0; 4]))
    }

    fn serialize_str(self, value: &str) -> Result<(), EncodeError> {
        match self.kind {
            Kind::Itself => self.bytes(value.as_bytes()),
            Kind::Quantity => {
                return self.message(|out| {
                    Value::new(out, (1, 0)).bytes(value.as_bytes());
                    Ok(())
                });
            }
            Kind::IntOrString => {
                return self.message(|out| {
                    Value::new(out, (1, 0)).varint(1)?;
                    Value::new(out, (3, 0)).bytes(value.as_bytes());
                    Ok(())
                });
            }
            Kind::Time => {
                let time: jiff::Timestamp = value.parse().map_err(serde::ser::Error::custom)?;
                return self.message(|out| {
                    Value::new(out, (1, 0)).varint(time.as_second())?;
                    match time.subsec_nanosecond() {
                        0 => Ok(()),
                        nanoseconds => Value::new(out, (2, 0)).varint(nanoseconds.into()),
                    }
                });
            }
        }
        Ok(())
    }

    fn serialize_bytes(self, value: &[u8]) -> Result<(), EncodeError> {
        self.bytes(value);
        Ok(())
    }

    fn serialize_none(self) -> Result<(), EncodeError> {
        Ok(())
    }

    fn serialize_some<T: ?Sized + Serialize>(self, value: &T) -> Result<(), EncodeError> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<(), EncodeError> {
        Ok(())
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<(), EncodeError> {
        Ok(())
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, name: &'static str) -> Result<(), EncodeError> {
        self.serialize_str(name)
    }

    fn serialize_newtype_struct<T: ?Sized + Serialize>(
        mut self,
        name: &'static str,
        value: &T,
    ) -> Result<(), EncodeError> {
        self.kind = match name {
            "Quantity" => Kind::Quantity,
            "Time" | "MicroTime" => Kind::Time,
            "FieldsV1" => {
                let json = serde_json::to_vec(value).map_err(serde::ser::Error::custom)?;
                return self.message(|out| {
                    Value::new(out, (1, 0)).bytes(&json);
                    Ok(())
                });
            }
            _ => return unsupported(name),
        };
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: ?Sized + Serialize>(
        self,
        _: &'static str,
        _: u32,
        name: &'static str,
        _: &T,
    ) -> Result<(), EncodeError> {
        unsupported(name)
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Elements<'a>, EncodeError> {
        Ok(Elements(self))
    }

    fn serialize_tuple(self, _: usize) -> Result<Self::SerializeTuple, EncodeError> {
        unsupported("a tuple")
    }

    fn serialize_tuple_struct(
        self,
        name: &'static str,
        _: usize,
    ) -> Result<Self::SerializeTupleStruct, EncodeError> {
        unsupported(name)
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        name: &'static str,
        _: usize,
    ) -> Result<Self::SerializeTupleVariant, EncodeError> {
        unsupported(name)
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Entries<'a>, EncodeError> {
        Ok(Entries {
            value: self,
            key: Vec::new(),
        })
    }

    fn serialize_struct(self, name: &'static str, _: usize) -> Result<Message<'a>, EncodeError> {
        let Ok(at) = TYPES.binary_search_by_key(&name, |(name, _)| name) else {
            return unsupported(name);
        };
        let fields = TYPES.get(at).map_or(&[][..], |&(_, fields)| fields);
        let open = open(self.out, self.number);
        Ok(Message {
            out: self.out,
            open,
            name,
            fields,
        })
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        name: &'static str,
        _: usize,
    ) -> Result<Self::SerializeStructVariant, EncodeError> {
        unsupported(name)
    }
}

/// A list: the field once for each element.
struct Elements<'a>(Value<'a>);

impl SerializeSeq for Elements<'_> {
    type Ok = ();
    type Error = EncodeError;

    fn serialize_element<T: ?Sized + Serialize>(&mut self, element: &T) -> Result<(), EncodeError> {
        element.serialize(Value::new(self.0.out, self.0.number))
    }

    fn end(self) -> Result<(), EncodeError> {
        Ok(())
    }
}

/// A map: the field once for each entry, which is a message of key and value.
struct Entries<'a> {
    value: Value<'a>,
    /// The encoded key of the entry that is being written.
    key: Vec<u8>,
}

impl SerializeMap for Entries<'_> {
    type Ok = ();
    type Error = EncodeError;

    fn serialize_key<T: ?Sized + Serialize>(&mut self, key: &T) -> Result<(), EncodeError> {
        self.key.clear();
        key.serialize(Value::new(&mut self.key, (1, 0)))
    }

    fn serialize_value<T: ?Sized + Serialize>(&mut self, value: &T) -> Result<(), EncodeError> {
        let key = &self.key;
        let entry = Value::new(self.value.out, self.value.number);
        entry.message(|out| {
            out.extend_from_slice(key);
            value.serialize(Value::new(out, (2, 0)))
        })
    }

    fn end(self) -> Result<(), EncodeError> {
        Ok(())
    }
}

/// An object: a message whose fields are looked up.
struct Message<'a> {
    out: &'a mut Vec<u8>,
    open: Open,
    name: &'static str,
    fields: Fields,
}

impl SerializeStruct for Message<'_> {
    type Ok = ();
    type Error = EncodeError;

    fn serialize_field<T: ?Sized + Serialize>(
        &mut self,
        name: &'static str,
        value: &T,
    ) -> Result<(), EncodeError> {
        let Ok(at) = self.fields.binary_search_by_key(&name, |&(name, ..)| name) else {
            return unsupported(&format!("{}.{name}", self.name));
        };
        let number = self
            .fields
            .get(at)
            .map_or((0, 0), |&(_, outer, inner)| (outer, inner));
        let mut field = Value::new(self.out, number);
        if name == "port" && matches!(self.name, "HTTPGetAction" | "TCPSocketAction") {
            field.kind = Kind::IntOrString;
        }
        value.serialize(field)
    }

    fn end(self) -> Result<(), EncodeError> {
        self.open.close(self.out);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
