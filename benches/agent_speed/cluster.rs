//! An API server in memory, and a node that the node agent runs.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use futures::TryStreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube_client::Api;
use kube_client::api::{WatchEvent, WatchParams};
use kubelet_agent::{NodeAgent, Settings};
use kubelet_config::flags::CommandLine;
use kubelet_config::kubelet_configuration::validation::Host;
use kubelet_server::prometheus::Metrics;
use kubelet_testing::{ApiServer, User};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::member::{NODE, configuration, is_ready};

/// A timeout longer than anything here takes.
const GUARD: Duration = Duration::from_secs(180);

/// A node that runs pods on a runtime, and its API server.
pub(crate) struct Cluster {
    server: ApiServer,
    agent: JoinHandle<()>,
    shutdown: CancellationToken,
    stop_server: CancellationToken,
    _dir: TempDir,
}

impl Cluster {
    /// Waits until the node is ready. The agent has its own threads, as many as the program's.
    pub(crate) async fn start(endpoint: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
        let server = ApiServer::new();
        let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0)))
            .await
            .unwrap();
        let kubeconfig = server.kubeconfig(listener.local_addr().unwrap(), User::node(NODE));
        std::fs::write(path("kubeconfig"), kubeconfig).unwrap();
        // The disk of this host may be almost full: no pod is evicted and no image removed for that.
        let config = configuration(endpoint, &path("logs")) + "evictionHard: {nodefs.available: 1%}\n";
        std::fs::write(path("config.yaml"), config).unwrap();
        let (serving, stop_server) = (server.clone(), CancellationToken::new());
        let token = stop_server.clone();
        tokio::spawn(async move { serving.serve(listener, token).await.unwrap() });

        let arguments = [
            ("--config", path("config.yaml")),
            ("--root-dir", path("root")),
            ("--cert-dir", path("pki")),
            ("--kubeconfig", path("kubeconfig")),
            ("--hostname-override", NODE.to_owned()),
        ];
        let command_line =
            CommandLine::parse(arguments.map(|(flag, value)| format!("{flag}={value}"))).unwrap();
        let settings = Settings::of_kubelet(&command_line.load(&Host::detect()).unwrap()).unwrap();
        let shutdown = CancellationToken::new();
        let token = shutdown.clone();
        let agent = std::thread::spawn(move || {
            let mut runtime = tokio::runtime::Builder::new_multi_thread();
            let runtime = runtime.worker_threads(2).enable_all().build().unwrap();
            runtime.block_on(async {
                let agent = NodeAgent::builder(settings)
                    .cri()
                    .metrics(Arc::new(Metrics::new()));
                agent.build().await.unwrap().run(token).await.unwrap();
            });
        });
        let cluster = Self {
            server,
            agent,
            shutdown,
            stop_server,
            _dir: dir,
        };
        cluster.ready().await;
        cluster
    }

    async fn ready(&self) {
        let begun = Instant::now();
        while !is_ready(&self.server) {
            assert!(begun.elapsed() < GUARD, "the node is not ready");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Creates pods at once, and returns the time until all are running in the API.
    pub(crate) async fn run(&self, pods: &[Arc<Pod>]) -> Duration {
        let create = || {
            for pod in pods {
                let mut pod = Pod::clone(pod);
                pod.metadata.uid = None;
                pod.spec.as_mut().unwrap().node_name = Some(NODE.to_owned());
                self.server.create(&pod).unwrap();
            }
        };
        let is_running = |event: &WatchEvent<Pod>| match event {
            WatchEvent::Modified(pod) => pod
                .status
                .as_ref()?
                .phase
                .as_ref()
                .filter(|it| *it == "Running")
                .and(pod.metadata.name.clone()),
            _ => None,
        };
        self.until(pods.len(), is_running, create).await
    }

    /// Deletes pods at once, and returns the time until none is left in the API.
    pub(crate) async fn delete(&self, pods: &[Arc<Pod>]) -> Duration {
        let delete = || {
            for pod in pods {
                self.server
                    .delete::<Pod>("default", pod.metadata.name.as_deref().unwrap())
                    .unwrap();
            }
        };
        let is_gone = |event: &WatchEvent<Pod>| match event {
            WatchEvent::Deleted(pod) => pod.metadata.name.clone(),
            _ => None,
        };
        self.until(pods.len(), is_gone, delete).await
    }

    /// The time until this many pods have reached a state in the API.
    async fn until(
        &self,
        pods: usize,
        is_reached: impl Fn(&WatchEvent<Pod>) -> Option<String>,
        begin: impl FnOnce(),
    ) -> Duration {
        let (api, version) = (
            Api::<Pod>::all(self.server.client()),
            self.server.resource_version().to_string(),
        );
        let events = api.watch(&WatchParams::default(), &version).await.unwrap();
        let mut events = pin!(events);
        let begun = Instant::now();
        begin();
        let mut reached = HashSet::new();
        while reached.len() < pods {
            let event = timeout(GUARD, events.try_next())
                .await
                .expect("the agent hangs")
                .unwrap();
            reached.extend(is_reached(&event.expect("the watch ended")));
        }
        begun.elapsed()
    }

    /// Ends the agent, which leaves its containers running, and the API server.
    pub(crate) async fn end(self) {
        self.shutdown.cancel();
        let agent = self.agent;
        tokio::task::spawn_blocking(|| agent.join().unwrap())
            .await
            .unwrap();
        self.stop_server.cancel();
    }
}
