//! The simulation detects violations: for each invariant there is an agent that violates it.
use std::future::{Future, pending};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube_client::Api;
use kube_client::api::{DeleteParams, Patch, PatchParams};
use kubelet_core::PodExt;
use kubelet_cri::{ImageService, RuntimeService, v1};
use kubelet_testing::simulation::{AgentError, SimulatedNode};
use kubelet_testing::{FaultPlan, Simulation, Workload};
use serde_json::{Value, json};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

const TIME: Duration = Duration::from_secs(900);
const MINUTE: Duration = Duration::from_secs(60);

/// The error of a simulation of one node with a faulty agent.
fn caught<F>(
    workload: Workload,
    agent: impl Fn(SimulatedNode, CancellationToken) -> F + Send + Sync + 'static,
) -> String
where
    F: Future<Output = Result<(), AgentError>> + Send + 'static,
{
    let simulation = Simulation::seed(1).node("node-1").workload(workload);
    let failure = simulation.agent(agent).run(TIME).unwrap_err();
    failure.problems.join("\n")
}

/// This project's agent, and a misbehaving actor beside it.
async fn beside<F>(
    node: SimulatedNode,
    shutdown: CancellationToken,
    meddles: impl FnOnce(SimulatedNode) -> F,
) -> Result<(), AgentError>
where
    F: Future<Output = Result<(), AgentError>>,
{
    let meddler = async {
        match meddles(node.clone()).await {
            Ok(()) => pending().await,
            Err(error) => Err(error),
        }
    };
    tokio::select! {
        biased;
        ended = node.clone().run_kubelet(shutdown) => ended,
        failed = meddler => failed,
    }
}

fn web(image: &str) -> Workload {
    pod(json!({"containers": [{"name": "main", "image": image}]}))
}

fn pod(spec: Value) -> Workload {
    let pod = json!({"metadata": {"name": "web"}, "spec": spec});
    Workload::pods([serde_json::from_value::<Pod>(pod).unwrap()])
}

fn pods(node: &SimulatedNode) -> Api<Pod> {
    Api::namespaced(node.client.get(), "default")
}

async fn the_pod(node: &SimulatedNode) -> Result<Pod, AgentError> {
    loop {
        // Before the node exists, it has no permission to ask for it.
        if let Ok(pod) = pods(node).get("web").await {
            return Ok(pod);
        }
        sleep(Duration::from_secs(1)).await;
    }
}

async fn patch_status(node: &SimulatedNode, status: Value) -> Result<(), AgentError> {
    let patch = Patch::Strategic(json!({"status": status}));
    pods(node)
        .patch_status("web", &PatchParams::default(), &patch)
        .await?;
    Ok(())
}

