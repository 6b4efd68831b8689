//! How a pod resolves names (`pkg/kubelet/network/dns`).

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::Path;

use k8s_openapi::api::core::v1::{Pod, PodDNSConfig, PodSpec};
use kubelet_core::{Event, EventRecorder, EventType, NodeEventRecorder, PodExt};

use super::{ConfigError, NodeSettings, Result};
use kubelet_cri::v1;

/// How many name servers a pod may have (`MaxDNSNameservers`).
const MAX_NAMESERVERS: usize = 3;
/// How many search domains a pod may have (`MaxDNSSearchPaths`).
const MAX_SEARCH_PATHS: usize = 32;
/// How many characters all search domains may have, with the spaces between them (`MaxDNSSearchListChars`).
const MAX_SEARCH_LIST_CHARS: usize = 2048;
/// How many characters one search domain may have (`DNS1123SubdomainMaxLength`): longer ones make some resolvers abort.
const MAX_SEARCH_CHARS: usize = 253;
/// How many search domains a pod has of the cluster.
const OWN_SEARCH_PATHS: usize = 3;
/// How large a `resolv.conf` may be in bytes (`maxResolvConfLength`).
const MAX_RESOLV_CONF_LENGTH: u64 = 10 << 20;
/// The resolver options of a pod with the cluster's DNS (`defaultDNSOptions`).
const DEFAULT_OPTIONS: &str = "ndots:5";

/// Where events about the DNS of a pod go: those about the pod, and those about the node.
#[derive(Clone, Copy)]
pub(crate) struct Recorders<'a> {
    pub(crate) pods: &'a dyn EventRecorder,
    pub(crate) node: &'a dyn NodeEventRecorder,
}

#[cfg(test)]
impl<'a> Recorders<'a> {
    /// All events go to one recorder.
    pub(crate) fn both<R: EventRecorder + NodeEventRecorder>(recorder: &'a R) -> Self {
        Self {
            pods: recorder,
            node: recorder,
        }
    }
}

/// The resolver settings of a pod (`GetPodDNS`), from its `dnsPolicy` and `dnsConfig`.
pub(super) fn pod_dns(node: &NodeSettings, pod: &Pod, recorders: Recorders<'_>) -> Result<v1::DnsConfig> {
    let none = PodSpec::default();
    let spec = pod.spec.as_ref().unwrap_or(&none);
    let host = match &node.resolv_conf {
        Some(path) => read_resolv_conf(path)?,
        None => v1::DnsConfig::default(),
    };
    let mut config = match Policy::of(pod) {
        Policy::None => v1::DnsConfig::default(),
        Policy::Cluster if !node.cluster_dns.is_empty() => cluster_dns(node, pod, host),
        Policy::Cluster if !node.cluster_has_dns => host_dns(node, host),
        Policy::Cluster => {
            let (key, reason) = (pod.key(), "MissingClusterDNS");
            let problem = "kubelet does not have ClusterDNS IP configured and cannot create Pod using \"ClusterFirst\" policy. \
                           Falling back to \"Default\" policy.";
            recorders
                .node
                .record_node(EventType::Warning, reason, problem.to_owned());
            let of_pod = format!("pod: \"{}({})\". {problem}", key.full_name(), pod.uid_str());
            warn(recorders.pods, pod, reason, of_pod);
            host_dns(node, host)
        }
        Policy::Host => host_dns(node, host),
    };
    if let Some(own) = &spec.dns_config {
        append(&mut config, own);
    }
    fit_limits(&mut config, pod, recorders.pods);
    Ok(config)
}

enum Policy {
    None,
    Cluster,
    Host,
}

impl Policy {
    /// `getPodDNSType`
    fn of(pod: &Pod) -> Self {
        let policy = pod.spec.as_ref().and_then(|spec| spec.dns_policy.as_deref());
        match policy.unwrap_or("ClusterFirst") {
            "None" => Self::None,
            "ClusterFirstWithHostNet" => Self::Cluster,
            "ClusterFirst" if !pod.host_network() => Self::Cluster,
            "ClusterFirst" | "Default" => Self::Host,
            other => {
                tracing::error!(pod = %pod.key(), policy = other, "unknown dnsPolicy, using ClusterFirst");
                Self::Cluster
            }
        }
    }
}

/// Only the cluster's servers, which forward other names.
fn cluster_dns(node: &NodeSettings, pod: &Pod, host: v1::DnsConfig) -> v1::DnsConfig {
    let mut searches = host.searches;
    if !node.cluster_domain.is_empty() {
        let domain = &node.cluster_domain;
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let of_cluster = [
            format!("{namespace}.svc.{domain}"),
            format!("svc.{domain}"),
            domain.clone(),
        ];
        searches = without_duplicates(of_cluster.into_iter().chain(searches).collect());
    }
    v1::DnsConfig {
        servers: node.cluster_dns.iter().map(IpAddr::to_string).collect(),
        searches,
        options: vec![DEFAULT_OPTIONS.to_owned()],
    }
}

