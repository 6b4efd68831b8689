//! containerd is killed in each phase of a pod's start and stop: before a call, during it, and before its response.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use kubelet_core::runtime::ContainerState;
use kubelet_core::{PodExt, PodUid, RuntimeReader};
use kubelet_cri::{Code, CriClient, Error, RuntimeService, v1};
use kubelet_testing::{Containerd, Task};
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use super::garbage::shims_of;
use super::manager::{AllBut, Manager, pod};
use crate::standalone::{GUARD, until};
use crate::variables::number;

/// How often it is killed by default: at each call in each way. The variable `KUBELET_TESTING_KILLS` changes this; it is 100 in CI.
const KILLS: usize = CALLS.len() * 3;
/// The number of concurrent containerds.
const WORKERS: usize = 2;
const SERVER: &str = "trap 'exit 0' TERM; sleep 1000 & wait";

/// The calls of a pod's life, in order.
const CALLS: [&str; 7] = [
    "RunPodSandbox",
    "CreateContainer",
    "StartContainer",
    "StopContainer",
    "StopPodSandbox",
    "RemoveContainer",
    "RemovePodSandbox",
];

/// When containerd is killed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum When {
    BeforeCall,
    /// This long after the call, or before its response if that comes sooner.
    InCall(Duration),
    BeforeAnswer,
}

/// A CRI client that kills containerd at a call of some kind.
struct Tripwire {
    client: CriClient,
    containerd: Arc<tokio::sync::Mutex<Containerd>>,
    armed: Mutex<Option<(&'static str, When)>>,
    tripped: Notify,
}

impl Tripwire {
    async fn call<T>(
        &self,
        name: &'static str,
        call: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let armed = self.armed.lock().take_if(|(armed_for, _)| *armed_for == name);
        let Some((_, when)) = armed else {
            return call.await;
        };
        match when {
            When::BeforeCall => {
                self.kill().await;
                call.await
            }
            When::InCall(after) => {
                tokio::pin!(call);
                let answered = timeout(after, &mut call).await;
                self.kill().await;
                match answered {
                    Ok(_) => Err(Error::call(Code::Unavailable, name, "", "the answer was lost")),
                    Err(_) => call.await,
                }
            }
            When::BeforeAnswer => {
                let _ = call.await;
                self.kill().await;
                Err(Error::call(Code::Unavailable, name, "", "the answer was lost"))
            }
        }
    }

