//! Probes with the API server's defaults: period 10 s, timeout 1 s, three failures. Change fields for other values:
//!
//! ```
//! use k8s_openapi::api::core::v1::Probe;
//! use kubelet_testing::probe;
//!
//! let patient = Probe { failure_threshold: Some(30), ..probe::exec(["true"]) };
//! assert_eq!(patient.period_seconds, Some(10));
//! ```

use k8s_openapi::api::core::v1::{ExecAction, GRPCAction, HTTPGetAction, Probe, TCPSocketAction};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// `httpGet`
pub fn http_get(path: impl Into<String>, port: u16) -> Probe {
    let action = HTTPGetAction {
        path: Some(path.into()),
        port: IntOrString::Int(port.into()),
        scheme: Some("HTTP".to_owned()),
        ..HTTPGetAction::default()
    };
    Probe {
        http_get: Some(action),
        ..defaults()
    }
}

/// `tcpSocket`
pub fn tcp_socket(port: u16) -> Probe {
    let action = TCPSocketAction {
        port: IntOrString::Int(port.into()),
        ..TCPSocketAction::default()
    };
    Probe {
        tcp_socket: Some(action),
        ..defaults()
    }
}

/// `exec`
pub fn exec<S: Into<String>>(command: impl IntoIterator<Item = S>) -> Probe {
    let command = Some(command.into_iter().map(Into::into).collect());
    Probe {
        exec: Some(ExecAction { command }),
        ..defaults()
    }
}

/// `grpc`
pub fn grpc(port: u16) -> Probe {
    let action = GRPCAction {
        port: port.into(),
        service: Some(String::new()),
    };
    Probe {
        grpc: Some(action),
        ..defaults()
    }
}

fn defaults() -> Probe {
    Probe {
        timeout_seconds: Some(1),
        period_seconds: Some(10),
        success_threshold: Some(1),
        failure_threshold: Some(3),
        ..Probe::default()
    }
}
