//! The CRI answers of the adapter, for each answer of a runtime.

use std::sync::Arc;
use std::time::Duration;

use kubelet_cri::verbs::{ErrorClass, RegistryLogin, RuntimeError};
use kubelet_cri::{Code, CriAdapter, Error, ImageService, RuntimeService, v1};

use super::puppet::{Order, Puppet, Shelf};

struct Stage {
    puppet: Arc<Puppet>,
    cri: CriAdapter,
    sandbox: String,
}

impl Stage {
    async fn new() -> Self {
        let puppet = Arc::new(Puppet::default());
        let cri = CriAdapter::new(puppet.clone());
        let sandbox = run_sandbox(&cri, sandbox_config()).await.unwrap();
        Self { puppet, cri, sandbox }
    }

    async fn create(&self, attempt: u32) -> Result<String, Error> {
        let request = v1::CreateContainerRequest {
            pod_sandbox_id: self.sandbox.clone(),
            config: Some(container_config(attempt)),
            sandbox_config: None,
        };
        Ok(self.cri.create_container(request).await?.container_id)
    }

    async fn started(&self, attempt: u32) -> String {
        let id = self.create(attempt).await.unwrap();
        start(&self.cri, &id).await.unwrap();
        id
    }

    async fn status(&self, id: &str) -> Result<v1::ContainerStatus, Error> {
        let request = v1::ContainerStatusRequest {
            container_id: id.to_owned(),
            verbose: false,
        };
        Ok(self.cri.container_status(request).await?.status.unwrap())
    }
}

pub(crate) async fn run_sandbox(cri: &CriAdapter, config: v1::PodSandboxConfig) -> Result<String, Error> {
    let request = v1::RunPodSandboxRequest {
        config: Some(config),
        runtime_handler: String::new(),
    };
    Ok(cri.run_pod_sandbox(request).await?.pod_sandbox_id)
}

pub(crate) async fn sandbox_status(cri: &CriAdapter, id: &str) -> v1::PodSandboxStatus {
    let request = v1::PodSandboxStatusRequest {
        pod_sandbox_id: id.to_owned(),
        verbose: false,
    };
    cri.pod_sandbox_status(request).await.unwrap().status.unwrap()
}

async fn start(cri: &CriAdapter, id: &str) -> Result<(), Error> {
    let request = v1::StartContainerRequest {
        container_id: id.to_owned(),
    };
    cri.start_container(request).await.map(drop)
}

async fn stop(cri: &CriAdapter, id: &str, timeout: i64) -> Result<(), Error> {
    let request = v1::StopContainerRequest {
        container_id: id.to_owned(),
        timeout,
    };
    cri.stop_container(request).await.map(drop)
}

async fn remove(cri: &CriAdapter, id: &str) -> Result<(), Error> {
    let request = v1::RemoveContainerRequest {
        container_id: id.to_owned(),
    };
    cri.remove_container(request).await.map(drop)
}

pub(crate) fn sandbox_config() -> v1::PodSandboxConfig {
    v1::PodSandboxConfig {
        metadata: Some(v1::PodSandboxMetadata {
            name: "web".into(),
            namespace: "default".into(),
            uid: "8a3f".into(),
            attempt: 0,
        }),
        log_directory: "/var/log/pods/default_web_8a3f".into(),
        annotations: [("colour".into(), "red".into())].into(),
        ..Default::default()
    }
}

fn container_config(attempt: u32) -> v1::ContainerConfig {
    v1::ContainerConfig {
        metadata: Some(v1::ContainerMetadata {
            name: "main".into(),
            attempt,
        }),
        image: Some(v1::ImageSpec {
            image: "sha256:1234".into(),
            user_specified_image: "web:v1".into(),
            ..Default::default()
        }),
        log_path: format!("main/{attempt}.log"),
        stop_signal: v1::Signal::Sigusr1 as i32,
        linux: Some(v1::LinuxContainerConfig {
            resources: Some(v1::LinuxContainerResources {
                cpu_quota: 50_000,
                cpu_period: 100_000,
                memory_limit_in_bytes: 1 << 20,
                ..Default::default()
            }),
            security_context: Some(v1::LinuxContainerSecurityContext {
                readonly_rootfs: true,
                ..Default::default()
            }),
        }),
        ..Default::default()
    }
}