    async fn kill(&self) {
        self.containerd.lock().await.kill();
        self.tripped.notify_one();
    }
}

macro_rules! pass_on {
    ($($name:literal $method:ident $request:ident $response:ident;)*) => {
        #[async_trait]
        impl RuntimeService for Tripwire {
            $(async fn $method(&self, request: v1::$request) -> Result<v1::$response, Error> {
                self.call($name, self.client.$method(request)).await
            })*
        }
    };
}

pass_on! {
    "Version" version VersionRequest VersionResponse;
    "RunPodSandbox" run_pod_sandbox RunPodSandboxRequest RunPodSandboxResponse;
    "StopPodSandbox" stop_pod_sandbox StopPodSandboxRequest StopPodSandboxResponse;
    "RemovePodSandbox" remove_pod_sandbox RemovePodSandboxRequest RemovePodSandboxResponse;
    "PodSandboxStatus" pod_sandbox_status PodSandboxStatusRequest PodSandboxStatusResponse;
    "ListPodSandbox" list_pod_sandbox ListPodSandboxRequest ListPodSandboxResponse;
    "CreateContainer" create_container CreateContainerRequest CreateContainerResponse;
    "StartContainer" start_container StartContainerRequest StartContainerResponse;
    "StopContainer" stop_container StopContainerRequest StopContainerResponse;
    "RemoveContainer" remove_container RemoveContainerRequest RemoveContainerResponse;
    "ListContainers" list_containers ListContainersRequest ListContainersResponse;
    "ContainerStatus" container_status ContainerStatusRequest ContainerStatusResponse;
    "Status" status StatusRequest StatusResponse;
}

/// One containerd that is killed in these rounds.
async fn rounds(containerd: Containerd, rounds: impl Iterator<Item = usize>) {
    let folder = containerd.folder().to_owned();
    let client = CriClient::builder(containerd.endpoint());
    let client =
        client.backoff(Duration::from_millis(10), Duration::from_millis(50)).connect().await.unwrap();
    let containerd = Arc::new(tokio::sync::Mutex::new(containerd));
    let wire = Arc::new(Tripwire {
        client: client.clone(),
        containerd: containerd.clone(),
        armed: Mutex::new(None),
        tripped: Notify::new(),
    });
    let manager = Manager::on(wire.clone(), Arc::new(client)).await;
    let bystander = pod("bystander", SERVER, "Always");
    let running = |status: &kubelet_core::runtime::PodStatus| {
        status.container("main").is_some_and(|main| main.state == ContainerState::Running)
    };
    manager.sync_until(&bystander, running).await;
    let before = tasks(&*containerd.lock().await).await;
    let others = AllBut(Some(PodUid::from("bystander")));

    for round in rounds {
        let mut random = fastrand::Rng::with_seed(round as u64);
        let call = CALLS[round % CALLS.len()];
        let when = match round / CALLS.len() % 3 {
            0 => When::InCall(Duration::from_micros(random.u64(..60_000))),
            1 => When::BeforeAnswer,
            _ => When::BeforeCall,
        };
        let what = format!("round {round}: {call}, {when:?}");
        *wire.armed.lock() = Some((call, when));
        let pod = pod(&format!("round-{round}"), SERVER, "Always");
        let life = async {
            manager.sync_until(&pod, running).await;
            // A call that starts pods is followed by a kill only here.
            if CALLS[..3].contains(&call) {
                until(&what, async || wire.armed.lock().is_none().then_some(())).await;
            }
            let listed = async || manager.runtime.pod(&pod.uid()).await.ok().flatten();
            let listed = until("containerd is back", listed).await;
            let runs = listed.containers.iter().filter(|it| it.state == ContainerState::Running).count();
            assert_eq!(runs, 1, "{what}: it runs once");
            manager.kill(&pod).await;
            loop {
                manager.collect(&others).await;
                if manager
                    .status(&pod)
                    .await
                    .is_ok_and(|it| it.sandboxes.is_empty() && it.containers.is_empty())
                {
                    break;
                }
                sleep(Duration::from_millis(20)).await;
            }
        };
        let back = async {
            wire.tripped.notified().await;
            containerd.lock().await.restart().await.unwrap();
        };
        let both = futures::future::join(life, back);
        timeout(GUARD, both).await.unwrap_or_else(|_| panic!("{what}: the pod is stuck"));
        assert_eq!(tasks(&*containerd.lock().await).await, before, "{what}: only the bystander is left");
    }

    let logs = std::fs::read_dir(manager.dir.path().join("logs")).unwrap();
    let logs: Vec<_> = logs.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(logs, ["default_bystander_bystander"]);
    let mut left = Vec::new();
    let one_pod = async {
        loop {
            end_lost_tasks(&folder, &*containerd.lock().await).await;
            left = processes_of_pods(&folder);
            if left.iter().map(|(shim, _)| shim).collect::<HashSet<_>>().len() == 1 {
                break;
            }
            sleep(Duration::from_millis(100)).await;
        }
    };
    let waited = timeout(GUARD, one_pod).await;
    assert!(waited.is_ok(), "more than the bystander is left: {left:#?}");
    let status = manager.status(&bystander).await.unwrap();
    let main = status.container("main").unwrap();
    assert_eq!((main.restart_count, status.containers.len(), status.sandboxes.len()), (0, 1, 1));
    manager.kill(&bystander).await;
}

/// The processes of pods, each with its shim. If containerd is killed while it removes a task, the shim may stay.
/// It holds nothing and is in no list, so CRI cannot end it.
fn processes_of_pods(folder: &Path) -> Vec<(u32, String)> {
    let shims: HashSet<u32> = shims_of(folder).into_iter().map(|(pid, _)| pid).collect();
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let stats = processes.filter_map(|process| std::fs::read_to_string(process.path().join("stat")).ok());
    // `pid (name) state parent …`
    let of_shim = |stat: String| {
        let (state, parent) = stat.rsplit_once(')')?.1.trim_start().split_once(' ')?;
        let parent = parent.split_whitespace().next()?.parse().ok()?;
        // What has ended, and was only not waited for, holds nothing.
        (state != "Z" && shims.contains(&parent)).then_some((parent, stat))
    };
    stats.filter_map(of_shim).collect()
}

/// Ends what containerd lost. If containerd is killed while it makes a task, it may forget this task, and `runc init` then waits
/// for a start that nobody requests. CRI lists no pod for it, so no agent can end it. It never ran a command of a container; a
/// process that did is left, and fails the test.
async fn end_lost_tasks(folder: &Path, containerd: &Containerd) {
    let listed: HashSet<u32> = tasks(containerd).await.into_iter().map(|task| task.pid).collect();
    for (_, stat) in processes_of_pods(folder) {
        let Some((pid, name)) = stat.split_once(' ') else { continue };
        let Ok(pid) = pid.parse() else { continue };
        if name.starts_with("(runc:[2:INIT])") && !listed.contains(&pid) {
            let pid = Pid::from_raw(pid.try_into().unwrap()).unwrap();
            // It may have ended by itself.
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

async fn tasks(containerd: &Containerd) -> Vec<Task> {
    let mut tasks = containerd.tasks().await.unwrap();
    tasks.sort_by_key(|task| task.pid);
    tasks
}

#[tokio::test]
async fn no_pod_is_doubled_leaked_or_stuck() {
    let kills = number("KUBELET_TESTING_KILLS").map_or(KILLS, |kills| kills.try_into().unwrap());
    let mut workers = Vec::new();
    for worker in 0..WORKERS {
        let Some(containerd) = Containerd::start().await.unwrap() else { return };
        workers.push(rounds(containerd, (worker..kills).step_by(WORKERS)));
    }
    futures::future::join_all(workers).await;
}
