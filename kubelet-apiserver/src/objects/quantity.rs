//! Quantities: the amount, and the kind of suffix.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::apimachinery::pkg::api::resource;
use kubelet_core::quantity::{Amount, Format};
use serde_json::{Value, json};

use super::value::Fields;

/// An amount that is written in the format in which it was read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Quantity {
    pub(super) amount: Amount,
    format: Format,
}

/// A list of resources: `cpu`, `memory`…
pub(super) type Amounts = BTreeMap<String, Quantity>;

impl Quantity {
    /// Reads a string or a number.
    pub(super) fn of(value: &Value) -> Option<Self> {
        match value {
            Value::String(text) => Self::parse(text),
            Value::Number(number) => Self::parse(&number.to_string()),
            _ => None,
        }
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        let quantity = resource::Quantity(text.to_owned());
        let amount = Amount::try_from(&quantity).ok()?;
        Some(Self {
            amount,
            format: Format::of(&quantity),
        })
    }

    /// Rounded up to thousandths, as the API rounds the amounts of resources.
    pub(super) fn round_up_to_milli(self) -> Self {
        Self {
            amount: self.amount.round_up_to_milli(),
            ..self
        }
    }
}

/// Zero takes on the format of the amount that is added to it.
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

/// The valid quantities of a list.
pub(super) fn amounts(resources: &Value, list: &str) -> Amounts {
    resources
        .entries(list)
        .filter_map(|(resource, amount)| Some((resource.clone(), Quantity::of(amount)?)))
        .collect()
}

/// The list as the API writes it.
pub(super) fn to_value(amounts: &Amounts) -> Value {
    amounts
        .iter()
        .map(|(resource, amount)| (resource.clone(), json!(amount.to_string())))
        .collect()
}

/// The sum of the containers of a pod in `requests` or `limits`: either the regular containers and the sidecars
/// together, or an init container and the sidecars before it, whichever is more (`AggregateContainerRequests`).
pub(super) fn of_containers(spec: &Value, list: &str) -> Amounts {
    let mut total = Amounts::new();
    for container in spec.list("containers") {
        add(&mut total, &amounts(&container["resources"], list));
    }
    let (mut sidecars, mut starting) = (Amounts::new(), Amounts::new());
    for container in spec.list("initContainers") {
        let mut needed = amounts(&container["resources"], list);
        if container.text("restartPolicy") == "Always" {
            add(&mut total, &needed);
            add(&mut sidecars, &needed);
            needed = sidecars.clone();
        } else {
            add(&mut needed, &sidecars);
        }
        raise(&mut starting, &needed);
    }
    raise(&mut total, &starting);
    total
}

fn add(total: &mut Amounts, more: &Amounts) {
    for (resource, amount) in more {
        let sum = total.get(resource).map_or(*amount, |sum| *sum + *amount);
        total.insert(resource.clone(), sum);
    }
}

/// Raises each amount to the other's, if that is more.
fn raise(amounts: &mut Amounts, others: &Amounts) {
    for (resource, other) in others {
        let amount = amounts.entry(resource.clone()).or_insert(*other);
        if other.amount > amount.amount {
            *amount = *other;
        }
    }
}
