//! Steps that many clauses share, for a runtime with the two services of CRI.

use std::path::PathBuf;

use kubelet_cri::v1;
use kubelet_cri::v1::{ContainerState, PodSandboxState};

use crate::conformance::bench::Bench;
use crate::conformance::program::Program;
use crate::conformance::verdict::{During, Outcome, Seen, ensure};

/// Seconds. For stops where the grace period does not matter.
pub(super) const NO_GRACE: i64 = 0;
/// Longer than the time limit of a clause, so a clause that waits for its end fails.
pub(super) const LONG_GRACE: i64 = 24 * 60 * 60;
/// The label by which a kubelet finds the sandboxes and containers of a pod.
const UID_LABEL: &str = "io.kubernetes.pod.uid";

/// A sandbox and its config.
#[derive(Clone, Debug)]
pub(super) struct Sandbox {
    pub(super) id: String,
    pub(super) config: v1::PodSandboxConfig,
}

impl Sandbox {
    pub(super) fn uid(&self) -> &str {
        self.config.metadata.as_ref().map_or("", |metadata| &metadata.uid)
    }
}

/// Sandboxes or containers of one pod.
pub(super) fn of_pod(uid: &str) -> std::collections::BTreeMap<String, String> {
    [(UID_LABEL.to_owned(), uid.to_owned())].into()
}

impl Bench {
    /// The first sandbox of a new pod, on the host's network.
    pub(super) fn sandbox_config(&self) -> v1::PodSandboxConfig {
        let uid = self.uid();
        v1::PodSandboxConfig {
            metadata: Some(v1::PodSandboxMetadata {
                name: format!("pod-{uid}"),
                uid: uid.clone(),
                namespace: "conformance".to_owned(),
                attempt: 0,
            }),
            log_directory: self.log_dir(&uid).display().to_string(),
            labels: of_pod(&uid),
            annotations: [("conformance/note".to_owned(), "kept as it is".to_owned())].into(),
            linux: Some(v1::LinuxPodSandboxConfig {
                cgroup_parent: format!("/{}", Self::cgroup(&uid)),
                security_context: Some(v1::LinuxSandboxSecurityContext {
                    namespace_options: Some(v1::NamespaceOption {
                        network: v1::NamespaceMode::Node as i32,
                        ..Default::default()
                    }),
                    ..Default::default()
                }),
                ..Default::default()
            }),
            ..Default::default()
        }
    }

    /// Runs a sandbox of a new pod.
    pub(super) async fn sandbox(&self) -> Outcome<Sandbox> {
        let config = self.sandbox_config();
        self.run_sandbox(config).await
    }

    pub(super) async fn run_sandbox(&self, config: v1::PodSandboxConfig) -> Outcome<Sandbox> {
        let services = self.services();
        let run = services.runtime.run_pod_sandbox(run_request(&config));
        let id = self.answer("RunPodSandbox", run).await??.pod_sandbox_id;
        ensure!(!id.is_empty(), "RunPodSandbox gave no id");
        Ok(Sandbox { id, config })
    }

    pub(super) fn create_request(
        &self,
        sandbox: &Sandbox,
        name: &str,
        attempt: u32,
        program: &Program,
    ) -> Outcome<v1::CreateContainerRequest> {
        let workload = self.workload(program);
        // Creates the folder.
        self.log_path(sandbox.uid(), name, attempt)?;
        let env = workload.env.into_iter();
        let envs = env
            .map(|(key, value)| v1::KeyValue {
                key,
                value: value.into_bytes(),
            })
            .collect();
        let config = v1::ContainerConfig {
            metadata: Some(v1::ContainerMetadata {
                name: name.to_owned(),
                attempt,
            }),
            image: Some(v1::ImageSpec {
                image: workload.image,
                ..Default::default()
            }),
            command: workload.command,
            args: workload.args,
            envs,
            labels: of_pod(sandbox.uid()),
            annotations: [("conformance/note".to_owned(), "kept as well".to_owned())].into(),
            log_path: format!("{name}/{attempt}.log"),
            linux: Some(v1::LinuxContainerConfig::default()),
            ..Default::default()
        };
        Ok(v1::CreateContainerRequest {
            pod_sandbox_id: sandbox.id.clone(),
            config: Some(config),
            sandbox_config: Some(sandbox.config.clone()),
        })
    }

