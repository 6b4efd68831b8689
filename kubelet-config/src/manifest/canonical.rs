//! A document brought to the form in which the API writes it, so that two ways to write one thing give one
//! pod: zero values left out, quantities in canonical form, whole numbers without a point.

use serde_json::{Map, Value};

use super::quantity::Quantity;
use crate::{Error, Result};

/// Fields that are maps of strings, where an empty value says something.
const STRING_MAPS: [&str; 7] = [
    "labels",
    "annotations",
    "nodeSelector",
    "matchLabels",
    "labelSelector",
    "options",
    "volumeAttributes",
];
/// Fields that are maps of quantities.
const RESOURCE_LISTS: [&str; 3] = ["limits", "requests", "overhead"];
/// Fields that are quantities.
const QUANTITIES: [&str; 2] = ["sizeLimit", "divisor"];
/// Booleans whose `false` the API does not write.
const PLAIN_BOOLEANS: [&str; 7] = [
    "hostNetwork",
    "hostPID",
    "hostIPC",
    "stdin",
    "stdinOnce",
    "tty",
    "readOnly",
];
/// Numbers whose 0 the API does not write.
const PLAIN_NUMBERS: [&str; 6] = [
    "hostPort",
    "initialDelaySeconds",
    "timeoutSeconds",
    "periodSeconds",
    "successThreshold",
    "failureThreshold",
];
/// Strings whose emptiness the API does write.
const OPTIONAL_STRINGS: [&str; 4] = ["type", "storageClassName", "runtimeClassName", "restartPolicy"];

/// Brings the document to its canonical form.
pub(super) fn canonicalize(value: &mut Value) -> Result<()> {
    match value {
        Value::Object(fields) => canonicalize_fields(fields),
        Value::Array(items) => items.iter_mut().try_for_each(canonicalize),
        Value::Number(number) => {
            if let Some(whole) = whole(number) {
                *value = whole;
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

fn canonicalize_fields(fields: &mut Map<String, Value>) -> Result<()> {
    for (key, value) in fields.iter_mut() {
        let key = key.as_str();
        match value {
            Value::Object(strings) if STRING_MAPS.contains(&key) => {
                for string in strings.values_mut().filter(|string| string.is_null()) {
                    *string = Value::String(String::new());
                }
            }
            Value::Object(amounts) if RESOURCE_LISTS.contains(&key) => {
                for (resource, amount) in amounts.iter_mut() {
                    *amount = quantity(resource, amount, Quantity::round_up_to_milli)?;
                }
            }
            amount if QUANTITIES.contains(&key) && !amount.is_null() => {
                *amount = quantity(key, amount, |quantity| quantity)?;
            }
            value => canonicalize(value)?,
        }
    }
    fields.retain(|key, value| !is_zero(key, value));
    Ok(())
}

fn is_zero(key: &str, value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value && PLAIN_BOOLEANS.contains(&key),
        Value::Number(value) => value.as_i64() == Some(0) && PLAIN_NUMBERS.contains(&key),
        Value::String(value) => value.is_empty() && !OPTIONAL_STRINGS.contains(&key),
        Value::Array(value) => value.is_empty(),
        Value::Object(value) => {
            value.is_empty()
                && (STRING_MAPS.contains(&key) && key != "labelSelector" || RESOURCE_LISTS.contains(&key))
        }
    }
}

fn quantity(field: &str, amount: &Value, round: impl FnOnce(Quantity) -> Quantity) -> Result<Value> {
    let text = match amount {
        Value::Null => "0".to_owned(),
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        other => other.to_string(),
    };
    match Quantity::parse(&text) {
        Some(quantity) => Ok(Value::String(round(quantity).to_string())),
        None => Err(Error::Parse {
            message: format!("{field}: {text:?} is not a quantity"),
        }),
    }
}

/// A number with a point but no fraction, as the whole number it is.
fn whole(number: &serde_json::Number) -> Option<Value> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let float = number.as_f64().filter(|_| number.is_f64())?;
    #[expect(clippy::cast_possible_truncation, reason = "whole and within bounds")]
    (float.fract() == 0.0 && float.abs() < EXACT).then(|| Value::from(float as i64))
}