#[tokio::test]
async fn the_runtime_gets_what_the_kubelet_asked_for() {
    let stage = Stage::new().await;
    let id = stage.started(2).await;
    let spec = stage.puppet.specs.lock().unwrap()[0].clone();
    assert_eq!(
        spec.key.to_string(),
        r#"container "main" (attempt 2) of pod 8a3f"#
    );
    assert_eq!(
        (spec.pod.namespace.as_str(), spec.pod.name.as_str()),
        ("default", "web")
    );
    assert_eq!(spec.pod.annotations["colour"], "red");
    assert_eq!(spec.image, "web:v1");
    assert_eq!(
        spec.log_path.unwrap().to_str(),
        Some("/var/log/pods/default_web_8a3f/main/2.log")
    );
    assert_eq!(spec.stop_signal.as_deref(), Some("SIGUSR1"));
    assert_eq!(
        (spec.limits.cpu_millis, spec.limits.memory_bytes),
        (Some(500), Some(1 << 20))
    );
    assert!(spec.read_only_root);
    let status = stage.status(&id).await.unwrap();
    assert_eq!(status.metadata.unwrap().attempt, 2);
    assert_eq!(
        (status.image.unwrap().image.as_str(), status.image_ref.as_str()),
        ("web:v1", "sha256:1234")
    );

    stop(&stage.cri, &id, 30).await.unwrap();
    assert_eq!(*stage.puppet.graces.lock().unwrap(), [Duration::from_secs(30)]);
}

#[tokio::test]
async fn a_failure_of_each_class_has_its_code() {
    for (class, code) in [
        (ErrorClass::Transient, Code::Unavailable),
        (ErrorClass::Throttled, Code::ResourceExhausted),
        (ErrorClass::Permanent, Code::InvalidArgument),
        (ErrorClass::Gone, Code::NotFound),
    ] {
        let stage = Stage::new().await;
        let order = Order::Fail(RuntimeError::new(class, "the stage", "on fire"));
        let fails = |answer: Result<(), Error>, call: &str| {
            let error = answer.unwrap_err();
            assert_eq!((error.code(), error.call_name()), (code, Some(call)), "{class:?}");
            assert_eq!(error.message(), "the stage: on fire");
        };
        let gone = class == ErrorClass::Gone;

        stage.puppet.order("start", order.clone());
        let failed = stage.create(0).await.unwrap();
        fails(start(&stage.cri, &failed).await, "StartContainer");
        let status = stage.status(&failed).await.unwrap();
        assert_eq!((status.exit_code, status.reason.as_str()), (128, "StartError"));
        stage.puppet.at_ease();

        let id = stage.started(1).await;
        for verb in ["stop", "remove"] {
            stage.puppet.order(verb, order.clone());
            match verb {
                // Stop and remove succeed for a container that does not exist.
                "stop" if gone => stop(&stage.cri, &id, 1).await.unwrap(),
                "stop" => fails(stop(&stage.cri, &id, 1).await, "StopContainer"),
                _ if gone => remove(&stage.cri, &id).await.unwrap(),
                _ => fails(remove(&stage.cri, &id).await, "RemoveContainer"),
            }
            stage.puppet.at_ease();
        }
        // After a failed removal, the container is unchanged.
        assert_eq!(stage.status(&id).await.is_ok(), !gone);

        stage.puppet.order("list", order);
        let list = stage.cri.list_containers(Default::default()).await.map(drop);
        fails(list, "ListContainers");
        let status = stage
            .cri
            .status(Default::default())
            .await
            .unwrap()
            .status
            .unwrap();
        assert!(!status.conditions[0].status && status.conditions[0].message.contains("on fire"));
        assert!(status.conditions[1].status);
    }
}

