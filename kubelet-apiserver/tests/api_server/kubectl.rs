//! `kubectl` against the API server in memory, over loopback. Any recent version works. Without `kubectl` the tests print
//! `SKIPPED` and pass.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kubelet_apiserver::{ApiServer, User, find_kubectl};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::TcpListener;
use tokio::process::{Child, ChildStdout, Command};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// How long a `kubectl` may take before it counts as hung.
const GUARD: Duration = Duration::from_secs(120);

const POD: &str = "\
apiVersion: v1
kind: Pod
metadata:
  name: web
  labels: {app: web}
spec:
  nodeName: one
  containers:
  - name: main
    image: busybox:1.36
";

/// A server on a port, and a folder for the files of `kubectl`.
struct Cluster {
    server: ApiServer,
    kubectl: PathBuf,
    folder: tempfile::TempDir,
    shutdown: CancellationToken,
    task: JoinHandle<std::io::Result<()>>,
}

impl Cluster {
    /// `None` if this machine has no `kubectl`.
    async fn start() -> Option<Cluster> {
        let kubectl = find_kubectl().unwrap()?;
        let server = ApiServer::new();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let kubeconfig = server.kubeconfig(listener.local_addr().unwrap(), User::admin());
        std::fs::write(folder.path().join("kubeconfig"), kubeconfig).unwrap();
        let shutdown = CancellationToken::new();
        let task = tokio::spawn({
            let (server, shutdown) = (server.clone(), shutdown.clone());
            async move { server.serve(listener, shutdown).await }
        });
        Some(Cluster {
            server,
            kubectl,
            folder,
            shutdown,
            task,
        })
    }

    async fn end(self) {
        self.shutdown.cancel();
        self.task.await.unwrap().unwrap();
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.kubectl);
        command
            .arg("--kubeconfig")
            .arg(self.folder.path().join("kubeconfig"))
            .arg("--cache-dir")
            .arg(self.folder.path().join("cache"))
            .args(args)
            .env("HOME", self.folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    fn spawn(command: &mut Command) -> Child {
        command.spawn().expect("kubectl starts")
    }

    /// Runs a `kubectl` that must succeed, and returns its standard output.
    async fn kubectl(&self, args: &[&str]) -> String {
        let child = Self::spawn(&mut self.command(args));
        let output = tokio::time::timeout(GUARD, child.wait_with_output());
        let output = output.await.expect("kubectl hangs").unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "kubectl {args:?}: {text}{complaint}");
        text
    }

    /// Runs a `kubectl` that must fail, and returns its standard error.
    async fn kubectl_fails(&self, args: &[&str]) -> String {
        let child = Self::spawn(&mut self.command(args));
        let output = tokio::time::timeout(GUARD, child.wait_with_output());
        let output = output.await.expect("kubectl hangs").unwrap();
        assert!(!output.status.success(), "kubectl {args:?} succeeded");
        String::from_utf8(output.stderr).unwrap()
    }

