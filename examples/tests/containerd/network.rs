//! Networks of pods: the host's, their own, and host ports.

use std::io;

use kubelet_testing::Containerd;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::cri::Cri;
use crate::standalone::{Node, free_port, until};

fn web(name: &str, port: u16, more: &str, of_container: &str) -> String {
    let script = format!("echo {name} > /tmp/index.html; exec httpd -f -p {port} -h /tmp");
    format!(
        r#"
apiVersion: v1
kind: Pod
metadata:
  name: {name}
spec:
  terminationGracePeriodSeconds: 1
{more}  containers:
  - name: main
    image: docker.io/library/busybox:1.36
    command: ["sh", "-c", "{script}"]
{of_container}"#
    )
}

/// The page that is served there.
async fn get(address: &str, port: u16) -> io::Result<String> {
    let mut stream = TcpStream::connect((address, port)).await?;
    stream.write_all(b"GET /index.html HTTP/1.0\r\n\r\n").await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer.rsplit("\r\n").next().unwrap_or_default().trim().to_owned())
}

async fn serves(address: &str, port: u16, page: &str) {
    let what = format!("{page} at {address}:{port}");
    until(&what, async || get(address, port).await.ok().filter(|got| got == page)).await;
}

#[tokio::test]
async fn pods_on_the_hosts_network_on_their_own_and_on_ports_of_the_host() {
    let Some(containerd) = Containerd::start_with_host_ports().await.unwrap() else { return };
    let cri = Cri::of(&containerd).await;
    let node = Node::on(containerd.endpoint());
    let (on_host, mapped) = (free_port(), free_port());
    node.write("on-host.yaml", &web("on-host", on_host, "  hostNetwork: true\n", ""));
    let ports = format!("    ports: [{{containerPort: 8080, hostPort: {mapped}}}]\n");
    node.write("mapped.yaml", &web("mapped", 8080, "", &ports));
    node.write("plain.yaml", &web("plain", 8080, "", ""));
    let mut agent = node.start();
    let [host_pod, mapped_pod, plain_pod] =
        [agent.ready("on-host").await, agent.ready("mapped").await, agent.ready("plain").await];

    serves("127.0.0.1", on_host, "on-host").await;
    let own = |line: &crate::standalone::Line| line.status().pod_ip.clone().unwrap();
    let (mapped_ip, plain_ip) = (own(&mapped_pod), own(&plain_pod));
    assert_ne!(mapped_ip, plain_ip);
    serves(&mapped_ip, 8080, "mapped").await;
    serves(&plain_ip, 8080, "plain").await;
    // The bridge's own address is one of the host's.
    let (subnet, _) = mapped_ip.rsplit_once('.').unwrap();
    serves(&format!("{subnet}.1"), mapped, "mapped").await;

    for (file, line) in [("on-host", &host_pod), ("mapped", &mapped_pod), ("plain", &plain_pod)] {
        node.remove(&format!("{file}.yaml"));
        agent.gone(&line.uid).await;
        assert!(cri.running(&line.uid).await.is_empty());
    }
    assert!(get(&format!("{subnet}.1"), mapped).await.is_err(), "the port is given back");
    agent.interrupt().await;
}
