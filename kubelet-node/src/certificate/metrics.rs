//! The kubelet's certificate metrics.

use metrics::{counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};

use super::signing_request::Signer;

const CLIENT_TTL: &str = "kubelet_certificate_manager_client_ttl_seconds";
const SERVER_TTL: &str = "kubelet_certificate_manager_server_ttl_seconds";
const CLIENT_RENEW_ERRORS: &str = "kubelet_certificate_manager_client_expiration_renew_errors";
const SERVER_RENEW_ERRORS: &str = "kubelet_server_expiration_renew_errors";
const SERVER_ROTATION: &str = "kubelet_certificate_manager_server_rotation_seconds";

pub(super) fn describe() {
    describe_gauge!(
        CLIENT_TTL,
        "Seconds until the client certificate expires, +Inf without a valid one"
    );
    describe_gauge!(
        SERVER_TTL,
        "Seconds until the serving certificate expires, +Inf without a valid one"
    );
    describe_counter!(
        CLIENT_RENEW_ERRORS,
        "Failed attempts to renew the client certificate"
    );
    describe_counter!(
        SERVER_RENEW_ERRORS,
        "Failed attempts to renew the serving certificate"
    );
    describe_histogram!(
        SERVER_ROTATION,
        "Age in seconds of serving certificates at their replacement"
    );
}

pub(super) fn ttl(signer: Signer, seconds: f64) {
    match signer {
        Signer::Client => gauge!(CLIENT_TTL).set(seconds),
        Signer::Serving => gauge!(SERVER_TTL).set(seconds),
    }
}

pub(super) fn renew_error(signer: Signer) {
    match signer {
        Signer::Client => counter!(CLIENT_RENEW_ERRORS).increment(1),
        Signer::Serving => counter!(SERVER_RENEW_ERRORS).increment(1),
    }
}

/// The kubelet has this metric for serving certificates only.
pub(super) fn rotated(signer: Signer, age_seconds: f64) {
    if signer == Signer::Serving {
        histogram!(SERVER_ROTATION).record(age_seconds);
    }
}
