//! The fixture on the host's real containerd: it works as documented, and leaves nothing.
//!
//! A program of its own: it checks that nothing is left on the host. The next fixture, of another of its tests, may have
//! the same folder at once, so the checks are of what the earlier one owned.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use futures::StreamExt;
use kubelet_cri::v1::{
    ContainerConfig, ContainerEventType, ContainerMetadata, CreateContainerRequest, ExecSyncRequest,
    GetEventsRequest, ImageSpec, LinuxPodSandboxConfig, PodSandboxConfig, PodSandboxMetadata,
    PodSandboxStatusRequest, PullImageRequest, RunPodSandboxRequest, StartContainerRequest, VersionRequest,
};
use kubelet_cri::{CriClient, ImageService, RuntimeService};
use kubelet_testing::{Containerd, Task};
use tokio::net::TcpStream;

/// Runs a pod of one container that listens on port 8080; returns the ids of sandbox and container.
async fn run_pod(client: &CriClient, name: &str) -> (String, String) {
    let sandbox_config = PodSandboxConfig {
        metadata: Some(PodSandboxMetadata {
            name: name.into(),
            uid: format!("uid-of-{name}"),
            namespace: "default".into(),
            attempt: 0,
        }),
        linux: Some(LinuxPodSandboxConfig {
            cgroup_parent: format!("/kubelet-testing/pod-{name}"),
            ..Default::default()
        }),
        ..Default::default()
    };
    let request = RunPodSandboxRequest {
        config: Some(sandbox_config.clone()),
        runtime_handler: String::new(),
    };
    let sandbox = client.run_pod_sandbox(request).await.unwrap().pod_sandbox_id;
    let request = CreateContainerRequest {
        pod_sandbox_id: sandbox.clone(),
        config: Some(ContainerConfig {
            metadata: Some(ContainerMetadata {
                name: "main".into(),
                attempt: 0,
            }),
            image: Some(ImageSpec {
                image: Containerd::BUSYBOX.into(),
                ..Default::default()
            }),
            command: ["httpd", "-f", "-p", "8080"].map(str::to_owned).to_vec(),
            ..Default::default()
        }),
        sandbox_config: Some(sandbox_config),
    };
    let container = client.create_container(request).await.unwrap().container_id;
    let request = StartContainerRequest {
        container_id: container.clone(),
    };
    client.start_container(request).await.unwrap();
    (sandbox, container)
}

async fn exec(client: &CriClient, container: &str, command: &[&str]) -> (i32, String) {
    let request = ExecSyncRequest {
        container_id: container.into(),
        cmd: command.iter().map(|word| (*word).to_owned()).collect(),
        timeout: 60,
    };
    let response = client.exec_sync(request).await.unwrap();
    (
        response.exit_code,
        String::from_utf8_lossy(&response.stdout).into_owned(),
    )
}

async fn pids(containerd: &Containerd) -> HashMap<String, u32> {
    let tasks = containerd.tasks().await.unwrap();
    assert!(tasks.iter().all(|task| task.status == "RUNNING"), "{tasks:?}");
    tasks.into_iter().map(|Task { id, pid, .. }| (id, pid)).collect()
}

/// What a fixture owns while it runs: its folder, mounts and processes.
struct Owned {
    /// A file in the folder, which the folder of a later fixture does not have.
    mark: PathBuf,
    in_folder: HashSet<String>,
}

impl Owned {
    fn by(containerd: &Containerd) -> Self {
        let mark = containerd.folder().join("mark-of-this-fixture");
        fs::write(&mark, "").unwrap();
        let in_folder: HashSet<_> = in_folder(containerd.folder()).collect();
        assert!(!in_folder.is_empty());
        Self { mark, in_folder }
    }

    /// What is still mounted or running.
    fn remains(&self) -> Vec<String> {
        let folder = self.mark.parent().unwrap();
        in_folder(folder)
            .filter(|it| self.in_folder.contains(it))
            .collect()
    }
}

/// Everything in this folder that is mounted or running. Another folder may end with the same path.
fn in_folder(folder: &Path) -> impl Iterator<Item = String> {
    let is_of_folder = move |text: &String| {
        let mut words = text.split([' ', '=', '\0']);
        words.any(|word| Path::new(word).starts_with(folder))
    };
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let mounts: Vec<_> = mounts.lines().map(str::to_owned).collect();
    let processes = fs::read_dir("/proc").unwrap().flatten().map(|process| {
        let command = fs::read(process.path().join("cmdline")).unwrap_or_default();
        format!(
            "{} {}",
            process.path().display(),
            String::from_utf8_lossy(&command)
        )
    });
    mounts.into_iter().chain(processes).filter(is_of_folder)
}

