//! Values as Go's JSON encoder writes them.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};

/// Whether `value` is one that `omitempty` leaves out.
pub(super) fn is_zero<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// A map that is unset where it may not be left out.
pub(super) fn null_if_empty<T: Serialize, S: Serializer>(
    map: &BTreeMap<String, T>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    if map.is_empty() {
        serializer.serialize_none()
    } else {
        map.serialize(serializer)
    }
}

/// Numbers without a point where there is no fraction.
pub(super) mod go_float {
    use serde::Serializer;

    /// What a float holds exactly.
    const EXACT: f64 = 9_007_199_254_740_992.0;

    #[expect(clippy::ref_option, reason = "what serde calls")]
    pub(crate) fn serialize_option<S: Serializer>(
        value: &Option<f64>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match *value {
            None => serializer.serialize_none(),
            #[expect(clippy::cast_possible_truncation, reason = "whole and within bounds")]
            Some(value) if value.fract() == 0.0 && value.abs() < EXACT => {
                serializer.serialize_i64(value as i64)
            }
            Some(value) => serializer.serialize_f64(value),
        }
    }
}
