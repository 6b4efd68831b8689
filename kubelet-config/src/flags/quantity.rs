//! Quantities, in the API's canonical form.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubelet_core::quantity::{Amount, Format};

pub(super) fn parse(text: &str) -> Result<Quantity, String> {
    let written = Quantity(text.to_owned());
    let amount = Amount::try_from(&written).map_err(|error| error.to_string())?;
    Ok(Quantity(amount.write(Format::of(&written))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_canonical() {
        for (text, expected) in [
            ("1024Mi", Some("1Gi")),
            ("0.5", Some("500m")),
            ("1000", Some("1k")),
            (" 1", None),
            ("", None),
            ("x", None),
        ] {
            assert_eq!(
                parse(text).ok().map(|quantity| quantity.0).as_deref(),
                expected,
                "{text:?}"
            );
        }
    }
}
