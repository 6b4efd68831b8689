//! Sums of [`Quantity`]s in the API's format.
//!
//! Precise to a thousandth: the API server accepts no finer CPU or memory.

use std::cmp::Ordering;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubelet_core::quantity::{Amount, Format, WrittenAmount};

/// The amount; zero if it cannot be parsed.
fn amount(quantity: &Quantity) -> Amount {
    Amount::try_from(quantity).unwrap_or_default()
}

/// The value in thousandths, rounded up (`Quantity.MilliValue`); 0 if it cannot be parsed.
pub(crate) fn milli_value(quantity: &Quantity) -> i64 {
    amount(quantity).milli_value()
}

/// Whether it is greater than zero.
pub(crate) fn is_positive(quantity: &Quantity) -> bool {
    amount(quantity).is_positive()
}

/// Compares two amounts, whatever their format.
pub(crate) fn compare(left: &Quantity, right: &Quantity) -> Ordering {
    amount(left).cmp(&amount(right))
}

/// The sum in canonical form: a whole number with the largest suffix of the format of `left`, or of `right` if `left`
/// is zero (`Quantity.Add`).
pub(crate) fn add(left: &Quantity, right: &Quantity) -> Quantity {
    let [left, right] = [left, right].map(|quantity| WrittenAmount {
        amount: amount(quantity),
        format: Format::of(quantity),
    });
    (left + right).round_up_to_milli().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_canonical_and_keep_the_format_of_the_first() {
        for (left, right, sum) in [
            ("100m", "200m", "300m"),
            ("500m", "1500m", "2"),
            ("64Mi", "64Mi", "128Mi"),
            ("512Mi", "512Mi", "1Gi"),
            ("1Gi", "1M", "1074741824"),
            ("1M", "1Mi", "2048576"),
            ("0", "5Mi", "5Mi"),
            ("1e3", "1", "1001"),
            ("1e3", "1e3", "2e3"),
            ("0.5", "0.25", "750m"),
            ("1.5Gi", "0", "1536Mi"),
            ("512", "0", "512"),
            ("0", "0", "0"),
        ] {
            let q = |text: &str| Quantity(text.to_owned());
            assert_eq!(add(&q(left), &q(right)).0, sum, "{left} + {right}");
        }
    }
}
