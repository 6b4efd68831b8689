//! Quantities of a manifest: how much, and the kind of suffix it was written with.

use std::fmt;

use k8s_openapi::apimachinery::pkg::api::resource;
use kubelet_core::quantity::{Amount, Format};

/// An amount that is written as it was read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Quantity {
    pub(super) amount: Amount,
    format: Format,
}

impl Quantity {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let quantity = resource::Quantity(text.trim().to_owned());
        let amount = Amount::try_from(&quantity).ok()?;
        Some(Self {
            amount,
            format: Format::of(&quantity),
        })
    }

    /// Rounded up to thousandths, as the amounts of resources are.
    pub(super) fn round_up_to_milli(self) -> Self {
        Self {
            amount: self.amount.round_up_to_milli(),
            ..self
        }
    }
}

/// Nothing takes on the format of what is added to it.
impl std::ops::Add for Quantity {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        let format = if self.amount.is_zero() {
            other.format
        } else {
            self.format
        };
        Self {
            amount: self.amount + other.amount,
            format,
        }
    }
}

/// The canonical form.
impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.amount.write(self.format))
    }
}