#[tokio::test(start_paused = true)]
async fn each_verb_has_a_deadline() {
    let puppet = Arc::new(Puppet::default());
    let cri = CriAdapter::builder(puppet.clone())
        .deadline(Duration::from_secs(5))
        .build();
    let sandbox = run_sandbox(&cri, sandbox_config()).await.unwrap();
    let stage = Stage { puppet, cri, sandbox };
    let begun = tokio::time::Instant::now();
    let late = |answer: Result<(), Error>, after: u64| {
        let error = answer.unwrap_err();
        assert!(
            matches!(&error, Error::Timeout { after: waited, .. } if waited.as_secs() == after),
            "{error}"
        );
        assert_eq!(error.code(), Code::DeadlineExceeded);
    };

    let id = stage.started(0).await;
    let slow = stage.create(1).await.unwrap();
    for verb in ["list", "start", "stop", "remove"] {
        stage.puppet.order(verb, Order::Hang);
    }
    late(stage.cri.list_containers(Default::default()).await.map(drop), 5);
    late(stage.status(&id).await.map(drop), 5);
    late(start(&stage.cri, &slow).await, 5);
    late(stop(&stage.cri, &id, 30).await, 35);
    late(remove(&stage.cri, &id).await, 5);
    assert_eq!(begun.elapsed().as_secs(), 55);
    stage.puppet.at_ease();
    assert_eq!(stage.status(&slow).await.unwrap().reason, "StartError");
    remove(&stage.cri, &id).await.unwrap();
}

#[tokio::test]
async fn a_start_cut_short_shows_as_what_it_came_to() {
    let stage = Stage::new().await;
    let id = stage.create(0).await.unwrap();
    stage.puppet.order("start", Order::Hang);
    let mut cut = Box::pin(start(&stage.cri, &id));
    assert!(futures::poll!(&mut cut).is_pending());
    assert_eq!(
        stage.status(&id).await.unwrap().state(),
        v1::ContainerState::ContainerCreated
    );
    drop(cut);
    let status = stage.status(&id).await.unwrap();
    assert_eq!(
        (status.reason.as_str(), status.message.as_str()),
        ("StartError", "the start was cancelled")
    );

    // The runtime did start it, and the runtime's state takes precedence.
    stage.puppet.at_ease();
    let other = stage.started(1).await;
    let mut containers = stage.puppet.containers.lock().unwrap().clone();
    let (mut key, mut container) = containers.pop_first().unwrap();
    key.attempt = 0;
    container.key = key.clone();
    stage.puppet.containers.lock().unwrap().insert(key, container);
    for id in [&id, &other] {
        assert_eq!(
            stage.status(id).await.unwrap().state(),
            v1::ContainerState::ContainerRunning
        );
    }
}

#[tokio::test]
async fn a_container_that_the_runtime_forgot_is_told_of() {
    let stage = Stage::new().await;
    let id = stage.started(0).await;
    let before = stage.status(&id).await.unwrap();
    stage.puppet.containers.lock().unwrap().clear();
    let list = stage
        .cri
        .list_containers(Default::default())
        .await
        .unwrap()
        .containers;
    assert_eq!(list[0].state(), v1::ContainerState::ContainerExited);
    let status = stage.status(&id).await.unwrap();
    assert_eq!(
        (status.exit_code, status.reason.as_str()),
        (137, "ContainerStatusUnknown")
    );
    assert!(status.finished_at > 0);
    assert!(before.started_at > 0);
    assert_eq!(status.started_at, before.started_at);
    assert_eq!(stage.status(&id).await.unwrap(), status);
    remove(&stage.cri, &id).await.unwrap();
}