    fn manifest(&self, name: &str, text: &str) -> String {
        let path: PathBuf = self.folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

/// A `kubectl` that runs on; its output is read line by line.
struct Running {
    _child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Running {
    fn start(cluster: &Cluster, args: &[&str]) -> Running {
        let mut child = Cluster::spawn(&mut cluster.command(args));
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Running { _child: child, lines }
    }

    /// The next line with all of these words in it.
    async fn line_with(&mut self, words: &[&str]) -> String {
        let mut seen = Vec::new();
        let found = tokio::time::timeout(GUARD, async {
            while let Some(line) = self.lines.next_line().await.unwrap() {
                if words.iter().all(|word| line.contains(word)) {
                    return Some(line);
                }
                seen.push(line);
            }
            None
        });
        match found.await {
            Ok(Some(line)) => line,
            _ => panic!("no line with {words:?}: {seen:?}"),
        }
    }
}

#[tokio::test]
async fn gets_creates_patches_watches_and_deletes() {
    let Some(cluster) = Cluster::start().await else {
        return;
    };
    let manifest = cluster.manifest("pod.yaml", POD);
    assert_eq!(
        cluster.kubectl(&["create", "-f", &manifest]).await,
        "pod/web created\n"
    );
    let complaint = cluster.kubectl_fails(&["create", "-f", &manifest]).await;
    assert!(complaint.contains("(AlreadyExists)"), "{complaint}");

    let table = cluster.kubectl(&["get", "pods"]).await;
    assert!(table.starts_with("NAME") && table.contains("\nweb"), "{table}");
    let name = cluster
        .kubectl(&["get", "pod", "web", "-o", "jsonpath={.metadata.name}"])
        .await;
    assert_eq!(name, "web");
    let names = cluster
        .kubectl(&["get", "po", "-A", "-l", "app in (web)", "-o", "name"])
        .await;
    assert_eq!(names, "pod/web\n");
    let complaint = cluster.kubectl_fails(&["get", "pod", "absent"]).await;
    assert!(complaint.contains("pods \"absent\" not found"), "{complaint}");

    let mut watch = Running::start(&cluster, &["get", "pods", "-w", "--show-labels"]);
    watch.line_with(&["web", "app=web"]).await;
    let patch = r#"{"metadata":{"labels":{"tier":"front"}}}"#;
    for kind in ["strategic", "merge"] {
        cluster
            .kubectl(&["patch", "pod", "web", "--type", kind, "-p", patch])
            .await;
    }
    watch.line_with(&["web", "app=web,tier=front"]).await;
    let patch = r#"[{"op":"replace","path":"/metadata/labels/tier","value":"back"}]"#;
    cluster
        .kubectl(&["patch", "pod", "web", "--type", "json", "-p", patch])
        .await;
    watch.line_with(&["web", "app=web,tier=back"]).await;
    cluster.kubectl(&["label", "pod", "web", "app-"]).await;
    cluster.kubectl(&["annotate", "pod", "web", "a=b"]).await;

    cluster
        .kubectl(&["delete", "pod", "web", "--grace-period=0", "--force"])
        .await;
    assert_eq!(cluster.server.get::<Pod>("default", "web").unwrap(), None);
    cluster.end().await;
}

#[tokio::test]
async fn applies_and_describes() {
    let Some(cluster) = Cluster::start().await else {
        return;
    };
    let manifest = cluster.manifest("pod.yaml", POD);
    assert_eq!(
        cluster.kubectl(&["apply", "-f", &manifest]).await,
        "pod/web created\n"
    );
    let other = cluster.manifest("other.yaml", &POD.replace("app: web", "app: other"));
    assert_eq!(
        cluster.kubectl(&["apply", "-f", &other]).await,
        "pod/web configured\n"
    );
    let served = cluster
        .kubectl(&["apply", "--server-side", "--force-conflicts", "-f", &manifest])
        .await;
    assert_eq!(served, "pod/web serverside-applied\n");
    let label = cluster
        .kubectl(&["get", "pod", "web", "-o", "jsonpath={.metadata.labels.app}"])
        .await;
    assert_eq!(label, "web");

    let description = cluster.kubectl(&["describe", "pod", "web"]).await;
    assert!(description.contains("busybox:1.36"), "{description}");
    let resources = cluster
        .kubectl(&["api-resources", "--no-headers", "-o", "name"])
        .await;
    for resource in ["pods", "nodes", "leases.coordination.k8s.io"] {
        assert!(resources.lines().any(|line| line == resource), "{resources}");
    }
    let shop = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n";
    cluster
        .kubectl(&["create", "-f", &cluster.manifest("shop.yaml", shop)])
        .await;
    let mut input = cluster.command(&["create", "-n", "shop", "-f", "-"]);
    let mut child = Cluster::spawn(input.stdin(Stdio::piped()));
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(POD.as_bytes()).await.unwrap();
    drop(stdin);
    assert!(child.wait().await.unwrap().success());
    let namespaces: Vec<_> = cluster.server.list::<Pod>().unwrap();
    assert_eq!(namespaces.len(), 2);
    cluster.kubectl(&["version"]).await;
    cluster.end().await;
}

/// `kubectl` 1.32 and newer sends these in protobuf, older versions in JSON.
#[tokio::test]
async fn kubectl_creates_with_typed_clients() {
    let Some(cluster) = Cluster::start().await else {
        return;
    };
    for args in [
        &["create", "configmap", "one", "--from-literal=word=hello"][..],
        &["create", "secret", "generic", "one", "--from-literal=word=sesame"],
        &["create", "namespace", "other"],
        &["create", "serviceaccount", "robot"],
        &["create", "service", "clusterip", "one", "--tcp=80:web"],
    ] {
        assert!(cluster.kubectl(args).await.contains("created"), "{args:?}");
    }
    for (kind, path, value) in [
        ("configmap", "{.data.word}", "hello"),
        ("secret", "{.data.word}", "c2VzYW1l"),
        ("service", "{.spec.ports[0].targetPort}", "web"),
    ] {
        let path = format!("jsonpath={path}");
        assert_eq!(cluster.kubectl(&["get", kind, "one", "-o", &path]).await, value);
    }
    let token = cluster
        .kubectl(&["create", "token", "robot", "--duration=1h"])
        .await;
    assert_eq!(token.trim().split('.').count(), 3, "{token}");
    assert_eq!(
        cluster.kubectl(&["auth", "can-i", "create", "pods"]).await.trim(),
        "yes"
    );
    // `all` has the pods and the services.
    let all = cluster.kubectl(&["get", "all", "-o", "name"]).await;
    assert!(all.contains("service/one"), "{all}");
    cluster.end().await;
}
