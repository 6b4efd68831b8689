//! A running program with a kubelet's command line, its runtime and its static pods.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use kubelet_cri::{CriClient, RuntimeService, v1};
use kubelet_testing::Containerd;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::process::{Child, Command};

use crate::client::Client;
use crate::member::{NODE, configuration};
use crate::process::{cpu_seconds, megabytes, proc};

/// A timeout longer than anything here takes.
const GUARD: Duration = Duration::from_secs(300);

/// How a program is set up, beyond what all have.
#[derive(Default)]
pub(crate) struct Setup<'a> {
    /// Replaced in the configuration: text, and what is there instead.
    pub(crate) changes: &'a [(&'a str, &'a str)],
    /// More lines of the configuration.
    pub(crate) settings: &'a str,
    /// More arguments.
    pub(crate) arguments: &'a [String],
    /// Each container starts a program once a second. Otherwise they sleep.
    pub(crate) busy: bool,
}

/// A program on a containerd of its own. Everybody may do everything. Without further arguments it has no API server.
pub(crate) struct Program {
    pub(crate) client: Client,
    pub(crate) runtime: CriClient,
    /// The program and its arguments.
    command: Vec<String>,
    process: Child,
    busy: bool,
    dir: TempDir,
    _containerd: Containerd,
}

impl Program {
    /// Waits until the server answers.
    pub(crate) async fn start(program: &str, containerd: Containerd, setup: &Setup<'_>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
        fs::create_dir(path("manifests")).unwrap();
        let certified = rcgen::generate_simple_self_signed([NODE.to_owned()]).unwrap();
        fs::write(path("tls.crt"), certified.cert.pem()).unwrap();
        fs::write(path("tls.key"), certified.signing_key.serialize_pem()).unwrap();
        let address = free_port().await;
        let mut config = configuration(&containerd.endpoint(), &path("logs"));
        for (from, to) in setup.changes {
            config = config.replace(from, to);
        }
        config += &format!(
            "staticPodPath: {}
address: {}
port: {}
tlsCertFile: {}
tlsPrivateKeyFile: {}
authentication: {{anonymous: {{enabled: true}}, webhook: {{enabled: false}}}}
authorization: {{mode: AlwaysAllow}}
containerLogMaxSize: 100Gi
evictionHard: {{nodefs.available: 1%}}
",
            path("manifests"),
            address.ip(),
            address.port(),
            path("tls.crt"),
            path("tls.key"),
        );
        config += setup.settings;
        fs::write(path("config.yaml"), config).unwrap();
        let mut command = [
            program,
            "--config",
            &path("config.yaml"),
            "--root-dir",
            &path("root"),
            "--cert-dir",
            &path("pki"),
            "--hostname-override",
            NODE,
            // Where cAdvisor in the Go kubelet finds the containers.
            "--containerd",
            containerd.endpoint().trim_start_matches("unix://"),
        ]
        .map(str::to_owned)
        .to_vec();
        command.extend_from_slice(setup.arguments);
        let mut program = Self {
            client: Client::new(address, NODE, certified.cert.der().clone()),
            runtime: CriClient::connect(containerd.endpoint()).await.unwrap(),
            process: launched(&command, dir.path()),
            busy: setup.busy,
            command,
            dir,
            _containerd: containerd,
        };
        let listening = async |_: &Self| tokio::net::TcpStream::connect(address).await.is_ok();
        program.until("it listens", listening).await;
        program
    }

