//! The metrics of device plugins. Without a recorder they cost nothing.

use std::time::Duration;

use ::metrics::{counter, histogram};

pub(super) fn count_device_registration(resource: &str) {
    counter!("kubelet_device_plugin_registration_total", "resource_name" => resource.to_owned()).increment(1);
}

pub(super) fn record_device_allocation(resource: &str, took: Duration) {
    histogram!("kubelet_device_plugin_alloc_duration_seconds", "resource_name" => resource.to_owned())
        .record(took.as_secs_f64());
}