fn labels(uid: &str, container: &str) -> std::collections::BTreeMap<String, String> {
    let labels = [
        ("io.kubernetes.pod.name", "web"),
        ("io.kubernetes.pod.namespace", "default"),
        ("io.kubernetes.pod.uid", uid),
        ("io.kubernetes.container.name", container),
    ];
    labels
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

fn sandbox(uid: &str, attempt: u32) -> v1::PodSandboxConfig {
    v1::PodSandboxConfig {
        metadata: Some(v1::PodSandboxMetadata {
            name: "web".into(),
            namespace: "default".into(),
            uid: uid.into(),
            attempt,
        }),
        labels: labels(uid, ""),
        ..Default::default()
    }
}

async fn run_sandbox(node: &SimulatedNode, uid: &str, attempt: u32) -> Result<String, AgentError> {
    let config = Some(sandbox(uid, attempt));
    let request = v1::RunPodSandboxRequest {
        config,
        ..Default::default()
    };
    Ok(node.runtime.run_pod_sandbox(request).await?.pod_sandbox_id)
}

async fn run_container(
    node: &SimulatedNode,
    uid: &str,
    in_sandbox: &str,
    name: &str,
    attempt: u32,
) -> Result<(), AgentError> {
    let image = Some(v1::ImageSpec {
        image: "nginx".into(),
        ..Default::default()
    });
    node.runtime
        .pull_image(v1::PullImageRequest {
            image: image.clone(),
            ..Default::default()
        })
        .await?;
    let config = v1::ContainerConfig {
        metadata: Some(v1::ContainerMetadata {
            name: name.into(),
            attempt,
        }),
        image,
        labels: labels(uid, name),
        ..Default::default()
    };
    let request = v1::CreateContainerRequest {
        pod_sandbox_id: in_sandbox.to_owned(),
        config: Some(config),
        sandbox_config: Some(sandbox(uid, 0)),
    };
    let container_id = node.runtime.create_container(request).await?.container_id;
    node.runtime
        .start_container(v1::StartContainerRequest { container_id })
        .await?;
    Ok(())
}

#[test]
fn an_agent_that_holds_to_all_is_not_caught() {
    let simulation = Simulation::seed(1).node("node-1").workload(web("nginx"));
    let agent = |node, shutdown| beside(node, shutdown, |_| async { Ok(()) });
    simulation
        .agent(agent)
        .run(TIME)
        .unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn a_container_that_runs_twice() {
    let told = caught(web("nginx"), |node, shutdown| async move {
        let uid = the_pod(&node).await?.uid();
        let sandbox = run_sandbox(&node, uid.as_str(), 0).await?;
        run_container(&node, uid.as_str(), &sandbox, "main", 0).await?;
        run_container(&node, uid.as_str(), &sandbox, "main", 1).await?;
        shutdown.cancelled().await;
        Ok(())
    });
    assert!(
        told.contains("web/main#1 runs beside others of its name"),
        "{told}"
    );
}

#[test]
fn a_container_before_its_init_containers() {
    let spec = json!({
        "initContainers": [{"name": "setup", "image": "sim/setup"}],
        "containers": [{"name": "main", "image": "nginx"}],
    });
    let told = caught(pod(spec), |node, shutdown| async move {
        let uid = the_pod(&node).await?.uid();
        let sandbox = run_sandbox(&node, uid.as_str(), 0).await?;
        run_container(&node, uid.as_str(), &sandbox, "main", 0).await?;
        shutdown.cancelled().await;
        Ok(())
    });
    assert!(
        told.contains("is started before init container setup is done"),
        "{told}"
    );
}

#[test]
fn a_container_before_a_sidecar() {
    let spec = json!({
        "initContainers": [{"name": "proxy", "image": "nginx", "restartPolicy": "Always"}],
        "containers": [{"name": "main", "image": "nginx"}],
    });
    let told = caught(pod(spec), |node, shutdown| async move {
        let uid = the_pod(&node).await?.uid();
        let sandbox = run_sandbox(&node, uid.as_str(), 0).await?;
        run_container(&node, uid.as_str(), &sandbox, "main", 0).await?;
        shutdown.cancelled().await;
        Ok(())
    });
    assert!(
        told.contains("is started before init container proxy is done"),
        "{told}"
    );
}

#[test]
fn a_terminal_phase_that_is_left() {
    let spec = json!({"restartPolicy": "Never", "containers": [{"name": "main", "image": "sim/job"}]});
    let told = caught(pod(spec), |node, shutdown| {
        beside(node, shutdown, |node| async move {
            sleep(10 * MINUTE).await;
            patch_status(&node, json!({"phase": "Running"})).await
        })
    });
    assert!(
        told.contains("left the terminal phase Succeeded for Running"),
        "{told}"
    );
}

#[test]
fn a_count_of_restarts_that_falls() {
    let told = caught(web("sim/fails"), |node, shutdown| {
        beside(node, shutdown, |node| async move {
            sleep(10 * MINUTE).await;
            let pod = the_pod(&node).await?;
            let mut container = pod
                .status
                .unwrap_or_default()
                .container_statuses
                .unwrap_or_default()
                .remove(0);
            container.restart_count = 0;
            patch_status(&node, json!({"containerStatuses": [container]})).await
        })
    });
    assert!(told.contains("restarts of main went from"), "{told}");
}

#[test]
fn a_pod_that_goes_before_its_containers() {
    let told = caught(web("nginx"), |node, shutdown| {
        beside(node, shutdown, |node| async move {
            sleep(MINUTE).await;
            pods(&node)
                .delete("web", &DeleteParams::default().grace_period(0))
                .await?;
            Ok(())
        })
    });
    assert!(told.contains("it is deleted, but main still runs"), "{told}");
}

#[test]
fn a_container_that_is_started_after_its_pod_went() {
    let told = caught(web("nginx"), |node, shutdown| async move {
        let uid = the_pod(&node).await?.uid();
        pods(&node)
            .delete("web", &DeleteParams::default().grace_period(0))
            .await?;
        sleep(MINUTE).await;
        let sandbox = run_sandbox(&node, uid.as_str(), 0).await?;
        run_container(&node, uid.as_str(), &sandbox, "main", 0).await?;
        shutdown.cancelled().await;
        Ok(())
    });
    assert!(told.contains("is started, and its pod is gone"), "{told}");
}

#[test]
fn a_pod_that_does_not_run() {
    let told = caught(web("nginx"), |_, shutdown| async move {
        shutdown.cancelled().await;
        Ok(())
    });
    assert!(
        told.contains("30 min after the last fault: node-1: pod default/web is Pending"),
        "{told}"
    );
}

#[test]
fn a_pod_that_runs_and_is_not_ready() {
    let told = caught(web("nginx"), |node, shutdown| {
        // Only the first agent checks its network.
        beside(node, shutdown, |node| async move {
            loop {
                sleep(Duration::from_millis(100)).await;
                let Ok(pod) = pods(&node).get("web").await else {
                    continue;
                };
                let containers = pod
                    .status
                    .unwrap_or_default()
                    .container_statuses
                    .unwrap_or_default();
                if let Some(mut container) = containers.into_iter().find(|container| container.ready) {
                    container.ready = false;
                    patch_status(&node, json!({"containerStatuses": [container]})).await?;
                }
            }
        })
    });
    assert!(told.contains("main runs but is not ready"), "{told}");
}

#[test]
fn a_pod_that_is_not_deleted() {
    let told = caught(web("nginx"), |node, shutdown| async move {
        // It runs the pod, and does not notice its deletion; nor does the next agent.
        if !node.runtime.containers().is_empty() {
            shutdown.cancelled().await;
            return Ok(());
        }
        let uid = the_pod(&node).await?.uid();
        let sandbox = run_sandbox(&node, uid.as_str(), 0).await?;
        run_container(&node, uid.as_str(), &sandbox, "main", 0).await?;
        let id = node.runtime.containers()[0].id.clone();
        patch_status(
            &node,
            json!({"phase": "Running", "containerStatuses": [{
                "name": "main", "image": "nginx", "imageID": "", "ready": true, "restartCount": 0,
                "containerID": format!("memory://{id}"), "state": {"running": {}},
            }]}),
        )
        .await?;
        shutdown.cancelled().await;
        Ok(())
    });
    assert!(
        told.contains("30 min after all pods were deleted: pod default/web is still there"),
        "{told}"
    );
}

#[test]
fn what_stays_in_the_runtime() {
    let told = caught(Workload::none(), |node, shutdown| async move {
        run_sandbox(&node, "4d1", 0).await?;
        shutdown.cancelled().await;
        Ok(())
    });
    assert!(
        told.contains("the runtime has a sandbox of the deleted pod 4d1"),
        "{told}"
    );
}

#[test]
fn what_stays_on_the_disk() {
    let told = caught(Workload::none(), |node, shutdown| async move {
        std::fs::create_dir_all(node.root_dir.join("pods/4d1"))?;
        std::fs::create_dir_all(node.root_dir.join("logs/default_web_4d2"))?;
        shutdown.cancelled().await;
        Ok(())
    });
    assert!(
        told.contains("the disk has a folder of the deleted pod 4d1"),
        "{told}"
    );
    assert!(told.contains("the disk has logs default_web_4d2"), "{told}");
}

#[test]
fn what_stays_in_memory() {
    let told = caught(web("nginx"), |node, shutdown| {
        beside(node, shutdown, |node| async move {
            let pod = the_pod(&node).await?;
            pods(&node).delete("web", &DeleteParams::default()).await?;
            sleep(5 * MINUTE).await;
            // One more status of a deleted pod.
            let kubelet = node.kubelet().unwrap();
            let last = kubelet.cache().get(&pod.uid());
            kubelet.cache().set(&pod.uid(), last, tokio::time::Instant::now());
            Ok(())
        })
    });
    assert!(told.contains("PodCache keep something of"), "{told}");
}

#[test]
fn tasks_that_stay_while_the_agent_runs() {
    let told = caught(web("nginx"), |node, shutdown| {
        beside(node, shutdown, |node| async move {
            the_pod(&node).await?;
            let mut tasks = tokio::task::JoinSet::new();
            tasks.spawn(pending::<()>());
            tasks.join_next().await;
            Ok(())
        })
    });
    assert!(told.contains("with all pods gone there are"), "{told}");
}

#[test]
fn tasks_that_stay_when_the_agent_has_ended() {
    let told = caught(Workload::none(), |_, shutdown| async move {
        tokio::spawn(pending::<()>());
        shutdown.cancelled().await;
        Ok(())
    });
    assert!(told.contains("left") && told.contains("tasks behind"), "{told}");
}

#[test]
fn an_agent_that_does_not_end() {
    let told = caught(Workload::none(), |_, _| pending());
    assert_eq!(told, "node-1: the agent did not end within 300s");
}

#[test]
fn an_agent_that_ends_by_itself() {
    let told = caught(Workload::none(), |_, _| async {
        sleep(MINUTE).await;
        Ok(())
    });
    assert_eq!(told, "node-1: the agent ended");
}

#[test]
fn a_restart_that_shows() {
    let told = caught(web("nginx"), |node, shutdown| {
        beside(node, shutdown, |node| async move {
            // Like an agent that has lost its probes' results.
            sleep(Duration::from_secs(2)).await;
            let conditions = json!([{"type": "Ready", "status": "False"}]);
            if pods(&node).get("web").await.is_err() {
                return Ok(());
            }
            patch_status(&node, json!({"conditions": conditions})).await
        })
    });
    assert!(
        told.contains("pod default/web: the agent's restart shows: conditions."),
        "{told}"
    );
}

/// The failure prints the plan with which it ran.
#[test]
fn a_failure_says_how_to_have_it_again() {
    let simulation = Simulation::seed(3).node("node-1").faults(FaultPlan::drawn(3));
    let failure = simulation.agent(|_, _| async { Ok(()) }).run(TIME).unwrap_err();
    let replay = format!(
        "Simulation::seed(3).node(\"node-1\").workload(Workload::none()).faults({})",
        FaultPlan::drawn(3)
    );
    assert!(failure.to_string().contains(&replay), "{failure}");
}