    /// Adds static pods with these names, and waits until this many run.
    pub(crate) async fn run(&mut self, names: &[String], pods: usize) {
        let command = match self.busy {
            true => vec!["sh", "-c", "while :; do sleep 1; done"],
            false => vec!["sleep", "10000"],
        };
        for name in names {
            let pod = serde_json::json!({
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": { "name": name, "namespace": "default" },
                "spec": {
                    "hostNetwork": true,
                    "terminationGracePeriodSeconds": 1,
                    "containers": [{
                        "name": "main",
                        "image": Containerd::BUSYBOX,
                        "imagePullPolicy": "IfNotPresent",
                        "command": command,
                    }],
                },
            });
            let file = self.dir.path().join("manifests").join(format!("{name}.json"));
            fs::write(file, pod.to_string()).unwrap();
        }
        let all_run = async |program: &Self| {
            let list = program.client.connect().await.get("/pods").await;
            memchr::memmem::find_iter(&list, br#""phase":"Running""#).count() == pods
        };
        self.until("the pods run", all_run).await;
    }

    async fn until(&mut self, what: &str, reached: impl AsyncFn(&Self) -> bool) {
        let begun = Instant::now();
        while !reached(self).await {
            let log = self.dir.path().join("log");
            let last = || {
                fs::read_to_string(&log)
                    .unwrap()
                    .lines()
                    .last()
                    .map(str::to_owned)
            };
            assert!(begun.elapsed() < GUARD, "not in time: {what}: {:?}", last());
            if let Some(ended) = self.process.try_wait().unwrap() {
                panic!("the program has ended, {ended}, before {what}: {:?}", last());
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }

    /// A file of a volume of a pod.
    #[allow(dead_code, reason = "not each bench has volumes")]
    pub(crate) fn volume(&self, pod_uid: &str, file: &str) -> PathBuf {
        let pods = self.dir.path().join("root/pods");
        pods.join(pod_uid).join("volumes").join(file)
    }

    /// The log file of the container of this pod.
    pub(crate) fn log_file(&self, pod: &str) -> PathBuf {
        let start = format!("default_{pod}_");
        let of_pod = |folder: &Path| {
            let name = folder.file_name().unwrap_or_default();
            name.to_string_lossy().starts_with(&start)
        };
        let folders = fs::read_dir(self.dir.path().join("logs")).unwrap();
        let mut folders = folders.map(|entry| entry.unwrap().path());
        folders.find(|folder| of_pod(folder)).unwrap().join("main/0.log")
    }

    /// All containers: their ids and states.
    #[allow(dead_code, reason = "not each bench restarts the program")]
    pub(crate) async fn containers(&self) -> BTreeMap<String, i32> {
        let listed = self.runtime.list_containers(v1::ListContainersRequest::default());
        let containers = listed.await.unwrap().containers.into_iter();
        containers
            .map(|container| (container.id, container.state))
            .collect()
    }

    /// The id of the container of this pod.
    pub(crate) async fn container(&self, pod: &str) -> String {
        let filter = v1::ContainerFilter {
            label_selector: [("io.kubernetes.pod.name".to_owned(), pod.to_owned())].into(),
            ..v1::ContainerFilter::default()
        };
        let request = v1::ListContainersRequest { filter: Some(filter) };
        let listed = self.runtime.list_containers(request).await.unwrap();
        listed.containers[0].id.clone()
    }

    /// Measures the process from its start on.
    #[allow(dead_code, reason = "not each bench needs it")]
    pub(crate) fn meter_of_all(&self) -> Meter {
        Meter {
            cpu: 0.0,
            ..self.meter_within()
        }
    }

    /// Starts to measure the process, and its memory anew.
    pub(crate) fn meter(&self) -> Meter {
        let pid = self.process.id().expect("the program has ended");
        // It makes the present memory the peak.
        fs::write(format!("/proc/{pid}/clear_refs"), "5").unwrap();
        self.meter_within()
    }

    /// Starts to measure a part of what another meter measures. The memory's peak may be from before.
    pub(crate) fn meter_within(&self) -> Meter {
        let pid = self.process.id().expect("the program has ended");
        Meter {
            pid,
            rss: megabytes(&proc(pid, "status"), "VmRSS:"),
            cpu: cpu_seconds(pid),
            clients_cpu: cpu_seconds(std::process::id()),
            begun: Instant::now(),
        }
    }

    /// Ends the program and starts it again.
    #[allow(dead_code, reason = "not each bench does it")]
    pub(crate) async fn restart(&mut self) {
        self.terminate().await;
        self.process = launched(&self.command, self.dir.path());
    }

    /// Ends the program.
    pub(crate) async fn end(mut self) {
        self.terminate().await;
    }

    /// With SIGTERM, so that it can write a profile.
    async fn terminate(&mut self) {
        let pid = self.process.id().expect("the program has ended");
        kill_process(Pid::from_raw(pid.try_into().unwrap()).unwrap(), Signal::TERM).unwrap();
        let ended = tokio::time::timeout(GUARD, self.process.wait()).await;
        ended.expect("the program did not end in time").unwrap();
    }
}

/// Starts a program. Its output is in `log` in this folder.
fn launched(command: &[String], dir: &Path) -> Child {
    let log = File::options()
        .create(true)
        .append(true)
        .open(dir.join("log"))
        .unwrap();
    Command::new(&command[0])
        .args(&command[1..])
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .kill_on_drop(true)
        .spawn()
        .expect("the program does not start")
}

/// Measures a process from a moment on.
pub(crate) struct Meter {
    pid: u32,
    rss: f64,
    cpu: f64,
    clients_cpu: f64,
    begun: Instant,
}

/// What a process used.
pub(crate) struct Used {
    pub(crate) seconds: f64,
    pub(crate) cpu: f64,
    /// The CPU time of the bench itself.
    pub(crate) clients_cpu: f64,
    /// How much the peak of the resident memory is above the memory at the begin, in megabytes.
    pub(crate) growth: f64,
    /// The peak of the resident memory, in megabytes.
    pub(crate) peak: f64,
}

impl Meter {
    pub(crate) fn used(&self) -> Used {
        let peak = megabytes(&proc(self.pid, "status"), "VmHWM:");
        Used {
            seconds: self.begun.elapsed().as_secs_f64(),
            cpu: cpu_seconds(self.pid) - self.cpu,
            clients_cpu: cpu_seconds(std::process::id()) - self.clients_cpu,
            growth: peak - self.rss,
            peak,
        }
    }
}

async fn free_port() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap()
}
