//! Bodies in protobuf, as JSON. `kubectl` 1.32 and newer sends a few kinds so: those that its commands write with typed clients
//! (`create configmap`, `create token`, `auth can-i`, `drain`). The numbers of the fields are those of the `generated.proto` files.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::status_error::StatusError;

/// A field of a message: its number, its name in JSON, and what it is.
type Field = (u64, &'static str, Is);

/// What a field is. Go writes the zero value of a field that is no pointer, where JSON leaves it out.
#[derive(Clone, Copy)]
enum Is {
    Text,
    Number,
    Flag,
    /// Pointers to a number and to a bool: their zero is a value.
    NumberOrNone,
    FlagOrNone,
    Time,
    IntOrString,
    Texts,
    TextMap,
    BytesMap,
    Message(&'static [Field]),
    Messages(&'static [Field]),
}

use Is::{
    BytesMap, Flag, FlagOrNone, IntOrString, Message, Messages, Number, NumberOrNone, Text, TextMap, Texts,
    Time,
};

const OWNER: &[Field] = &[
    (1, "kind", Text),
    (3, "name", Text),
    (4, "uid", Text),
    (5, "apiVersion", Text),
    (6, "controller", FlagOrNone),
    (7, "blockOwnerDeletion", FlagOrNone),
];
/// Without `managedFields`, which no command writes.
const METADATA: &[Field] = &[
    (1, "name", Text),
    (2, "generateName", Text),
    (3, "namespace", Text),
    (5, "uid", Text),
    (6, "resourceVersion", Text),
    (7, "generation", Number),
    (8, "creationTimestamp", Time),
    (9, "deletionTimestamp", Time),
    (10, "deletionGracePeriodSeconds", NumberOrNone),
    (11, "labels", TextMap),
    (12, "annotations", TextMap),
    (13, "ownerReferences", Messages(OWNER)),
    (14, "finalizers", Texts),
];
const CONFIG_MAP: &[Field] = &[
    (1, "metadata", Message(METADATA)),
    (2, "data", TextMap),
    (3, "binaryData", BytesMap),
    (4, "immutable", FlagOrNone),
];
const SECRET: &[Field] = &[
    (1, "metadata", Message(METADATA)),
    (2, "data", BytesMap),
    (3, "type", Text),
    (4, "stringData", TextMap),
    (5, "immutable", FlagOrNone),
];
const NAMESPACE: &[Field] = &[
    (1, "metadata", Message(METADATA)),
    (2, "spec", Message(&[(1, "finalizers", Texts)])),
];
const REFERENCE: &[Field] = &[
    (1, "kind", Text),
    (2, "namespace", Text),
    (3, "name", Text),
    (4, "uid", Text),
    (5, "apiVersion", Text),
    (6, "resourceVersion", Text),
    (7, "fieldPath", Text),
];
const SERVICE_ACCOUNT: &[Field] = &[
    (1, "metadata", Message(METADATA)),
    (2, "secrets", Messages(REFERENCE)),
    (3, "imagePullSecrets", Messages(&[(1, "name", Text)])),
    (4, "automountServiceAccountToken", FlagOrNone),
];
const PORT: &[Field] = &[
    (1, "name", Text),
    (2, "protocol", Text),
    (3, "port", Number),
    (4, "targetPort", IntOrString),
    (5, "nodePort", Number),
    (6, "appProtocol", Text),
];
/// What `kubectl create service` sets.
const SERVICE: &[Field] = &[
    (1, "metadata", Message(METADATA)),
    (
        2,
        "spec",
        Message(&[
            (1, "ports", Messages(PORT)),
            (2, "selector", TextMap),
            (3, "clusterIP", Text),
            (4, "type", Text),
            (5, "externalIPs", Texts),
            (7, "sessionAffinity", Text),
            (10, "externalName", Text),
            (13, "publishNotReadyAddresses", Flag),
        ]),
    ),
];
const TOKEN_REQUEST: &[Field] = &[
    (1, "metadata", Message(METADATA)),
    (
        2,
        "spec",
        Message(&[
            (1, "audiences", Texts),
            (
                3,
                "boundObjectRef",
                Message(&[
                    (1, "kind", Text),
                    (2, "apiVersion", Text),
                    (3, "name", Text),
                    (4, "uid", Text),
                ]),
            ),
            (4, "expirationSeconds", NumberOrNone),
        ]),
    ),
];
const SELECTOR: &[Field] = &[
    (1, "rawSelector", Text),
    (
        2,
        "requirements",
        Messages(&[(1, "key", Text), (2, "operator", Text), (3, "values", Texts)]),
    ),
];
const ACCESS_REVIEW: &[Field] = &[
    (1, "metadata", Message(METADATA)),
    (
        2,
        "spec",
        Message(&[
            (
                1,
                "resourceAttributes",
                Message(&[
                    (1, "namespace", Text),
                    (2, "verb", Text),
                    (3, "group", Text),
                    (4, "version", Text),
                    (5, "resource", Text),
                    (6, "subresource", Text),
                    (7, "name", Text),
                    (8, "fieldSelector", Message(SELECTOR)),
                    (9, "labelSelector", Message(SELECTOR)),
                ]),
            ),
            (
                2,
                "nonResourceAttributes",
                Message(&[(1, "path", Text), (2, "verb", Text)]),
            ),
        ]),
    ),
];
const DELETE_OPTIONS: &[Field] = &[
    (1, "gracePeriodSeconds", NumberOrNone),
    (
        2,
        "preconditions",
        Message(&[(1, "uid", Text), (2, "resourceVersion", Text)]),
    ),
    (3, "orphanDependents", FlagOrNone),
    (4, "propagationPolicy", Text),
    (5, "dryRun", Texts),
];
const EVICTION: &[Field] = &[
    (1, "metadata", Message(METADATA)),
    (2, "deleteOptions", Message(DELETE_OPTIONS)),
];

/// The fields of a kind.
fn fields_of(api_version: &str, kind: &str) -> Option<&'static [Field]> {
    Some(match (api_version, kind) {
        ("v1", "ConfigMap") => CONFIG_MAP,
        ("v1", "Secret") => SECRET,
        ("v1", "Namespace") => NAMESPACE,
        ("v1", "ServiceAccount") => SERVICE_ACCOUNT,
        ("v1", "Service") => SERVICE,
        ("authentication.k8s.io/v1", "TokenRequest") => TOKEN_REQUEST,
        ("authorization.k8s.io/v1", "SelfSubjectAccessReview") => ACCESS_REVIEW,
        ("policy/v1", "Eviction") => EVICTION,
        (_, "DeleteOptions") => DELETE_OPTIONS,
        _ => return None,
    })
}

/// The JSON of an object in protobuf.
///
/// # Errors
///
/// 415 for kinds that are read as JSON and YAML only, 400 for a body that is no protobuf.
pub(super) fn json(body: &[u8]) -> Result<Bytes, StatusError> {
    let unknown = body
        .strip_prefix(b"k8s\0")
        .and_then(message)
        .ok_or_else(invalid)?;
    let typed = part(&unknown, 1)
        .map_or(Some(Vec::new()), message)
        .ok_or_else(invalid)?;
    let word = |number| String::from_utf8_lossy(part(&typed, number).unwrap_or_default()).into_owned();
    let (api_version, kind) = (word(1), word(2));
    let Some(fields) = fields_of(&api_version, &kind) else {
        return Err(StatusError::new(
            415,
            "UnsupportedMediaType",
            format!(
                "this API server reads application/json and application/yaml, and of {kind} in version {api_version:?} no \
                 application/vnd.kubernetes.protobuf"
            ),
        ));
    };
    let mut object = read(part(&unknown, 2).unwrap_or_default(), fields).ok_or_else(invalid)?;
    object.insert("apiVersion".to_owned(), api_version.into());
    object.insert("kind".to_owned(), kind.into());
    Ok(Value::Object(object).to_string().into())
}

fn invalid() -> StatusError {
    StatusError::bad_request("the body of the request is no application/vnd.kubernetes.protobuf")
}

/// A value on the wire.
enum Wire<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    /// Of a fixed width; no field here has one.
    Fixed,
}

/// The fields of a message, in their order; `None` if it is no message.
fn message(mut rest: &[u8]) -> Option<Vec<(u64, Wire<'_>)>> {
    let mut fields = Vec::new();
    while !rest.is_empty() {
        let key = varint(&mut rest)?;
        let value = match key & 7 {
            0 => Wire::Number(varint(&mut rest)?),
            1 => take(&mut rest, 8).map(|_| Wire::Fixed)?,
            2 => {
                let length = usize::try_from(varint(&mut rest)?).ok()?;
                Wire::Bytes(take(&mut rest, length)?)
            }
            5 => take(&mut rest, 4).map(|_| Wire::Fixed)?,
            _ => return None,
        };
        fields.push((key >> 3, value));
    }
    Some(fields)
}

fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, after) = rest.split_first()?;
        *rest = after;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some(taken)
}

