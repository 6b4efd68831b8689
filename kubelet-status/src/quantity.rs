//! Sums of [`Quantity`]s in the API's format.
//!
//! Precise to a thousandth: the API server accepts no finer CPU or memory.

use std::cmp::Ordering;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubelet_core::quantity::{Amount, Format};

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

/// The quantity in the API server's format; unchanged if it cannot be parsed (`Quantity.MarshalJSON`).
pub(crate) fn canonical(quantity: &Quantity) -> Quantity {
    match Amount::try_from(quantity) {
        Ok(amount) => Quantity(amount.write(Format::of(quantity))),
        Err(_) => quantity.clone(),
    }
}

/// The sum in canonical form: a whole number with the largest suffix of the format of `left`, or of `right` if `left`
/// is zero (`Quantity.Add`).
pub(crate) fn add(left: &Quantity, right: &Quantity) -> Quantity {
    let format = Format::of(if amount(left).is_zero() { right } else { left });
    Quantity((amount(left) + amount(right)).round_up_to_milli().write(format))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_read_stays_as_it_is() {
        for (written, canonical_form) in [
            ("0.5", "500m"),
            ("2048Mi", "2Gi"),
            ("1000m", "1"),
            ("much", "much"),
        ] {
            assert_eq!(canonical(&Quantity(written.to_owned())).0, canonical_form);
        }
    }

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