    pub(super) fn container_log(&self, sandbox: &Sandbox) -> Outcome<PathBuf> {
        self.log_path(sandbox.uid(), "main", 0)
    }

    pub(super) async fn create_as(
        &self,
        sandbox: &Sandbox,
        name: &str,
        attempt: u32,
        program: &Program,
    ) -> Outcome<String> {
        let request = self.create_request(sandbox, name, attempt, program)?;
        let services = self.services();
        let created = self
            .answer("CreateContainer", services.runtime.create_container(request))
            .await??;
        ensure!(!created.container_id.is_empty(), "CreateContainer gave no id");
        Ok(created.container_id)
    }

    /// Creates the container `main`.
    pub(super) async fn create(&self, sandbox: &Sandbox, program: &Program) -> Outcome<String> {
        self.create_as(sandbox, "main", 0, program).await
    }

    pub(super) async fn start_container(&self, id: &str) -> Outcome {
        let services = self.services();
        let request = v1::StartContainerRequest {
            container_id: id.to_owned(),
        };
        self.answer("StartContainer", services.runtime.start_container(request))
            .await??;
        Ok(())
    }

    /// Runs a pod with one container, and starts it.
    pub(super) async fn start_pod(&self, program: &Program) -> Outcome<(Sandbox, String)> {
        let sandbox = self.sandbox().await?;
        let id = self.create(&sandbox, program).await?;
        self.start_container(&id).await?;
        Ok((sandbox, id))
    }

    /// Runs a pod with one container that exits, and waits for its end.
    pub(super) async fn run_pod(&self, program: &Program) -> Outcome<(Sandbox, String, v1::ContainerStatus)> {
        let (sandbox, id) = self.start_pod(program).await?;
        let status = self.exited(&id).await?;
        Ok((sandbox, id, status))
    }

    /// Runs a program that handles or ignores its stop signal, and waits until it is ready for the signal.
    pub(super) async fn start_pod_ready(&self, program: &Program) -> Outcome<(Sandbox, String)> {
        let (sandbox, id) = self.start_pod(program).await?;
        if self.offers("logs") {
            let path = self.container_log(&sandbox)?;
            let ready = async || {
                let log = std::fs::read_to_string(&path).unwrap_or_default();
                Ok(log.contains("ready\n").then_some(()))
            };
            self.until("the line `ready` in the log", ready).await?;
        }
        Ok((sandbox, id))
    }

