//! The metrics of claims. Without a recorder they cost nothing.

use std::collections::BTreeMap;
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

/// `dra_resource_claims_in_use`, by driver.
pub(super) fn set_in_use(counts: &BTreeMap<String, usize>) {
    for (driver, count) in counts {
        gauge!("dra_resource_claims_in_use", "driver_name" => driver.clone()).set(*count as f64);
    }
}
