//! The hosts file that the kubelet writes for a pod (`managedHostsFileContent`, `nodeHostsFileContent`).

use std::path::PathBuf;

use k8s_openapi::api::core::v1::HostAlias;

use super::Result;

/// The hosts file of a pod.
#[derive(Clone, Debug)]
pub(super) struct HostsFile {
    /// Its path on the host.
    pub(super) path: PathBuf,
    /// Whether the pod is on the host's network: then the content starts with the node's own file.
    pub(super) host_network: bool,
    /// The pod's IPs.
    pub(super) ips: Vec<String>,
    /// The pod's short host name.
    pub(super) hostname: String,
    /// The domain of that name.
    pub(super) domain: Option<String>,
    /// `hostAliases`
    pub(super) aliases: Vec<HostAlias>,
}

impl HostsFile {
    /// The content; `node_hosts` reads the node's own file.
    pub(super) fn content(&self, node_hosts: impl FnOnce() -> Result<Vec<u8>>) -> Result<Vec<u8>> {
        let mut content = if self.host_network {
            let mut content = b"# Kubernetes-managed hosts file (host network).\n".to_vec();
            content.extend(node_hosts()?);
            content
        } else {
            self.own().into_bytes()
        };
        content.extend(self.alias_lines().into_bytes());
        Ok(content)
    }

    fn own(&self) -> String {
        let mut content = String::from(
            "# Kubernetes-managed hosts file.\n\
             127.0.0.1\tlocalhost\n\
             ::1\tlocalhost ip6-localhost ip6-loopback\n\
             fe00::0\tip6-localnet\n\
             fe00::0\tip6-mcastprefix\n\
             fe00::1\tip6-allnodes\n\
             fe00::2\tip6-allrouters\n",
        );
        for ip in &self.ips {
            let name = &self.hostname;
            content += &match &self.domain {
                Some(domain) => format!("{ip}\t{name}.{domain}\t{name}\n"),
                None => format!("{ip}\t{name}\n"),
            };
        }
        content
    }

    fn alias_lines(&self) -> String {
        if self.aliases.is_empty() {
            return String::new();
        }
        let mut lines = String::from("\n# Entries added by HostAliases.\n");
        for alias in &self.aliases {
            let names = alias.hostnames.as_deref().unwrap_or_default().join("\t");
            lines += &format!("{}\t{names}\n", alias.ip);
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts() -> HostsFile {
        HostsFile {
            path: PathBuf::new(),
            host_network: false,
            ips: vec!["10.0.0.1".into(), "fd00::1".into()],
            hostname: "web".into(),
            domain: None,
            aliases: Vec::new(),
        }
    }

    fn text(hosts: &HostsFile) -> String {
        let content = hosts.content(|| Ok(b"1.2.3.4 node\n".to_vec())).unwrap();
        String::from_utf8(content).unwrap()
    }

    #[test]
    fn a_pod_finds_itself_and_its_aliases() {
        let mut file = hosts();
        assert!(text(&file).starts_with("# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n"));
        assert!(text(&file).ends_with("fe00::2\tip6-allrouters\n10.0.0.1\tweb\nfd00::1\tweb\n"));
        file.domain = Some("s.ns.svc.cluster.local".into());
        file.aliases = vec![HostAlias {
            ip: "9.9.9.9".into(),
            hostnames: Some(vec!["a".into(), "b".into()]),
        }];
        assert!(text(&file).ends_with(
            "10.0.0.1\tweb.s.ns.svc.cluster.local\tweb\nfd00::1\tweb.s.ns.svc.cluster.local\tweb\n\
             \n# Entries added by HostAliases.\n9.9.9.9\ta\tb\n"
        ));
    }

    #[test]
    fn on_the_hosts_network_the_nodes_file_is_the_base() {
        let mut file = hosts();
        file.host_network = true;
        assert_eq!(
            text(&file),
            "# Kubernetes-managed hosts file (host network).\n1.2.3.4 node\n"
        );
    }
}