/// The sockets on which its shims listen, outside of its folder.
fn shim_sockets(folder: &Path) -> Vec<PathBuf> {
    let bundles = fs::read_dir(folder.join("state/io.containerd.runtime.v2.task/k8s.io")).unwrap();
    let socket = |bundle: PathBuf| {
        let read = |file: &str| fs::read_to_string(bundle.join(file)).ok();
        let text = read("address").or_else(|| read("bootstrap.json"))?;
        let (_, path) = text.split_once("unix://")?;
        Some(PathBuf::from(path.split('"').next()?.trim()))
    };
    let sockets: Vec<_> = bundles.flatten().filter_map(|it| socket(it.path())).collect();
    assert!(
        !sockets.is_empty() && sockets.iter().all(|it| it.exists()),
        "{sockets:?}"
    );
    sockets
}

#[tokio::test]
async fn a_pod_outlives_containerd_and_nothing_outlives_the_fixture() {
    if let Some(containerd) = Containerd::start().await.unwrap() {
        a_pod_outlives(containerd, "outlives").await;
    }
}

#[tokio::test]
async fn a_pod_outlives_containerd_2_and_nothing_outlives_the_fixture() {
    if let Some(containerd) = Containerd::start_2().await.unwrap() {
        a_pod_outlives(containerd, "outlives-2").await;
    }
}

async fn a_pod_outlives(mut containerd: Containerd, name: &str) {
    let client = CriClient::connect(containerd.endpoint()).await.unwrap();
    let (sandbox, container) = run_pod(&client, name).await;

    let request = PodSandboxStatusRequest {
        pod_sandbox_id: sandbox.clone(),
        verbose: false,
    };
    let status = client.pod_sandbox_status(request).await.unwrap().status.unwrap();
    let ip = status.network.unwrap().ip;
    assert!(ip.starts_with("10.213."), "{ip}");
    let (code, hello) = exec(
        &client,
        &container,
        &["sh", "-c", "echo hello from $(id -un); exit 3"],
    )
    .await;
    assert_eq!((code, hello.as_str()), (3, "hello from root\n"));
    // The host reaches the pod, as a probe must.
    let connected = async {
        while TcpStream::connect((ip.as_str(), 8080)).await.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(180), connected)
        .await
        .expect("the pod listens");
    let before = pids(&containerd).await;
    assert_eq!(before.len(), 2, "{before:?}");
    assert_eq!(containerd.containers().await.unwrap().len(), 2);

    containerd.kill();
    assert!(client.handshake().await.is_err());
    assert!(Path::new(&format!("/proc/{}", before[&container])).exists());
    containerd.restart().await.unwrap();
    client.wait_ready().await.unwrap();
    assert_eq!(pids(&containerd).await, before);
    let (code, _) = exec(&client, &container, &["true"]).await;
    assert_eq!(code, 0);

    let owned = Owned::by(&containerd);
    let sockets = shim_sockets(containerd.folder());
    let number = containerd.folder().to_str().unwrap().rsplit('-').next().unwrap();
    let bridge = format!("/sys/class/net/ktest{number}/ifindex");
    let index = fs::read_to_string(&bridge).unwrap();
    drop(containerd);
    assert!(!owned.mark.exists());
    assert!(sockets.iter().all(|socket| !socket.exists()), "{sockets:?}");
    assert_eq!(owned.remains(), [""; 0]);
    for pid in before.values() {
        assert!(!runs(&pid.to_string()));
    }
    for result in fs::read_dir("/var/lib/cni/results")
        .into_iter()
        .flatten()
        .flatten()
    {
        assert!(
            !result.file_name().to_string_lossy().contains(&sandbox),
            "{result:?}"
        );
    }
    assert_ne!(fs::read_to_string(&bridge).ok(), Some(index));
    for hierarchy in fs::read_dir("/sys/fs/cgroup").unwrap().flatten() {
        let pod = hierarchy.path().join(format!("kubelet-testing/pod-{name}"));
        assert!(!pod.exists());
    }
}