/// The host's settings; without `resolvConf`, a resolver on the loopback address that finds nothing.
fn host_dns(node: &NodeSettings, mut host: v1::DnsConfig) -> v1::DnsConfig {
    if node.resolv_conf.is_none() {
        let loopback = |ip: &IpAddr| if ip.is_ipv6() { "::1" } else { "127.0.0.1" }.to_owned();
        host.servers = node.node_ips.get().iter().map(loopback).collect();
        if host.servers.is_empty() {
            host.servers.push("127.0.0.1".to_owned());
        }
        host.searches = vec![".".to_owned()];
    }
    host
}

/// `appendDNSConfig`
fn append(config: &mut v1::DnsConfig, own: &PodDNSConfig) {
    config.servers.extend(own.nameservers.iter().flatten().cloned());
    config.servers = without_duplicates(std::mem::take(&mut config.servers));
    config.searches.extend(own.searches.iter().flatten().cloned());
    config.searches = without_duplicates(std::mem::take(&mut config.searches));
    let own_options = own.options.iter().flatten().map(|option| {
        let name = option.name.as_deref().unwrap_or_default();
        match option.value.as_deref().filter(|value| !value.is_empty()) {
            Some(value) => format!("{name}:{value}"),
            None => name.to_owned(),
        }
    });
    config.options = merge_options(std::mem::take(&mut config.options), own_options);
}

/// If two options have one name, the later value wins, at the place of the first.
///
/// The kubelet's order is random; ours is not.
fn merge_options(options: Vec<String>, new: impl Iterator<Item = String>) -> Vec<String> {
    fn name(option: &str) -> &str {
        option.split(':').next().unwrap_or_default()
    }
    let mut merged: Vec<String> = Vec::new();
    for option in options.into_iter().chain(new) {
        match merged.iter_mut().find(|known| name(known) == name(&option)) {
            Some(known) => *known = option,
            None => merged.push(option),
        }
    }
    merged
}

fn without_duplicates(texts: Vec<String>) -> Vec<String> {
    let mut seen = BTreeSet::new();
    texts
        .into_iter()
        .filter(|text| seen.insert(text.clone()))
        .collect()
}

/// `formDNSConfigFitsLimits`
fn fit_limits(config: &mut v1::DnsConfig, pod: &Pod, recorder: &dyn EventRecorder) {
    if config.servers.len() > MAX_NAMESERVERS {
        config.servers.truncate(MAX_NAMESERVERS);
        let message = format!(
            "Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: {}",
            config.servers.join(" ")
        );
        warn(recorder, pod, "DNSConfigForming", message);
    }

    let before = config.searches.len();
    config.searches.truncate(MAX_SEARCH_PATHS);
    config.searches.retain(|search| search.len() <= MAX_SEARCH_CHARS);
    let line = |searches: &[String]| searches.iter().map(|search| search.len() + 1).sum::<usize>();
    while line(&config.searches) > MAX_SEARCH_LIST_CHARS + 1 {
        config.searches.pop();
    }
    if config.searches.len() < before {
        let message = format!(
            "Search Line limits were exceeded, some search paths have been omitted, the applied search line is: {}",
            config.searches.join(" ")
        );
        warn(recorder, pod, "DNSConfigForming", message);
    }
}

fn warn(recorder: &dyn EventRecorder, pod: &Pod, reason: &str, message: String) {
    recorder.record(Event::about(pod, EventType::Warning, reason, message));
}

impl NodeSettings {
    /// Checks that search domains of pods fit into `resolvConf` (`CheckLimitsForResolvConf`). Blocks while it reads the file.
    ///
    /// # Errors
    ///
    /// The message of the kubelet's event `CheckLimitsForResolvConf`: the file cannot be read, or has too many or too long search
    /// domains. With a cluster domain, pods need three search domains of their own.
    pub fn check_resolv_conf(&self) -> Result<(), String> {
        let Some(path) = &self.resolv_conf else {
            return Ok(());
        };
        let file = path.display();
        let searches = read_resolv_conf(path)
            .map_err(|error| error.to_string())?
            .searches;
        let most = match self.cluster_domain.is_empty() {
            true => MAX_SEARCH_PATHS,
            false => MAX_SEARCH_PATHS - OWN_SEARCH_PATHS,
        };
        if searches.len() > most {
            return Err(format!(
                "Resolv.conf file '{file}' contains search line consisting of more than {most} domains!"
            ));
        }
        if searches.iter().any(|search| search.len() > MAX_SEARCH_CHARS) {
            return Err(format!(
                "Resolv.conf file \"{file}\" contains a search path which length is more than allowed {MAX_SEARCH_CHARS} chars!"
            ));
        }
        if searches.join(" ").len() > MAX_SEARCH_LIST_CHARS {
            return Err(format!(
                "Resolv.conf file '{file}' contains search line which length is more than allowed {MAX_SEARCH_LIST_CHARS} chars!"
            ));
        }
        Ok(())
    }
}