#[tokio::test]
async fn requests_that_make_no_sense() {
    let stage = Stage::new().await;
    let id = stage.started(0).await;
    assert_eq!(stage.create(0).await.unwrap_err().code(), Code::AlreadyExists);
    assert_eq!(
        start(&stage.cri, &id).await.unwrap_err().code(),
        Code::FailedPrecondition
    );
    let again = run_sandbox(&stage.cri, sandbox_config()).await.unwrap_err();
    assert_eq!(again.code(), Code::AlreadyExists);
    assert!(again.message().contains(&stage.sandbox), "{again}");

    let mut config = sandbox_config();
    config.metadata.as_mut().unwrap().attempt = 1;
    config.port_mappings = vec![v1::PortMapping {
        container_port: 80,
        host_port: 8080,
        ..Default::default()
    }];
    let mapped = run_sandbox(&stage.cri, config.clone()).await.unwrap_err();
    assert_eq!(mapped.code(), Code::InvalidArgument);
    assert!(mapped.message().contains("port mappings"), "{mapped}");
    config.port_mappings[0].host_port = 80;
    run_sandbox(&stage.cri, config).await.unwrap();

    let handler = v1::RunPodSandboxRequest {
        config: Some(sandbox_config()),
        runtime_handler: "kata".into(),
    };
    let refused = stage.cri.run_pod_sandbox(handler).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
    let nameless = run_sandbox(&stage.cri, Default::default()).await.unwrap_err();
    assert_eq!(nameless.code(), Code::InvalidArgument, "{nameless}");
    assert_eq!(
        start(&stage.cri, "none").await.unwrap_err().code(),
        Code::NotFound
    );
    let mut config = container_config(1);
    config.linux.as_mut().unwrap().security_context = Some(v1::LinuxContainerSecurityContext {
        run_as_group: Some(v1::Int64Value { value: 1001 }),
        ..Default::default()
    });
    let request = v1::CreateContainerRequest {
        pod_sandbox_id: stage.sandbox.clone(),
        config: Some(config),
        sandbox_config: None,
    };
    let refused = stage.cri.create_container(request).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
    assert_eq!(start(&stage.cri, "").await.unwrap_err().code(), Code::NotFound);
    stop(&stage.cri, "none", 0).await.unwrap();
    remove(&stage.cri, "none").await.unwrap();
}

#[tokio::test]
async fn a_missing_capability_is_refused_by_name() {
    let stage = Stage::new().await;
    let id = stage.started(0).await;
    let container_id = id.clone();
    let refusals = [
        (
            "exec",
            stage
                .cri
                .exec_sync(v1::ExecSyncRequest {
                    container_id,
                    cmd: vec!["true".into()],
                    timeout: 0,
                })
                .await
                .err(),
        ),
        (
            "streaming exec",
            stage.cri.exec(v1::ExecRequest::default()).await.err(),
        ),
        (
            "attach",
            stage.cri.attach(v1::AttachRequest::default()).await.err(),
        ),
        (
            "port-forward",
            stage
                .cri
                .port_forward(v1::PortForwardRequest::default())
                .await
                .err(),
        ),
        (
            "logs",
            stage
                .cri
                .reopen_container_log(v1::ReopenContainerLogRequest {
                    container_id: id.clone(),
                })
                .await
                .err(),
        ),
        (
            "stats",
            stage
                .cri
                .container_stats(v1::ContainerStatsRequest {
                    container_id: id.clone(),
                })
                .await
                .err(),
        ),
        (
            "stats",
            stage.cri.list_container_stats(Default::default()).await.err(),
        ),
        (
            "events",
            stage.cri.get_container_events(Default::default()).await.err(),
        ),
        (
            "a change of resources",
            stage
                .cri
                .update_container_resources(Default::default())
                .await
                .err(),
        ),
    ];
    for (capability, refusal) in refusals {
        let refusal = refusal.unwrap();
        assert_eq!(refusal.code(), Code::Unimplemented, "{capability}");
        assert_eq!(
            refusal.message(),
            format!("the runtime \"puppet\" does not support {capability}")
        );
    }
}

