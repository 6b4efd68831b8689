//! Probes and lifecycle hooks.

use k8s_openapi::api::core::v1::{
    Container, ExecAction, GRPCAction, HTTPGetAction, LifecycleHandler, PodSpec, Probe, SleepAction,
    TCPSocketAction,
};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::{Field, Problems, names, os};

/// Probes and hooks of a container that may have them.
pub(super) fn validate(container: &Container, spec: &PodSpec, field: &Field, problems: &mut Problems) {
    let grace = spec.termination_grace_period_seconds;
    if let Some(lifecycle) = &container.lifecycle {
        let field = field.child("lifecycle");
        for (name, hook) in [
            ("postStart", &lifecycle.post_start),
            ("preStop", &lifecycle.pre_stop),
        ] {
            if let Some(hook) = hook {
                Handler::of_hook(hook).validate(grace, &field.child(name), problems);
            }
        }
        if let Some(signal) = &lifecycle.stop_signal {
            os::validate_stop_signal(signal, spec, &field.child("stopSignal"), problems);
        }
    }
    for (name, probe) in [
        ("livenessProbe", &container.liveness_probe),
        ("readinessProbe", &container.readiness_probe),
        ("startupProbe", &container.startup_probe),
    ] {
        if let Some(probe) = probe {
            validate_probe(name, probe, grace, &field.child(name), problems);
        }
    }
}

fn validate_probe(name: &str, probe: &Probe, grace: Option<i64>, field: &Field, problems: &mut Problems) {
    Handler::of_probe(probe).validate(grace, field, problems);
    for (name, value) in [
        ("initialDelaySeconds", probe.initial_delay_seconds),
        ("timeoutSeconds", probe.timeout_seconds),
        ("periodSeconds", probe.period_seconds),
        ("successThreshold", probe.success_threshold),
        ("failureThreshold", probe.failure_threshold),
    ] {
        if let Some(value) = value.filter(|value| *value < 0) {
            problems.invalid(&field.child(name), value, "must be greater than or equal to 0");
        }
    }
    let readiness = name == "readinessProbe";
    if let Some(seconds) = probe.termination_grace_period_seconds {
        let field = field.child("terminationGracePeriodSeconds");
        if seconds <= 0 {
            problems.invalid(&field, seconds, "must be greater than 0");
        }
        if readiness {
            problems.invalid(&field, seconds, "must not be set for readinessProbes");
        }
    }
    if let Some(times) = probe.success_threshold.filter(|times| !readiness && *times != 1) {
        problems.invalid(&field.child("successThreshold"), times, "must be 1");
    }
}

/// What a probe or a hook does.
struct Handler<'a> {
    exec: Option<&'a ExecAction>,
    http_get: Option<&'a HTTPGetAction>,
    tcp_socket: Option<&'a TCPSocketAction>,
    grpc: Option<&'a GRPCAction>,
    sleep: Option<&'a SleepAction>,
}

impl<'a> Handler<'a> {
    fn of_probe(probe: &'a Probe) -> Self {
        Self {
            exec: probe.exec.as_ref(),
            http_get: probe.http_get.as_ref(),
            tcp_socket: probe.tcp_socket.as_ref(),
            grpc: probe.grpc.as_ref(),
            sleep: None,
        }
    }

    fn of_hook(hook: &'a LifecycleHandler) -> Self {
        Self {
            exec: hook.exec.as_ref(),
            http_get: hook.http_get.as_ref(),
            tcp_socket: hook.tcp_socket.as_ref(),
            grpc: None,
            sleep: hook.sleep.as_ref(),
        }
    }

    /// The first one is validated; there must be no other.
    fn validate(&self, grace: Option<i64>, field: &Field, problems: &mut Problems) {
        let mut first = true;
        let mut is_first = |set: bool, name: &str, problems: &mut Problems| {
            if set && !first {
                problems.forbidden(&field.child(name), "may not specify more than 1 handler type");
            }
            set && std::mem::take(&mut first)
        };
        if let Some(exec) = self.exec.filter(|_| is_first(true, "exec", problems))
            && exec.command.as_ref().is_none_or(Vec::is_empty)
        {
            problems.required(&field.child("exec").child("command"), "");
        }
        if let Some(get) = self.http_get.filter(|_| is_first(true, "httpGet", problems)) {
            validate_http_get(get, &field.child("httpGet"), problems);
        }
        if let Some(tcp) = self.tcp_socket.filter(|_| is_first(true, "tcpSocket", problems)) {
            validate_port(&tcp.port, &field.child("tcpSocket").child("port"), problems);
        }
        if let Some(grpc) = self.grpc.filter(|_| is_first(true, "grpc", problems)) {
            problems.unless_within(&field.child("grpc").child("port"), grpc.port.into(), 1, 65535);
        }
        if let Some(sleep) = self.sleep.filter(|_| is_first(true, "sleep", problems)) {
            let most = grace.unwrap_or(i64::MAX);
            if sleep.seconds < 0 || sleep.seconds > most {
                let why =
                    format!("must be non-negative and less than terminationGracePeriodSeconds ({most})");
                problems.invalid(&field.child("sleep"), sleep.seconds, &why);
            }
        }
        if first {
            problems.required(field, "must specify a handler type");
        }
    }
}

fn validate_http_get(get: &HTTPGetAction, field: &Field, problems: &mut Problems) {
    validate_port(&get.port, &field.child("port"), problems);
    let scheme = get.scheme.as_deref().unwrap_or_default();
    problems.unless_one_of(&field.child("scheme"), scheme, &["HTTP", "HTTPS"]);
    for header in get.http_headers.iter().flatten() {
        problems.unless_formed(&field.child("httpHeaders"), &header.name, names::http_header_name);
    }
}

fn validate_port(port: &IntOrString, field: &Field, problems: &mut Problems) {
    match port {
        IntOrString::Int(number) => problems.unless_within(field, (*number).into(), 1, 65535),
        IntOrString::String(name) => problems.unless_formed(field, name, names::port_name),
    }
}
