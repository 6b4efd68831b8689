//! The metrics of claims. Without a recorder they cost nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ::metrics::{gauge, histogram};

/// Stands for all drivers (`DRAResourceClaimsInUseAnyDriver`).
pub(super) const ANY_DRIVER: &str = "<any>";

/// `dra_operations_duration_seconds`
pub(super) fn observe_operation(operation: &'static str, failed: bool, took: Duration) {
    let is_error = if failed { "true" } else { "false" };
    histogram!(
        "dra_operations_duration_seconds",
        "operation_name" => operation, "is_error" => is_error
    )
    .record(took.as_secs_f64());
}

/// `dra_grpc_operations_duration_seconds`
pub(super) fn observe_call(driver: &str, method: String, code: &'static str, took: Duration) {
    histogram!(
        "dra_grpc_operations_duration_seconds",
        "driver_name" => driver.to_owned(), "method_name" => method, "grpc_status_code" => code
    )
    .record(took.as_secs_f64());
}

/// `dra_resource_claims_in_use`, by driver. `shown`: the drivers that the metric shows so far.
pub(super) fn set_in_use(counts: &BTreeMap<String, usize>, shown: &BTreeSet<String>) {
    for (driver, value) in in_use(counts, shown) {
        gauge!("dra_resource_claims_in_use", "driver_name" => driver.clone()).set(value);
    }
}

/// The facade cannot remove the series of a driver that has no claim any more: it is NaN, and `kubelet-server` does not show it.
fn in_use<'a>(
    counts: &'a BTreeMap<String, usize>,
    shown: &'a BTreeSet<String>,
) -> impl Iterator<Item = (&'a String, f64)> {
    let gone = shown.iter().filter(|driver| !counts.contains_key(*driver));
    let counts = counts.iter().map(|(driver, count)| (driver, *count as f64));
    counts.chain(gone.map(|driver| (driver, f64::NAN)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_whose_last_claim_is_gone_is_not_a_number() {
        let counts = BTreeMap::from([("<any>".to_owned(), 2), ("gpu".to_owned(), 2)]);
        let shown = BTreeSet::from(["<any>".to_owned(), "nic".to_owned()]);
        let in_use: Vec<_> = in_use(&counts, &shown)
            .map(|(driver, value)| format!("{driver} {value}"))
            .collect();
        assert_eq!(in_use, ["<any> 2", "gpu 2", "nic NaN"]);
    }
}
