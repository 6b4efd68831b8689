//! The host ports of pods.

use k8s_openapi::api::core::v1::Pod;

use crate::restart_rules::is_restartable_init_container;

/// A host port: address, protocol, number (`HostPortInfo`).
type HostPort<'a> = (&'a str, &'a str, i32);

/// `DefaultBindAllHostIP`
const ALL_ADDRESSES: &str = "0.0.0.0";

/// Whether the pod's host ports are free (`nodeports.Fits`).
pub(super) fn are_free<'a>(pod: &'a Pod, others: impl Iterator<Item = &'a Pod>) -> bool {
    let wanted: Vec<HostPort<'_>> = host_ports(pod).collect();
    if wanted.is_empty() {
        return true;
    }
    let mut used = others.flat_map(host_ports);
    !used.any(|used| wanted.iter().any(|wanted| conflict(*wanted, used)))
}

fn conflict(a: HostPort<'_>, b: HostPort<'_>) -> bool {
    let same_address = a.0 == b.0 || a.0 == ALL_ADDRESSES || b.0 == ALL_ADDRESSES;
    same_address && a.1 == b.1 && a.2 == b.2
}

/// Host ports of regular containers and sidecars, which run as long as the pod.
fn host_ports(pod: &Pod) -> impl Iterator<Item = HostPort<'_>> {
    let spec = pod.spec.iter();
    let containers = spec.flat_map(|spec| {
        let sidecars = spec.init_containers.iter().flatten();
        let sidecars = sidecars.filter(|container| is_restartable_init_container(container));
        spec.containers.iter().chain(sidecars)
    });
    let ports = containers.flat_map(|container| container.ports.iter().flatten());
    ports.filter_map(|port| {
        let number = port.host_port.filter(|number| *number > 0)?;
        let address = port
            .host_ip
            .as_deref()
            .filter(|ip| !ip.is_empty())
            .unwrap_or(ALL_ADDRESSES);
        let protocol = port
            .protocol
            .as_deref()
            .filter(|name| !name.is_empty())
            .unwrap_or("TCP");
        Some((address, protocol, number))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(ip: &str, protocol: &str, port: i32) -> Pod {
        let port = json!({"containerPort": 1, "hostIP": ip, "protocol": protocol, "hostPort": port});
        serde_json::from_value(json!({"spec": {"containers": [{"name": "c", "ports": [port]}]}})).unwrap()
    }

    #[test]
    fn a_port_is_free_unless_address_protocol_and_number_meet() {
        let cases = [
            (("", "", 80), ("", "TCP", 80), false),
            (("", "TCP", 80), ("", "UDP", 80), true),
            (("", "TCP", 80), ("", "TCP", 81), true),
            (("10.0.0.1", "TCP", 80), ("0.0.0.0", "TCP", 80), false),
            (("0.0.0.0", "TCP", 80), ("10.0.0.1", "TCP", 80), false),
            (("10.0.0.1", "TCP", 80), ("10.0.0.2", "TCP", 80), true),
            (("", "TCP", 0), ("", "TCP", 0), true),
        ];
        for (a, b, free) in cases {
            let (a, b) = (pod(a.0, a.1, a.2), pod(b.0, b.1, b.2));
            assert_eq!(are_free(&a, [&b].into_iter()), free, "{a:?} {b:?}");
        }
    }

    #[test]
    fn the_ports_of_sidecars_count_and_those_of_init_containers_do_not() {
        let with_init = |policy: Option<&str>| -> Pod {
            let mut init = json!({"name": "i", "ports": [{"containerPort": 1, "hostPort": 80}]});
            if let Some(policy) = policy {
                init["restartPolicy"] = policy.into();
            }
            serde_json::from_value(json!({"spec": {"containers": [], "initContainers": [init]}})).unwrap()
        };
        let wants = pod("", "TCP", 80);
        assert!(!are_free(&wants, [&with_init(Some("Always"))].into_iter()));
        assert!(are_free(&wants, [&with_init(None)].into_iter()));
    }
}
