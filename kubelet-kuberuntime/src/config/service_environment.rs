//! The environment variables of services (`getServiceEnvVarMap`, `envvars.FromServices`).

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, Service, ServiceSpec};
use kubelet_core::{PodExt, Services};

use super::{ConfigError, Result};

/// The namespace (`metav1.NamespaceDefault`) and the name (`masterServices`) of the API server's own service.
const MASTER_SERVICE: (&str, &str) = ("default", "kubernetes");
/// The cluster IP of a headless service (`v1.ClusterIPNone`).
const HEADLESS: &str = "None";

/// The variables of the services that a pod sees: always the API server's, and those of its namespace unless
/// `enableServiceLinks` is off. A service of the namespace with the name of the API server's service replaces it.
///
/// # Errors
///
/// The services have not been listed yet. A static pod does not wait for them.
pub(super) fn service_environment(pod: &Pod, services: &dyn Services) -> Result<BTreeMap<String, String>> {
    if !pod.is_static() && !services.has_synced() {
        let message = "services have not yet been read at least once, cannot construct envvars";
        return Err(ConfigError::Spec(message.to_owned()));
    }
    let links = pod.spec.as_ref().and_then(|spec| spec.enable_service_links);
    let of_namespace = match links {
        Some(false) => Vec::new(),
        Some(true) | None => services.in_namespace(pod.metadata.namespace.as_deref().unwrap_or_default()),
    };
    let (namespace, name) = MASTER_SERVICE;
    let master = services.service(namespace, name);
    let seen = master.iter().chain(&of_namespace);
    // By name: if two services have one name, the one of the pod's namespace counts.
    let seen: BTreeMap<&str, &ServiceSpec> = seen.filter_map(with_cluster_ip).collect();
    let mut environment = BTreeMap::new();
    for (name, spec) in seen {
        add_service(&mut environment, name, spec);
    }
    Ok(environment)
}

/// `IsServiceIPSet`
fn with_cluster_ip(service: &Arc<Service>) -> Option<(&str, &ServiceSpec)> {
    let spec = service.spec.as_ref()?;
    let has_ip = !matches!(spec.cluster_ip.as_deref(), None | Some("" | HEADLESS));
    has_ip.then_some((service.metadata.name.as_deref().unwrap_or_default(), spec))
}

fn add_service(environment: &mut BTreeMap<String, String>, name: &str, spec: &ServiceSpec) {
    let (prefix, ip) = (
        variable_name(name),
        spec.cluster_ip.as_deref().unwrap_or_default(),
    );
    let mut set = |name: String, value: String| environment.insert(name, value);
    set(format!("{prefix}_SERVICE_HOST"), ip.to_owned());
    for (index, port) in spec.ports.iter().flatten().enumerate() {
        let number = port.port.to_string();
        if index == 0 {
            set(format!("{prefix}_SERVICE_PORT"), number.clone());
        }
        if let Some(name) = port.name.as_deref().filter(|name| !name.is_empty()) {
            set(
                format!("{prefix}_SERVICE_PORT_{}", variable_name(name)),
                number.clone(),
            );
        }
        // The variables of Docker links.
        let protocol = port.protocol.as_deref().filter(|protocol| !protocol.is_empty());
        let protocol = protocol.unwrap_or("TCP");
        let lower = protocol.to_lowercase();
        let url = match ip.contains(':') {
            true => format!("{lower}://[{ip}]:{number}"),
            false => format!("{lower}://{ip}:{number}"),
        };
        if index == 0 {
            set(format!("{prefix}_PORT"), url.clone());
        }
        let link = format!("{prefix}_PORT_{number}_{}", protocol.to_uppercase());
        set(format!("{link}_PROTO"), lower);
        set(format!("{link}_PORT"), number);
        set(format!("{link}_ADDR"), ip.to_owned());
        set(link, url);
    }
}

