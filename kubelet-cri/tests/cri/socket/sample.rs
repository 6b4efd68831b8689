//! Messages with every field set, made from the descriptors of the proto.

use std::path::Path;
use std::sync::LazyLock;

use protox::prost_reflect::{
    DescriptorPool, DynamicMessage, FieldDescriptor, Kind, MapKey, MessageDescriptor, Value,
};

pub(crate) static POOL: LazyLock<DescriptorPool> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("proto");
    let files = protox::compile(["runtime/v1/api.proto"], [folder]).unwrap();
    DescriptorPool::from_file_descriptor_set(files).unwrap()
});

/// The encoded message `name`, with a different value in each field.
pub(crate) fn sample(name: &str) -> Vec<u8> {
    let descriptor = POOL.get_message_by_name(&format!("runtime.v1.{name}")).unwrap();
    // Large enough for a timeout to be longer than the client's default.
    let mut next = 1000;
    use protox::prost_reflect::prost::Message;
    message(&descriptor, &mut next).encode_to_vec()
}

fn message(descriptor: &MessageDescriptor, next: &mut u32) -> DynamicMessage {
    let mut message = DynamicMessage::new(descriptor.clone());
    for field in descriptor.fields() {
        let value = value(&field, next);
        message.set_field(&field, value);
    }
    message
}

fn value(field: &FieldDescriptor, next: &mut u32) -> Value {
    if field.is_map() {
        *next += 1;
        return Value::Map(
            [(
                MapKey::String(format!("key-{next}")),
                Value::String(format!("value-{next}")),
            )]
            .into(),
        );
    }
    let one = single(field, next);
    if field.is_list() {
        Value::List(vec![one, single(field, next)])
    } else {
        one
    }
}

fn single(field: &FieldDescriptor, next: &mut u32) -> Value {
    *next += 1;
    match field.kind() {
        Kind::Bool => Value::Bool(true),
        Kind::Int32 => Value::I32(*next as i32),
        Kind::Int64 => Value::I64(i64::from(*next)),
        Kind::Uint32 => Value::U32(*next),
        Kind::Uint64 => Value::U64(u64::from(*next)),
        Kind::Double => Value::F64(f64::from(*next) / 2.0),
        Kind::String => Value::String(format!("{}-{next}", field.name())),
        Kind::Bytes => Value::Bytes(format!("{}-{next}", field.name()).into_bytes().into()),
        Kind::Enum(kind) => Value::EnumNumber(kind.values().map(|value| value.number()).max().unwrap()),
        Kind::Message(kind) => Value::Message(message(&kind, next)),
        other => panic!("{}: the protocol has no {other:?}", field.full_name()),
    }
}