fn read_resolv_conf(path: &Path) -> Result<v1::DnsConfig> {
    use std::io::Read as _;

    let mut text = Vec::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(MAX_RESOLV_CONF_LENGTH + 1).read_to_end(&mut text))
        .map_err(|error| ConfigError::io(path, &error))?;
    if text.len() as u64 > MAX_RESOLV_CONF_LENGTH {
        return Err(ConfigError::Spec(format!(
            "{}: larger than {MAX_RESOLV_CONF_LENGTH} bytes",
            path.display()
        )));
    }
    parse_resolv_conf(&String::from_utf8_lossy(&text))
        .map_err(|message| ConfigError::Spec(format!("{}: {message}", path.display())))
}

/// Name servers accumulate. The last search line counts. Options accumulate, and the last one of a name counts.
fn parse_resolv_conf(text: &str) -> Result<v1::DnsConfig, String> {
    let mut config = v1::DnsConfig::default();
    for (index, line) in text.lines().enumerate() {
        let mut words = line.split_whitespace();
        match words.next() {
            Some("nameserver") => match words.next() {
                Some(server) => config.servers.push(server.to_owned()),
                None => return Err(format!("line {}: nameserver without an address", index + 1)),
            },
            Some("search") => {
                let domains = words.filter(|domain| *domain != ".");
                config.searches = domains
                    .map(|domain| domain.strip_suffix('.').unwrap_or(domain).to_owned())
                    .collect();
            }
            Some("options") => {
                let options = std::mem::take(&mut config.options);
                config.options = merge_options(options, words.map(str::to_owned));
            }
            _ => {}
        }
    }
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::PodDNSConfigOption;
    use parking_lot::Mutex;

    #[derive(Default)]
    struct Reasons(Mutex<Vec<String>>);

    impl EventRecorder for Reasons {
        fn record(&self, event: Event<'_>) {
            self.0.lock().push(event.reason.to_owned());
        }
    }

    impl NodeEventRecorder for Reasons {
        fn record_node(&self, _: EventType, reason: &str, _: String) {
            self.0.lock().push(format!("node {reason}"));
        }
    }

    fn node(resolv_conf: &str) -> (NodeSettings, tempfile::NamedTempFile) {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), resolv_conf).unwrap();
        let node = NodeSettings {
            resolv_conf: Some(file.path().to_owned()),
            cluster_dns: vec!["10.0.0.10".parse().unwrap()],
            cluster_domain: "cluster.local".into(),
            ..Default::default()
        };
        (node, file)
    }

    fn pod(policy: &str) -> Pod {
        let mut pod = Pod::default();
        pod.metadata.namespace = Some("ns".into());
        pod.spec = Some(PodSpec {
            dns_policy: Some(policy.into()),
            ..Default::default()
        });
        pod
    }

    fn texts(items: &[&str]) -> Vec<String> {
        items.iter().map(|item| (*item).to_owned()).collect()
    }

    #[test]
    fn policies_choose_the_base() {
        let (node, _file) = node(
            "# comment\nnameserver 1.1.1.1\nsearch old.example\nsearch corp.example. . cluster.local\noptions ndots:2 rotate\noptions ndots:3\n",
        );
        let events = Reasons::default();
        let config = pod_dns(&node, &pod("ClusterFirst"), Recorders::both(&events)).unwrap();
        assert_eq!(config.servers, texts(&["10.0.0.10"]));
        assert_eq!(
            config.searches,
            texts(&[
                "ns.svc.cluster.local",
                "svc.cluster.local",
                "cluster.local",
                "corp.example"
            ])
        );
        assert_eq!(config.options, texts(&["ndots:5"]));

        let config = pod_dns(&node, &pod("Default"), Recorders::both(&events)).unwrap();
        assert_eq!(config.servers, texts(&["1.1.1.1"]));
        assert_eq!(config.searches, texts(&["corp.example", "cluster.local"]));
        assert_eq!(config.options, texts(&["ndots:3", "rotate"]));

        let mut host = pod("ClusterFirst");
        host.spec.as_mut().unwrap().host_network = Some(true);
        assert_eq!(pod_dns(&node, &host, Recorders::both(&events)).unwrap(), config);
        host.spec.as_mut().unwrap().dns_policy = Some("ClusterFirstWithHostNet".into());
        assert_eq!(
            pod_dns(&node, &host, Recorders::both(&events)).unwrap().servers,
            texts(&["10.0.0.10"])
        );

        assert_eq!(
            pod_dns(&node, &pod("None"), Recorders::both(&events)).unwrap(),
            v1::DnsConfig::default()
        );
        assert!(events.0.lock().is_empty());
    }

    #[test]
    fn without_cluster_dns_the_host_answers_and_it_is_said() {
        let (mut node, _file) = node("nameserver 1.1.1.1\n");
        node.cluster_dns.clear();
        let events = Reasons::default();
        let config = pod_dns(&node, &pod("ClusterFirst"), Recorders::both(&events)).unwrap();
        assert_eq!(config.servers, texts(&["1.1.1.1"]));
        assert_eq!(
            *events.0.lock(),
            texts(&["node MissingClusterDNS", "MissingClusterDNS"])
        );

        // A cluster without a DNS server misses nothing.
        node.cluster_has_dns = false;
        assert_eq!(
            pod_dns(&node, &pod("ClusterFirst"), Recorders::both(&events)).unwrap(),
            config
        );
        assert_eq!(events.0.lock().len(), 2);

        node.resolv_conf = None;
        node.node_ips.set(vec!["::2".parse().unwrap()]);
        let config = pod_dns(&node, &pod("Default"), Recorders::both(&events)).unwrap();
        assert_eq!(config.servers, texts(&["::1"]));
        assert_eq!(config.searches, texts(&["."]));
    }

    #[test]
    fn the_pods_own_settings_are_added_within_limits() {
        let (node, _file) = node("");
        let mut pod = pod("ClusterFirst");
        pod.spec.as_mut().unwrap().dns_config = Some(PodDNSConfig {
            nameservers: Some(texts(&["10.0.0.10", "8.8.8.8", "8.8.4.4", "9.9.9.9"])),
            searches: Some(
                (0..40)
                    .map(|n| format!("s{n}"))
                    .chain(["x".repeat(254)])
                    .collect(),
            ),
            options: Some(vec![
                PodDNSConfigOption {
                    name: Some("ndots".into()),
                    value: Some("2".into()),
                },
                PodDNSConfigOption {
                    name: Some("edns0".into()),
                    value: None,
                },
            ]),
        });
        let events = Reasons::default();
        let config = pod_dns(&node, &pod, Recorders::both(&events)).unwrap();
        assert_eq!(config.servers, texts(&["10.0.0.10", "8.8.8.8", "8.8.4.4"]));
        assert_eq!(config.options, texts(&["ndots:2", "edns0"]));
        assert_eq!(config.searches.len(), 32);
        assert_eq!(*events.0.lock(), texts(&["DNSConfigForming", "DNSConfigForming"]));
    }

    #[test]
    fn the_search_line_is_cut_from_its_end() {
        let mut config = v1::DnsConfig {
            searches: vec!["x".repeat(250); 10],
            ..Default::default()
        };
        fit_limits(&mut config, &Pod::default(), &Reasons::default());
        // 8 * 250 + 7 spaces = 2007; a ninth would make 2258.
        assert_eq!(config.searches.len(), 8);
    }

    #[test]
    fn the_search_domains_of_the_host_must_leave_room_for_those_of_pods() {
        let domains = |count: usize| {
            let domains: Vec<String> = (0..count).map(|number| format!("d{number}")).collect();
            format!("search {}\n", domains.join(" "))
        };
        let long = |count: usize| format!("search {}\n", vec!["x".repeat(250); count].join(" "));
        for (text, expected) in [
            (domains(29), None),
            (
                domains(30),
                Some("' contains search line consisting of more than 29 domains!"),
            ),
            (
                format!("search {}", "x".repeat(254)),
                Some("\" contains a search path which length is more than allowed 253 chars!"),
            ),
            (long(8), None),
            (
                long(9),
                Some("' contains search line which length is more than allowed 2048 chars!"),
            ),
            (
                "nameserver\n".to_owned(),
                Some(": line 1: nameserver without an address"),
            ),
        ] {
            let (node, _file) = node(&text);
            match (node.check_resolv_conf(), expected) {
                (Ok(()), None) => {}
                (Err(message), Some(expected)) => assert!(message.ends_with(expected), "{message}"),
                (found, expected) => panic!("{found:?}, not {expected:?}: {text}"),
            }
        }
        let (mut without_domain, _file) = node(&domains(32));
        without_domain.cluster_domain.clear();
        without_domain.check_resolv_conf().unwrap();
        without_domain.resolv_conf = Some("/absent/resolv.conf".into());
        assert!(without_domain.check_resolv_conf().is_err());
        without_domain.resolv_conf = None;
        without_domain.check_resolv_conf().unwrap();
    }

    #[test]
    fn a_broken_file_is_named() {
        let (node, file) = node("nameserver\n");
        let error = pod_dns(&node, &pod("Default"), Recorders::both(&Reasons::default())).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("{}: line 1: nameserver without an address", file.path().display())
        );
    }
}