fn variable_name(name: &str) -> String {
    name.replace('-', "_").to_uppercase()
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Services that were listed; with `None`, they have not been listed.
    pub(in super::super) struct Listed(pub(in super::super) Option<Vec<Arc<Service>>>);

    impl Listed {
        fn all(&self) -> impl Iterator<Item = &Arc<Service>> {
            self.0.iter().flatten()
        }
    }

    impl Services for Listed {
        fn has_synced(&self) -> bool {
            self.0.is_some()
        }

        fn service(&self, namespace: &str, name: &str) -> Option<Arc<Service>> {
            let mut of_namespace = self.in_namespace(namespace).into_iter();
            of_namespace.find(|service| service.metadata.name.as_deref() == Some(name))
        }

        fn in_namespace(&self, namespace: &str) -> Vec<Arc<Service>> {
            let is_of = |service: &&Arc<Service>| service.metadata.namespace.as_deref() == Some(namespace);
            self.all().filter(is_of).cloned().collect()
        }
    }

    pub(in super::super) fn service(namespace: &str, name: &str, ip: &str, ports: Value) -> Arc<Service> {
        let service = json!({"metadata": {"namespace": namespace, "name": name},
            "spec": {"clusterIP": ip, "ports": ports}});
        Arc::new(serde_json::from_value(service).unwrap())
    }

    fn pod(links: Option<bool>, source: &str) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"namespace": "ns", "name": "web", "annotations": {"kubernetes.io/config.source": source}},
            "spec": {"containers": [], "enableServiceLinks": links},
        }))
        .unwrap()
    }

    /// The variables of a pod with links, as `name=value`.
    fn seen(services: Vec<Arc<Service>>) -> Vec<String> {
        let listed = Listed(Some(services));
        let environment = service_environment(&pod(Some(true), "api"), &listed).unwrap();
        environment
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect()
    }

    #[test]
    fn variables_of_one_service() {
        let cases: &[(&str, &str, Value, &[&str])] = &[
            (
                "foo-bar",
                "1.2.3.4",
                json!([{"port": 8080, "protocol": "TCP"}]),
                &[
                    "FOO_BAR_PORT=tcp://1.2.3.4:8080",
                    "FOO_BAR_PORT_8080_TCP=tcp://1.2.3.4:8080",
                    "FOO_BAR_PORT_8080_TCP_ADDR=1.2.3.4",
                    "FOO_BAR_PORT_8080_TCP_PORT=8080",
                    "FOO_BAR_PORT_8080_TCP_PROTO=tcp",
                    "FOO_BAR_SERVICE_HOST=1.2.3.4",
                    "FOO_BAR_SERVICE_PORT=8080",
                ],
            ),
            (
                "abc-123",
                "5.6.7.8",
                json!([{"name": "u-d-p", "port": 8081, "protocol": "UDP"},
                    {"name": "t-c-p", "port": 8081, "protocol": "TCP"}]),
                &[
                    "ABC_123_PORT=udp://5.6.7.8:8081",
                    "ABC_123_PORT_8081_TCP=tcp://5.6.7.8:8081",
                    "ABC_123_PORT_8081_TCP_ADDR=5.6.7.8",
                    "ABC_123_PORT_8081_TCP_PORT=8081",
                    "ABC_123_PORT_8081_TCP_PROTO=tcp",
                    "ABC_123_PORT_8081_UDP=udp://5.6.7.8:8081",
                    "ABC_123_PORT_8081_UDP_ADDR=5.6.7.8",
                    "ABC_123_PORT_8081_UDP_PORT=8081",
                    "ABC_123_PORT_8081_UDP_PROTO=udp",
                    "ABC_123_SERVICE_HOST=5.6.7.8",
                    "ABC_123_SERVICE_PORT=8081",
                    "ABC_123_SERVICE_PORT_T_C_P=8081",
                    "ABC_123_SERVICE_PORT_U_D_P=8081",
                ],
            ),
            // Only the first port may have no name; a name may be a number.
            (
                "q-u-u-x",
                "9.8.7.6",
                json!([{"port": 82}, {"name": "83", "port": 83, "protocol": "SCTP"}]),
                &[
                    "Q_U_U_X_PORT=tcp://9.8.7.6:82",
                    "Q_U_U_X_PORT_82_TCP=tcp://9.8.7.6:82",
                    "Q_U_U_X_PORT_82_TCP_ADDR=9.8.7.6",
                    "Q_U_U_X_PORT_82_TCP_PORT=82",
                    "Q_U_U_X_PORT_82_TCP_PROTO=tcp",
                    "Q_U_U_X_PORT_83_SCTP=sctp://9.8.7.6:83",
                    "Q_U_U_X_PORT_83_SCTP_ADDR=9.8.7.6",
                    "Q_U_U_X_PORT_83_SCTP_PORT=83",
                    "Q_U_U_X_PORT_83_SCTP_PROTO=sctp",
                    "Q_U_U_X_SERVICE_HOST=9.8.7.6",
                    "Q_U_U_X_SERVICE_PORT=82",
                    "Q_U_U_X_SERVICE_PORT_83=83",
                ],
            ),
            (
                "six",
                "2001:DB8::",
                json!([{"port": 84}]),
                &[
                    "SIX_PORT=tcp://[2001:DB8::]:84",
                    "SIX_PORT_84_TCP=tcp://[2001:DB8::]:84",
                    "SIX_PORT_84_TCP_ADDR=2001:DB8::",
                    "SIX_PORT_84_TCP_PORT=84",
                    "SIX_PORT_84_TCP_PROTO=tcp",
                    "SIX_SERVICE_HOST=2001:DB8::",
                    "SIX_SERVICE_PORT=84",
                ],
            ),
            ("headless", "None", json!([{"port": 85}]), &[]),
            ("external", "", json!([{"port": 86}]), &[]),
            (
                "portless",
                "1.1.1.1",
                json!([]),
                &["PORTLESS_SERVICE_HOST=1.1.1.1"],
            ),
        ];
        for (name, ip, ports, expected) in cases {
            let service = service("ns", name, ip, ports.clone());
            assert_eq!(seen(vec![service]), *expected, "{name}");
        }
    }

    #[test]
    fn which_services_a_pod_sees() {
        let ports = || json!([{"port": 80}]);
        let kubernetes = || service("default", "kubernetes", "10.0.0.1", ports());
        let own = || service("ns", "own", "10.0.0.2", ports());
        let namesake = || service("ns", "kubernetes", "10.0.0.3", ports());
        let others = || service("default", "other", "10.0.0.4", ports());
        let headless = || service("ns", "kubernetes", "None", ports());
        let hosts = |services: Vec<Arc<Service>>, links: Option<bool>| {
            let environment = service_environment(&pod(links, "api"), &Listed(Some(services))).unwrap();
            let hosts = environment
                .iter()
                .filter(|(name, _)| name.ends_with("_SERVICE_HOST"));
            hosts
                .map(|(name, value)| format!("{name}={value}"))
                .collect::<Vec<_>>()
        };
        let (master, own_host) = ("KUBERNETES_SERVICE_HOST=10.0.0.1", "OWN_SERVICE_HOST=10.0.0.2");
        let all = || vec![kubernetes(), own(), others()];
        assert_eq!(hosts(all(), Some(true)), [master, own_host]);
        assert_eq!(hosts(all(), None), [master, own_host], "links are the default");
        assert_eq!(hosts(all(), Some(false)), [master]);
        let theirs = "KUBERNETES_SERVICE_HOST=10.0.0.3";
        assert_eq!(hosts(vec![kubernetes(), namesake()], Some(true)), [theirs]);
        assert_eq!(hosts(vec![namesake(), kubernetes()], Some(true)), [theirs]);
        assert_eq!(hosts(vec![namesake(), kubernetes()], Some(false)), [master]);
        assert_eq!(hosts(vec![headless(), kubernetes()], Some(true)), [master]);
        assert_eq!(hosts(vec![], Some(true)), [""; 0]);
    }

    #[test]
    fn before_services_were_read_static_pods_start_and_others_wait() {
        let unread = Listed(None);
        assert!(
            service_environment(&pod(None, "file"), &unread)
                .unwrap()
                .is_empty()
        );
        let error = service_environment(&pod(None, "api"), &unread).unwrap_err();
        let expected = "services have not yet been read at least once, cannot construct envvars";
        assert_eq!(error.to_string(), expected);
    }
}