#[tokio::test]
async fn a_panic_takes_everything_along() {
    let test = tokio::spawn(async {
        let containerd = Containerd::start().await.unwrap()?;
        let client = CriClient::connect(containerd.endpoint()).await.unwrap();
        run_pod(&client, "panics").await;
        std::panic::panic_any(Owned::by(&containerd));
        #[expect(unreachable_code)]
        Some(())
    });
    let Err(error) = test.await else { return };
    let owned = error.into_panic().downcast::<Owned>().expect("no other panic");
    assert!(!owned.mark.exists());
    assert_eq!(owned.remains(), [""; 0]);
}

#[tokio::test]
async fn what_a_killed_test_left_behind_goes_with_the_next() {
    const KILLED: &str = "KUBELET_TESTING_KILLED";
    if std::env::var_os(KILLED).is_some() {
        // Runs in the process that is killed: prints what runs, and waits for the kill.
        let containerd = Containerd::start().await.unwrap().unwrap();
        let client = CriClient::connect(containerd.endpoint()).await.unwrap();
        run_pod(&client, "orphan").await;
        for pid in pids(&containerd).await.values() {
            println!("pid {pid}");
        }
        println!("all told");
        return std::future::pending().await;
    }
    let Some(_skipped_if_missing) = Containerd::start().await.unwrap() else {
        return;
    };
    let test = "what_a_killed_test_left_behind_goes_with_the_next";
    let mut killed = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(KILLED, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(killed.stdout.take().unwrap())
        .lines()
        .map(Result::unwrap);
    let lines: Vec<_> = lines.take_while(|line| line != "all told").collect();
    killed.kill().unwrap();
    killed.wait().unwrap();
    let orphans: Vec<_> = lines
        .iter()
        .filter_map(|line| line.strip_prefix("pid "))
        .collect();
    assert_eq!(orphans.len(), 2, "{lines:?}");

    // Another test's fixture may be cleaning up already.
    let _next = Containerd::start().await.unwrap();
    let gone = async {
        while orphans.iter().any(|pid| runs(pid)) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(180), gone)
        .await
        .expect("orphans go");
}

fn runs(pid: &str) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    !status.is_empty() && !status.contains("State:\tZ")
}

#[tokio::test]
async fn several_at_once_do_not_meet() {
    let (one, other) = tokio::join!(Containerd::start(), Containerd::start());
    let (Some(one), Some(other)) = (one.unwrap(), other.unwrap()) else {
        return;
    };
    assert_ne!(one.endpoint(), other.endpoint());
    for (containerd, expected) in [(&one, true), (&other, false)] {
        let client = CriClient::connect(containerd.endpoint()).await.unwrap();
        if expected {
            run_pod(&client, "alone").await;
        }
        assert_eq!(!containerd.containers().await.unwrap().is_empty(), expected);
    }
    drop(other);
    assert_eq!(pids(&one).await.len(), 2);
}

#[tokio::test]
async fn a_containerd_2_tells_of_its_containers() {
    let Some(containerd) = Containerd::start_2().await.unwrap() else {
        return;
    };
    let client = CriClient::connect(containerd.endpoint()).await.unwrap();
    let version = client.version(VersionRequest::default()).await.unwrap();
    assert!(version.runtime_version.starts_with("2."), "{version:?}");
    let mut events = client.get_container_events(GetEventsRequest {}).await.unwrap();
    let (_, container) = run_pod(&client, "tells").await;
    let started = async {
        while let Some(event) = events.next().await {
            let event = event.unwrap();
            if event.container_id == container
                && event.container_event_type() == ContainerEventType::ContainerStartedEvent
            {
                return;
            }
        }
        panic!("no more events");
    };
    tokio::time::timeout(Duration::from_secs(180), started)
        .await
        .expect("it tells that the container was started");
}

#[tokio::test]
async fn the_pull_of_an_image_that_is_not_there_fails() {
    let Some(containerd) = Containerd::start().await.unwrap() else {
        return;
    };
    let client = CriClient::connect(containerd.endpoint()).await.unwrap();
    let image = Some(ImageSpec {
        image: "docker.io/library/nothing:1".into(),
        ..Default::default()
    });
    let error = client
        .pull_image(PullImageRequest {
            image,
            ..Default::default()
        })
        .await
        .unwrap_err();
    assert!(error.to_string().contains("nothing:1"), "{error}");
}
