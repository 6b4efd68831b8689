//! The process runtime behind a CRI socket, called as by `crictl`, `critest` and a Go kubelet.

use std::time::Duration;

use kubelet_cri::{Code, CriClient, CriServer, CriSocket, Error, ImageService, RuntimeService, v1};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::node::{Node, nap, patiently, shell};

struct Served {
    node: Node,
    client: CriClient,
    shutdown: CancellationToken,
    server: JoinHandle<Result<(), Error>>,
}

impl Served {
    async fn new() -> Self {
        let node = Node::new().await;
        let socket = CriSocket::bind(node.root.join("cri.sock"), 0o600).await.unwrap();
        let services = std::sync::Arc::new(node.cri.clone());
        let endpoint = format!("unix://{}", socket.path().display());
        let shutdown = CancellationToken::new();
        let server = CriServer::new(services.clone(), services).serve(socket, shutdown.clone());
        let server = tokio::spawn(server);
        let client = CriClient::connect(&endpoint).await.unwrap();
        Self {
            node,
            client,
            shutdown,
            server,
        }
    }

    async fn run(&self, pod: &str, config: v1::ContainerConfig) -> Result<(String, String), Error> {
        let sandbox_config = self.node.sandbox_config(pod);
        let request = v1::RunPodSandboxRequest {
            config: Some(sandbox_config.clone()),
            ..Default::default()
        };
        let sandbox = self.client.run_pod_sandbox(request).await?.pod_sandbox_id;
        let request = v1::CreateContainerRequest {
            pod_sandbox_id: sandbox.clone(),
            config: Some(config),
            sandbox_config: Some(sandbox_config),
        };
        let container_id = self.client.create_container(request).await?.container_id;
        let request = v1::StartContainerRequest {
            container_id: container_id.clone(),
        };
        self.client.start_container(request).await?;
        Ok((sandbox, container_id))
    }

    async fn end(self) {
        self.shutdown.cancel();
        patiently(self.server).await.unwrap().unwrap();
        self.node.processes.shutdown(Duration::ZERO).await;
    }
}

#[tokio::test]
async fn a_go_client_accepts_the_connection() {
    let served = Served::new().await;
    // A Go kubelet first validates an endpoint with these calls.
    let version = served
        .client
        .version(v1::VersionRequest::default())
        .await
        .unwrap();
    assert_eq!(
        (
            version.runtime_name.as_str(),
            version.runtime_api_version.as_str()
        ),
        ("process", "v1")
    );
    let info = served
        .client
        .image_fs_info(v1::ImageFsInfoRequest {})
        .await
        .unwrap();
    let folder = served.node.root.join("processes").canonicalize().unwrap();
    for usage in [&info.image_filesystems, &info.container_filesystems] {
        assert_eq!(usage.len(), 1);
        let mountpoint = &usage[0].fs_id.as_ref().unwrap().mountpoint;
        assert_eq!(*mountpoint, folder.display().to_string());
        assert!(usage[0].used_bytes.as_ref().unwrap().value > 0);
    }
    let status = served.client.status(v1::StatusRequest::default()).await.unwrap();
    let conditions = status.status.unwrap().conditions;
    assert!(
        conditions.len() == 2 && conditions.iter().all(|it| it.status),
        "{conditions:?}"
    );
    served.end().await;
}

#[tokio::test]
async fn the_life_of_a_pod_through_the_socket() {
    let served = Served::new().await;
    let client = &served.client;
    let script = format!("echo hello; sleep {}", nap(987050));
    let (sandbox, id) = served.run("web", shell(&script)).await.unwrap();
    served.node.log_says(&id, "stdout F hello").await;

    let exec = |command: &str, timeout| {
        client.exec_sync(v1::ExecSyncRequest {
            container_id: id.clone(),
            cmd: vec!["sh".into(), "-c".into(), command.into()],
            timeout,
        })
    };
    let output = patiently(exec("echo out; echo err >&2; exit 3", 0))
        .await
        .unwrap();
    assert_eq!(
        (
            output.stdout.as_slice(),
            output.stderr.as_slice(),
            output.exit_code
        ),
        (&b"out\n"[..], &b"err\n"[..], 3)
    );
    // A Go kubelet recognizes the timeout of an exec probe by this code.
    let late = patiently(exec(&format!("sleep {}", nap(987051)), 1))
        .await
        .unwrap_err();
    assert_eq!(late.code(), Code::DeadlineExceeded);

    let stats = client
        .list_container_stats(Default::default())
        .await
        .unwrap()
        .stats;
    assert_eq!(stats.len(), 1);
    assert!(stats[0].cpu.is_some() && stats[0].memory.is_some());

    let request = v1::StopContainerRequest {
        container_id: id.clone(),
        timeout: 30,
    };
    patiently(client.stop_container(request)).await.unwrap();
    let request = v1::ContainerStatusRequest {
        container_id: id,
        verbose: false,
    };
    let status = client.container_status(request).await.unwrap().status.unwrap();
    assert_eq!(
        (status.state(), status.exit_code),
        (v1::ContainerState::ContainerExited, 143)
    );
    let pod_sandbox_id = sandbox;
    let request = v1::StopPodSandboxRequest {
        pod_sandbox_id: pod_sandbox_id.clone(),
    };
    patiently(client.stop_pod_sandbox(request)).await.unwrap();
    let request = v1::RemovePodSandboxRequest { pod_sandbox_id };
    patiently(client.remove_pod_sandbox(request)).await.unwrap();
    let left = client.list_containers(Default::default()).await.unwrap();
    assert!(left.containers.is_empty());
    served.end().await;
}

/// A Go client has a fallback for `Unimplemented`, and shows the other codes to the user.
#[tokio::test]
async fn what_a_process_cannot_be_is_refused_with_a_code() {
    let served = Served::new().await;
    let client = &served.client;
    let mut terminal = shell("true");
    terminal.tty = true;
    let refused = served.run("terminal", terminal).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");

    let mut config = served.node.sandbox_config("mapped");
    config.port_mappings = vec![v1::PortMapping {
        container_port: 80,
        host_port: 8080,
        ..Default::default()
    }];
    let request = v1::RunPodSandboxRequest {
        config: Some(config),
        ..Default::default()
    };
    let refused = client.run_pod_sandbox(request).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");

    for refused in [
        client.exec(Default::default()).await.err(),
        client.attach(Default::default()).await.err(),
        client.port_forward(Default::default()).await.err(),
        client.update_container_resources(Default::default()).await.err(),
        client.list_pod_sandbox_stats(Default::default()).await.err(),
        client.list_metric_descriptors(Default::default()).await.err(),
        client.runtime_config(Default::default()).await.err(),
        client.update_runtime_config(Default::default()).await.err(),
    ] {
        assert_eq!(refused.map(|error| error.code()), Some(Code::Unimplemented));
    }
    served.end().await;
}
