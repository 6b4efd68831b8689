//! Resolves ports by number or name (`probe.ResolveContainerPort`).

use k8s_openapi::api::core::v1::Container;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// The port, or the kubelet's error.
pub(crate) fn resolve_container_port(port: &IntOrString, container: &Container) -> Result<u16, String> {
    let number = match port {
        IntOrString::Int(number) => *number,
        IntOrString::String(name) => {
            let mut ports = container.ports.iter().flatten();
            match ports.find(|port| port.name.as_deref() == Some(name)) {
                Some(port) => port.container_port,
                None => name
                    .parse()
                    .map_err(|_| format!("strconv.Atoi: parsing {name:?}: invalid syntax"))?,
            }
        }
    };
    u16::try_from(number)
        .ok()
        .filter(|port| *port > 0)
        .ok_or_else(|| format!("invalid port number: {number}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn ports_by_number_name_and_number_in_text() {
        let container = json!({"name": "c", "ports": [
            {"name": "foo", "containerPort": 8080}, {"name": "bar", "containerPort": 9000}, {"containerPort": 1}]});
        let container: Container = serde_json::from_value(container).unwrap();
        let table = [
            (IntOrString::Int(443), Ok(443)),
            (IntOrString::Int(65535), Ok(65535)),
            (IntOrString::Int(66666), Err("invalid port number: 66666")),
            (IntOrString::Int(0), Err("invalid port number: 0")),
            (IntOrString::Int(-1), Err("invalid port number: -1")),
            (IntOrString::String("foo".into()), Ok(8080)),
            (IntOrString::String("bar".into()), Ok(9000)),
            (IntOrString::String("80".into()), Ok(80)),
            (
                IntOrString::String("qux".into()),
                Err("strconv.Atoi: parsing \"qux\": invalid syntax"),
            ),
            (
                IntOrString::String("70000".into()),
                Err("invalid port number: 70000"),
            ),
        ];
        for (port, expected) in table {
            let resolved = resolve_container_port(&port, &container);
            assert_eq!(resolved, expected.map_err(str::to_owned), "{port:?}");
        }
    }
}