/// With `Unimplemented`, which a Go client reads as a missing feature.
#[tokio::test]
async fn what_needs_more_than_a_container_is_refused_by_name() {
    let stage = Stage::new().await;
    let refused = |refused: Result<String, Error>, feature: &str| {
        let error = refused.unwrap_err();
        assert_eq!(error.code(), Code::Unimplemented, "{feature}");
        assert_eq!(
            error.message(),
            format!("the runtime \"puppet\" does not support {feature}")
        );
    };
    let pod = |linux: v1::LinuxPodSandboxConfig| {
        let mut config = sandbox_config();
        config.metadata.as_mut().unwrap().attempt = 1;
        config.linux = Some(linux);
        run_sandbox(&stage.cri, config)
    };
    let users = |mode: v1::NamespaceMode| v1::LinuxPodSandboxConfig {
        security_context: Some(v1::LinuxSandboxSecurityContext {
            namespace_options: Some(v1::NamespaceOption {
                userns_options: Some(v1::UserNamespace {
                    mode: mode as i32,
                    ..Default::default()
                }),
                ..Default::default()
            }),
            ..Default::default()
        }),
        ..Default::default()
    };
    refused(pod(users(v1::NamespaceMode::Pod)).await, "user namespaces");
    let sysctls = v1::LinuxPodSandboxConfig {
        sysctls: [("net.core.somaxconn".to_owned(), "4096".to_owned())].into(),
        ..Default::default()
    };
    refused(pod(sysctls).await, "sysctls");
    pod(users(v1::NamespaceMode::Node)).await.unwrap();

    let container = async |change: fn(&mut v1::ContainerConfig)| {
        let mut config = container_config(0);
        change(&mut config);
        let request = v1::CreateContainerRequest {
            pod_sandbox_id: stage.sandbox.clone(),
            config: Some(config),
            sandbox_config: None,
        };
        Ok(stage.cri.create_container(request).await?.container_id)
    };
    let volume = container(|config| {
        config.mounts = vec![v1::Mount {
            container_path: "/data".into(),
            image: Some(v1::ImageSpec {
                image: "data:v1".into(),
                ..Default::default()
            }),
            ..Default::default()
        }];
    });
    refused(volume.await, "image volumes");
    let user = container(|config| {
        config.linux.as_mut().unwrap().security_context = Some(v1::LinuxContainerSecurityContext {
            run_as_username: "www-data".into(),
            ..Default::default()
        });
    });
    refused(user.await, "users by name");
}

#[tokio::test]
async fn a_pull_passes_the_credentials_on() {
    let shelf = Shelf {
        dir: "/".into(),
        sizes: vec![1],
        logins: Arc::default(),
    };
    let logins = shelf.logins.clone();
    let cri = CriAdapter::new(Arc::new(Puppet {
        shelf: Some(shelf),
        ..Default::default()
    }));
    for auth in [
        None,
        Some(v1::AuthConfig::default()),
        Some(v1::AuthConfig {
            username: "joe".into(),
            password: "secret".into(),
            ..Default::default()
        }),
    ] {
        let image = v1::ImageSpec {
            image: "image-0".into(),
            ..Default::default()
        };
        let request = v1::PullImageRequest {
            image: Some(image),
            auth,
            ..Default::default()
        };
        assert_eq!(cri.pull_image(request).await.unwrap().image_ref, "image-0");
    }
    assert_eq!(*logins.lock().unwrap(), [RegistryLogin::basic("joe", "secret")]);
}

#[tokio::test]
async fn without_images_every_name_is_present() {
    let stage = Stage::new().await;
    let image = Some(v1::ImageSpec {
        image: "anything:v1".into(),
        ..Default::default()
    });
    let request = v1::ImageStatusRequest {
        image: image.clone(),
        verbose: false,
    };
    let found = stage.cri.image_status(request).await.unwrap().image.unwrap();
    assert_eq!(
        (found.id.as_str(), found.repo_tags.as_slice()),
        ("anything:v1", &["anything:v1".to_owned()][..])
    );
    let request = v1::PullImageRequest {
        image: image.clone(),
        ..Default::default()
    };
    assert_eq!(
        stage.cri.pull_image(request).await.unwrap().image_ref,
        "anything:v1"
    );
    stage
        .cri
        .remove_image(v1::RemoveImageRequest { image })
        .await
        .unwrap();
    assert!(
        stage
            .cri
            .list_images(Default::default())
            .await
            .unwrap()
            .images
            .is_empty()
    );
    let nameless = stage.cri.image_status(Default::default()).await.unwrap_err();
    assert_eq!(nameless.code(), Code::InvalidArgument);
}

