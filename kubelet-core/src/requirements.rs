//! Whether two resource requirements ask for the same.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ResourceClaim, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::quantity::Amount;

/// Compares as `apiequality.Semantic` does: absent equals empty, and quantities are compared by their amount, not as text.
pub(crate) fn same_requirements(a: Option<&ResourceRequirements>, b: Option<&ResourceRequirements>) -> bool {
    fn claims(of: Option<&ResourceRequirements>) -> &[ResourceClaim] {
        of.and_then(|of| of.claims.as_deref()).unwrap_or_default()
    }
    fn requests(of: Option<&ResourceRequirements>) -> Option<&List> {
        of.and_then(|of| of.requests.as_ref())
    }
    fn limits(of: Option<&ResourceRequirements>) -> Option<&List> {
        of.and_then(|of| of.limits.as_ref())
    }
    same_lists(requests(a), requests(b)) && same_lists(limits(a), limits(b)) && claims(a) == claims(b)
}

type List = BTreeMap<String, Quantity>;

fn same_lists(a: Option<&List>, b: Option<&List>) -> bool {
    let len = |list: Option<&List>| list.map_or(0, BTreeMap::len);
    let (pairs_of_a, pairs_of_b) = (a.into_iter().flatten(), b.into_iter().flatten());
    len(a) == len(b)
        && pairs_of_a
            .zip(pairs_of_b)
            .all(|((name, quantity), (other, of_other))| name == other && same_quantity(quantity, of_other))
}

fn same_quantity(a: &Quantity, b: &Quantity) -> bool {
    a == b
        || match (Amount::try_from(a), Amount::try_from(b)) {
            (Ok(a), Ok(b)) => a == b,
            _ => false,
        }
}
