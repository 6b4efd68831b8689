use k8s_openapi::api::core::v1::{Pod, PodStatus};
use serde::Deserialize;
use serde::de::value::{Error, StrDeserializer};
use serde::de::{DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, SeqAccess, Visitor};

use super::{pod, write_varint};
use crate::pods_api::fields::TYPES;

/// Gives every field a value, every list an element and every map an entry.
#[derive(Clone, Copy)]
struct Full {
    text: &'static str,
}

impl<'de> Deserializer<'de> for Full {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_i64(7)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_bool(true)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_str(self.text)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_str(self.text)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(Self {
            text: match name {
                "Time" => "2026-01-02T03:04:05Z",
                "MicroTime" => "2026-01-02T03:04:05.000006Z",
                _ => "1Gi",
            },
        })
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_seq(Once(false))
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_map(Names {
            names: &["key"],
            next: "",
        })
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        names: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_map(Names { names, next: "" })
    }

    serde::forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char bytes byte_buf unit unit_struct tuple tuple_struct enum
        identifier ignored_any
    }
}

struct Once(bool);

impl<'de> SeqAccess<'de> for Once {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        match std::mem::replace(&mut self.0, true) {
            true => Ok(None),
            false => seed.deserialize(Full { text: "text" }).map(Some),
        }
    }
}

struct Names {
    names: &'static [&'static str],
    next: &'static str,
}

impl<'de> MapAccess<'de> for Names {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        let Some((&next, names)) = self.names.split_first() else {
            return Ok(None);
        };
        (self.next, self.names) = (next, names);
        let key: StrDeserializer<'_, Error> = next.into_deserializer();
        seed.deserialize(key).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        seed.deserialize(Full { text: self.next })
    }
}

fn full() -> Pod {
    Pod {
        metadata: Deserialize::deserialize(Full { text: "" }).unwrap(),
        spec: Deserialize::deserialize(Full { text: "" }).unwrap(),
        status: Deserialize::deserialize(Full { text: "" }).unwrap(),
    }
}

#[test]
fn every_field_of_a_pod_has_a_number() {
    let full = full();
    assert!(
        full.spec.as_ref().unwrap().volumes.as_ref().unwrap()[0]
            .host_path
            .is_some()
    );
    assert!(full.spec.as_ref().unwrap().resource_claims.is_some());
    pod(&full, None).unwrap();
}

#[test]
fn numbers_are_sorted_and_unique() {
    assert!(TYPES.is_sorted_by(|a, b| a.0 < b.0));
    for (name, fields) in TYPES {
        assert!(fields.is_sorted_by(|a, b| a.0 < b.0), "{name}");
        let mut numbers: Vec<_> = fields.iter().map(|&(_, outer, inner)| (outer, inner)).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), fields.len(), "{name}");
    }
}

fn encoded(json: serde_json::Value) -> Vec<u8> {
    pod(&serde_json::from_value(json).unwrap(), None).unwrap()
}

/// A field of variable length.
fn field(number: u8, value: impl AsRef<[u8]>) -> Vec<u8> {
    let mut out = vec![number << 3 | 2];
    write_varint(&mut out, value.as_ref().len() as u64);
    out.extend_from_slice(value.as_ref());
    out
}

/// Of fields that come after `image` by their names in JSON, which is the order they are written in.
#[test]
fn values_are_encoded() {
    for (name, json, expected) in [
        ("tty", serde_json::json!(true), vec![0x90, 0x01, 1]),
        (
            "ports",
            serde_json::json!([{"containerPort": 8080}, {"containerPort": 1}]),
            [field(6, [0x18, 0x90, 0x3f]), field(6, [0x18, 1])].concat(),
        ),
        (
            "resources",
            serde_json::json!({"limits": {"cpu": "1", "memory": "1Gi"}}),
            field(
                8,
                [
                    field(1, [field(1, "cpu"), field(2, field(1, "1"))].concat()),
                    field(1, [field(1, "memory"), field(2, field(1, "1Gi"))].concat()),
                ]
                .concat(),
            ),
        ),
        (
            "securityContext",
            serde_json::json!({"runAsUser": -1}),
            field(
                15,
                [0x20, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
            ),
        ),
        // A message of its own in protobuf.
        (
            "readinessProbe",
            serde_json::json!({"tcpSocket": {"port": 80}, "timeoutSeconds": 3}),
            field(
                11,
                [field(1, field(3, field(1, [0x10, 80]))), vec![0x18, 3]].concat(),
            ),
        ),
        (
            "readinessProbe",
            serde_json::json!({"tcpSocket": {"port": "http"}}),
            field(
                11,
                field(1, field(3, field(1, [vec![0x08, 1], field(3, "http")].concat()))),
            ),
        ),
    ] {
        let mut container = serde_json::json!({"name": "c"});
        container[name] = json;
        let pod = encoded(serde_json::json!({"metadata": {}, "spec": {"containers": [container]}}));
        let container = field(2, [field(1, "c"), expected].concat());
        assert_eq!(pod, [field(1, []), field(2, container)].concat(), "{name}");
    }
}

#[test]
fn metadata_and_status_are_encoded() {
    let mut own: Pod = serde_json::from_value(serde_json::json!({
        "metadata": {"name": "p", "creationTimestamp": "2026-01-02T03:04:05Z"},
        "status": {"phase": "Pending"},
    }))
    .unwrap();
    let mut time = vec![0x08];
    write_varint(&mut time, 1_767_323_045);
    let metadata = field(1, [field(8, time), field(1, "p")].concat());
    let status = field(3, field(1, "Pending"));
    assert_eq!(pod(&own, None).unwrap(), [metadata.clone(), status].concat());
    let newer = PodStatus {
        phase: Some("Running".to_owned()),
        ..PodStatus::default()
    };
    let status = field(3, field(1, "Running"));
    assert_eq!(
        pod(&own, Some(&newer)).unwrap(),
        [metadata.clone(), status].concat()
    );
    own.status = None;
    assert_eq!(pod(&own, None).unwrap(), metadata);
}