#[tokio::test]
async fn the_network_is_the_hosts() {
    let stage = Stage::new().await;
    let status = async |id: &str| sandbox_status(&stage.cri, id).await;
    assert_eq!(status(&stage.sandbox).await.network.unwrap().ip, "127.0.0.1");

    let mut config = sandbox_config();
    config.metadata.as_mut().unwrap().attempt = 1;
    let options = v1::NamespaceOption {
        network: v1::NamespaceMode::Node as i32,
        ..Default::default()
    };
    config.linux = Some(v1::LinuxPodSandboxConfig {
        security_context: Some(v1::LinuxSandboxSecurityContext {
            namespace_options: Some(options.clone()),
            ..Default::default()
        }),
        ..Default::default()
    });
    let id = run_sandbox(&stage.cri, config).await.unwrap();
    let on_host = status(&id).await;
    assert_eq!(on_host.network.unwrap().ip, "");
    assert_eq!(on_host.linux.unwrap().namespaces.unwrap().options, Some(options));
    let version = stage.cri.version(Default::default()).await.unwrap();
    assert_eq!(
        (
            version.runtime_name.as_str(),
            version.runtime_api_version.as_str()
        ),
        ("puppet", "v1")
    );
}

#[tokio::test]
async fn records_survive_the_adapter() {
    let dir = tempfile::tempdir().unwrap();
    let puppet = Arc::new(Puppet::default());
    let adapter = || {
        CriAdapter::builder(puppet.clone())
            .records_dir(dir.path().join("records"))
            .build()
    };
    let cri = adapter();
    let sandbox = run_sandbox(&cri, sandbox_config()).await.unwrap();
    let mut other = sandbox_config();
    other.metadata.as_mut().unwrap().attempt = 1;
    let stopped = run_sandbox(&cri, other).await.unwrap();
    let request = v1::StopPodSandboxRequest {
        pod_sandbox_id: stopped.clone(),
    };
    cri.stop_pod_sandbox(request).await.unwrap();
    let stage = Stage {
        puppet: puppet.clone(),
        cri,
        sandbox,
    };
    let running = stage.started(0).await;
    let created = stage.create(1).await.unwrap();
    stage
        .puppet
        .order("start", Order::Fail(RuntimeError::permanent("", "no")));
    let failed = stage.create(2).await.unwrap();
    start(&stage.cri, &failed).await.unwrap_err();
    stage.puppet.at_ease();
    let removed = stage.started(3).await;
    remove(&stage.cri, &removed).await.unwrap();
    let mut before = Vec::new();
    for id in [&running, &created, &failed] {
        before.push(stage.status(id).await.unwrap());
    }
    let sandboxes = stage.cri.list_pod_sandbox(Default::default()).await.unwrap();
    std::fs::write(dir.path().join("records/bad.container"), [0xff]).unwrap();

    let stage = Stage {
        cri: adapter(),
        ..stage
    };
    assert_eq!(
        stage.cri.list_pod_sandbox(Default::default()).await.unwrap(),
        sandboxes
    );
    for (id, before) in [&running, &created, &failed].into_iter().zip(before) {
        assert_eq!(stage.status(id).await.unwrap(), before);
    }
    assert_eq!(
        stage
            .cri
            .list_containers(Default::default())
            .await
            .unwrap()
            .containers
            .len(),
        3
    );
    // The created container can still be started, with its whole config.
    start(&stage.cri, &created).await.unwrap();
    let specs = stage.puppet.specs.lock().unwrap();
    assert_eq!(specs.last().unwrap().image, "web:v1");
}