/// The bytes of a field.
fn part<'a>(fields: &[(u64, Wire<'a>)], number: u64) -> Option<&'a [u8]> {
    fields.iter().find_map(|(field, value)| match value {
        Wire::Bytes(bytes) if *field == number => Some(*bytes),
        _ => None,
    })
}

fn number(fields: &[(u64, Wire<'_>)], number: u64) -> i64 {
    let found = fields.iter().find_map(|(field, value)| match value {
        Wire::Number(value) if *field == number => Some(value.cast_signed()),
        _ => None,
    });
    found.unwrap_or_default()
}

/// A message as JSON, without the fields that are not known.
fn read(bytes: &[u8], known: &[Field]) -> Option<Map<String, Value>> {
    let mut object = Map::new();
    for (number, value) in message(bytes)? {
        if let Some((_, name, is)) = known.iter().find(|(known, ..)| *known == number) {
            add(&mut object, name, *is, &value)?;
        }
    }
    Some(object)
}

/// Adds a field; `None` if it is of another type.
fn add(object: &mut Map<String, Value>, name: &str, is: Is, value: &Wire<'_>) -> Option<()> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok().map(Value::from);
    let value = match (is, value) {
        (Text, Wire::Bytes([])) | (Number | Flag, Wire::Number(0)) => return Some(()),
        (Text, Wire::Bytes(bytes)) => text(bytes)?,
        (Number | NumberOrNone, Wire::Number(number)) => number.cast_signed().into(),
        (Flag | FlagOrNone, Wire::Number(flag)) => (*flag != 0).into(),
        (Time, Wire::Bytes(bytes)) => {
            let fields = message(bytes)?;
            let nanoseconds = i32::try_from(number(&fields, 2)).ok()?;
            let time = Timestamp::new(number(&fields, 1), nanoseconds).ok()?;
            if time == Timestamp::UNIX_EPOCH {
                return Some(());
            }
            time.to_string().into()
        }
        (IntOrString, Wire::Bytes(bytes)) => {
            let fields = message(bytes)?;
            match number(&fields, 1) {
                0 => number(&fields, 2).into(),
                _ => text(part(&fields, 3).unwrap_or_default())?,
            }
        }
        (Message(fields), Wire::Bytes(bytes)) => read(bytes, fields)?.into(),
        (Texts, Wire::Bytes(bytes)) => return push(object, name, text(bytes)?),
        (Messages(fields), Wire::Bytes(bytes)) => return push(object, name, read(bytes, fields)?.into()),
        (TextMap | BytesMap, Wire::Bytes(bytes)) => {
            let entry = message(bytes)?;
            let key = String::from_utf8(part(&entry, 1).unwrap_or_default().to_vec()).ok()?;
            let value = part(&entry, 2).unwrap_or_default();
            let value = match is {
                BytesMap => STANDARD.encode(value).into(),
                _ => text(value)?,
            };
            let map = object.entry(name).or_insert_with(|| json!({}));
            map.as_object_mut()?.insert(key, value);
            return Some(());
        }
        _ => return None,
    };
    object.insert(name.to_owned(), value);
    Some(())
}

fn push(object: &mut Map<String, Value>, name: &str, value: Value) -> Option<()> {
    let list = object.entry(name).or_insert_with(|| json!([]));
    list.as_array_mut()?.push(value);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A field with bytes, which must be fewer than 128.
    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        [&[number << 3 | 2, u8::try_from(bytes.len()).unwrap()], bytes].concat()
    }

    fn object(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
        let typed = [field(1, api_version.as_bytes()), field(2, kind.as_bytes())].concat();
        [
            b"k8s\0".to_vec(),
            field(1, &typed),
            field(2, raw),
            field(3, b""),
            field(4, b""),
        ]
        .concat()
    }

    fn of(body: &[u8]) -> Value {
        serde_json::from_slice(&json(body).unwrap()).unwrap()
    }

    #[test]
    fn reads_what_kubectl_sends() {
        // As `kubectl create secret` writes it: empty strings and times, too.
        let metadata = [
            field(1, b"one"),
            field(2, b""),
            field(3, b""),
            vec![7 << 3, 0],
            field(8, b""),
        ]
        .concat();
        let raw = [
            field(1, &metadata),
            field(2, &[field(1, b"word"), field(2, b"sesame")].concat()),
            field(3, b""),
            vec![5 << 3, 0],
            field(15, b"of a newer version"),
        ];
        assert_eq!(
            of(&object("v1", "Secret", &raw.concat())),
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "one"}, "data": {"word": "c2VzYW1l"}, "immutable": false})
        );
        let spec = [field(1, b"a"), field(1, b"b"), vec![4 << 3, 0x90, 0x1c]].concat();
        assert_eq!(
            of(&object(
                "authentication.k8s.io/v1",
                "TokenRequest",
                &field(2, &spec)
            )),
            json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
                "spec": {"audiences": ["a", "b"], "expirationSeconds": 3600}})
        );
        let port = [
            vec![3 << 3, 80],
            field(4, &[vec![1 << 3, 1], field(3, b"web")].concat()),
        ]
        .concat();
        assert_eq!(
            of(&object("v1", "Service", &field(2, &field(1, &port)))),
            json!({"apiVersion": "v1", "kind": "Service", "spec": {"ports": [{"port": 80, "targetPort": "web"}]}})
        );
        let metadata = field(8, &[1 << 3, 60]);
        assert_eq!(
            of(&object("v1", "Namespace", &field(1, &metadata)))["metadata"]["creationTimestamp"],
            "1970-01-01T00:01:00Z"
        );
    }

    #[test]
    fn refuses_what_it_cannot_read() {
        let error = json(&object("v1", "Pod", b"")).unwrap_err();
        assert_eq!(error.code, 415);
        let whole = object("v1", "ConfigMap", &field(1, &field(1, b"one")));
        assert_eq!(json(b"{}").unwrap_err().code, 400);
        // No piece of a body panics.
        for end in 0..whole.len() {
            let _ = json(&whole[..end]);
            let mut flipped = whole.clone();
            flipped[end] ^= 0xff;
            let _ = json(&flipped);
        }
        assert_eq!(
            json(&object("v1", "ConfigMap", &[1 << 3, 1])).unwrap_err().code,
            400
        );
    }
}