    /// The full status of a container; `None` if the id is unknown.
    pub(super) async fn find(&self, id: &str) -> Outcome<Option<v1::ContainerStatus>> {
        let services = self.services();
        let request = v1::ContainerStatusRequest {
            container_id: id.to_owned(),
            verbose: false,
        };
        match self
            .answer("ContainerStatus", services.runtime.container_status(request))
            .await?
        {
            Ok(answer) => {
                let status = answer
                    .status
                    .ok_or_else(|| Seen::new("ContainerStatus gave no status"))?;
                ensure!(
                    status.id == id,
                    "ContainerStatus of {id} is the status of {:?}",
                    status.id
                );
                Ok(Some(status))
            }
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    pub(super) async fn container_status(&self, id: &str) -> Outcome<v1::ContainerStatus> {
        let found = self.find(id).await?;
        found.ok_or_else(|| Seen::new(format!("ContainerStatus: there is no container {id}")))
    }

    pub(super) async fn list_containers(&self, filter: v1::ContainerFilter) -> Outcome<Vec<v1::Container>> {
        let services = self.services();
        let request = v1::ListContainersRequest { filter: Some(filter) };
        Ok(self
            .answer("ListContainers", services.runtime.list_containers(request))
            .await??
            .containers)
    }

    pub(super) async fn list_sandboxes(&self, filter: v1::PodSandboxFilter) -> Outcome<Vec<v1::PodSandbox>> {
        let services = self.services();
        let request = v1::ListPodSandboxRequest { filter: Some(filter) };
        Ok(self
            .answer("ListPodSandbox", services.runtime.list_pod_sandbox(request))
            .await??
            .items)
    }

    /// The container in the list; checks that the list has it at most once.
    pub(super) async fn listed_container(&self, id: &str) -> Outcome<Option<v1::Container>> {
        let mut list = self.list_containers(v1::ContainerFilter::default()).await?;
        list.retain(|container| container.id == id);
        ensure!(
            list.len() <= 1,
            "the list has container {id} {} times",
            list.len()
        );
        Ok(list.pop())
    }

    pub(super) async fn sandbox_status(&self, id: &str) -> Outcome<Option<v1::PodSandboxStatus>> {
        let services = self.services();
        let request = v1::PodSandboxStatusRequest {
            pod_sandbox_id: id.to_owned(),
            verbose: false,
        };
        match self
            .answer("PodSandboxStatus", services.runtime.pod_sandbox_status(request))
            .await?
        {
            Ok(answer) => match answer.status {
                Some(status) => Ok(Some(status)),
                None => Err(Seen::new("PodSandboxStatus gave no status")),
            },
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    pub(super) async fn exited(&self, id: &str) -> Outcome<v1::ContainerStatus> {
        let services = self.services();
        let what = format!("the end of container {id}");
        let ended = async || {
            let request = v1::ContainerStatusRequest {
                container_id: id.to_owned(),
                verbose: false,
            };
            let status = services.runtime.container_status(request).await?.status;
            Ok(status.filter(|status| status.state() == ContainerState::ContainerExited))
        };
        self.until(&what, ended).await
    }

    pub(super) async fn stop_container(&self, id: &str, timeout: i64) -> Outcome {
        let services = self.services();
        let request = v1::StopContainerRequest {
            container_id: id.to_owned(),
            timeout,
        };
        let stop = services.runtime.stop_container(request);
        gone_is_fine(self.answer("StopContainer", stop).await?)
    }

    pub(super) async fn remove_container(&self, id: &str) -> Outcome {
        let services = self.services();
        let request = v1::RemoveContainerRequest {
            container_id: id.to_owned(),
        };
        let remove = services.runtime.remove_container(request);
        gone_is_fine(self.answer("RemoveContainer", remove).await?)
    }

    pub(super) async fn stop_sandbox(&self, id: &str) -> Outcome {
        let services = self.services();
        let request = v1::StopPodSandboxRequest {
            pod_sandbox_id: id.to_owned(),
        };
        let stop = services.runtime.stop_pod_sandbox(request);
        gone_is_fine(self.answer("StopPodSandbox", stop).await?)
    }

    pub(super) async fn remove_sandbox(&self, id: &str) -> Outcome {
        let services = self.services();
        let request = v1::RemovePodSandboxRequest {
            pod_sandbox_id: id.to_owned(),
        };
        let remove = services.runtime.remove_pod_sandbox(request);
        gone_is_fine(self.answer("RemovePodSandbox", remove).await?)
    }

    /// Checks that a container is in this state, in the list and in its status.
    pub(super) async fn container_is(&self, id: &str, state: ContainerState) -> Outcome<v1::ContainerStatus> {
        let status = self.container_status(id).await?;
        ensure!(
            status.state() == state,
            "its status is {:?}, not {state:?}: {status:?}",
            status.state()
        );
        let listed = self.listed_container(id).await?;
        let same = listed.as_ref().is_some_and(|listed| listed.state() == state);
        ensure!(same, "its status is {state:?}, and the list has {listed:?}");
        Ok(status)
    }

    /// Checks that a sandbox is in this state, in the list and in its status.
    pub(super) async fn sandbox_is(&self, id: &str, state: PodSandboxState) -> Outcome<v1::PodSandboxStatus> {
        let status = self.sandbox_status(id).await?;
        let status =
            status.ok_or_else(|| Seen::new(format!("PodSandboxStatus: there is no sandbox {id}")))?;
        ensure!(
            status.state() == state,
            "its status is {:?}, not {state:?}: {status:?}",
            status.state()
        );
        let list = self.listed_sandbox(id).await?;
        let same = list.len() == 1 && list[0].state() == state;
        ensure!(same, "its status is {state:?}, and the list has {list:?}");
        Ok(status)
    }

    /// Stops a sandbox, checks that its status is not ready, and waits until the list agrees. containerd 2 updates its list when it
    /// handles the exit of the sandbox, which can be after `StopPodSandbox` returns.
    pub(super) async fn stop_sandbox_and_wait(&self, id: &str) -> Outcome {
        self.stop_sandbox(id).await?;
        let status = self.sandbox_status(id).await?;
        let not_ready = status
            .as_ref()
            .is_some_and(|status| status.state() == PodSandboxState::SandboxNotready);
        ensure!(not_ready, "the status of the stopped sandbox is {status:?}");
        self.until("the stopped sandbox in the list, not ready", async || {
            let list = self.listed_sandbox(id).await?;
            ensure!(list.len() == 1, "the list has {list:?} of the stopped sandbox");
            Ok((list[0].state() == PodSandboxState::SandboxNotready).then_some(()))
        })
        .await
    }

    /// What the list has of a sandbox: one, if the runtime keeps its promises.
    async fn listed_sandbox(&self, id: &str) -> Outcome<Vec<v1::PodSandbox>> {
        let mut list = self.list_sandboxes(v1::PodSandboxFilter::default()).await?;
        list.retain(|sandbox| sandbox.id == id);
        Ok(list)
    }

    /// Checks that nothing is left of a container.
    pub(super) async fn container_is_gone(&self, id: &str) -> Outcome {
        let listed = self.listed_container(id).await?;
        ensure!(listed.is_none(), "the list still has {listed:?}");
        let found = self.find(id).await?;
        ensure!(found.is_none(), "ContainerStatus still finds {found:?}");
        Ok(())
    }

    /// Checks that nothing is left of a sandbox.
    pub(super) async fn sandbox_is_gone(&self, id: &str) -> Outcome {
        let list = self.listed_sandbox(id).await?;
        ensure!(list.is_empty(), "the list still has {list:?}");
        let found = self.sandbox_status(id).await?;
        ensure!(found.is_none(), "PodSandboxStatus still finds {found:?}");
        Ok(())
    }

    /// Stops and removes all sandboxes of a pod, as a kubelet does with unwanted ones. Returns whether none is left.
    pub(super) async fn clear_away(&self, uid: &str) -> Outcome<bool> {
        let filter = v1::PodSandboxFilter {
            label_selector: of_pod(uid),
            ..Default::default()
        };
        let found = self.list_sandboxes(filter.clone()).await?;
        for sandbox in &found {
            self.stop_sandbox(&sandbox.id)
                .await
                .during("stop what was found")?;
            self.remove_sandbox(&sandbox.id)
                .await
                .during("remove what was found")?;
        }
        Ok(self.list_sandboxes(filter).await?.is_empty())
    }
}

pub(super) fn run_request(config: &v1::PodSandboxConfig) -> v1::RunPodSandboxRequest {
    v1::RunPodSandboxRequest {
        config: Some(config.clone()),
        runtime_handler: String::new(),
    }
}

/// For a kubelet, a missing container is stopped and removed.
fn gone_is_fine<T>(answer: Result<T, kubelet_cri::Error>) -> Outcome {
    match answer {
        Err(error) if !error.is_not_found() => Err(error.into()),
        _ => Ok(()),
    }
}
