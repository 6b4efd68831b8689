//! The life cycle from sandbox to removal, and the errors on the way.

use futures::StreamExt;
use kubelet_cri::verbs::{ContainerKey, ContainerRuntime, ContainerSpec};
use kubelet_cri::{Code, ImageService, RuntimeService, v1};

use super::node::{Node, nap, patiently, shell, sleepers, until};

#[tokio::test]
async fn a_container_from_sandbox_to_removal() {
    let node = Node::new().await;
    let mut events = node.events().await;
    let sandbox = node.sandbox("web").await;
    let id = node
        .create(
            &sandbox,
            shell(&format!("echo hello; exec sleep {}", nap(987001))),
        )
        .await
        .unwrap();

    let created = node.status(&id).await;
    assert_eq!(created.state(), v1::ContainerState::ContainerCreated);
    assert!(created.created_at > 0 && created.started_at == 0);

    node.start(&id).await.unwrap();
    node.log_says(&id, "stdout F hello\n").await;
    let running = node.status(&id).await;
    assert_eq!(running.state(), v1::ContainerState::ContainerRunning);
    assert!(running.started_at >= created.created_at);
    assert_eq!(running.labels["io.kubernetes.container.name"], "main");
    assert_eq!(running.annotations["io.kubernetes.container.hash"], "e3b3a006");
    assert_eq!(
        running.log_path,
        node.root.join("logs/web/main/0.log").display().to_string()
    );
    assert_eq!(running.image.unwrap().image, "busybox:1.36");
    until(|| sleepers(987001).len() == 1).await;

    let again = node.start(&id).await.unwrap_err();
    assert_eq!(again.code(), Code::FailedPrecondition, "{again}");

    node.stop(&id, 10).await;
    let stopped = node.status(&id).await;
    assert_eq!(stopped.state(), v1::ContainerState::ContainerExited);
    assert_eq!((stopped.exit_code, stopped.reason.as_str()), (143, "Error"));
    assert!(stopped.finished_at >= stopped.started_at);
    assert!(sleepers(987001).is_empty());
    node.stop(&id, 10).await;

    node.remove(&id).await;
    node.remove(&id).await;
    node.stop(&id, 10).await;
    let request = v1::ContainerStatusRequest {
        container_id: id.clone(),
        ..Default::default()
    };
    let gone = node.cri.container_status(request).await.unwrap_err();
    assert_eq!(gone.code(), Code::NotFound, "{gone}");
    assert!(node.list(v1::ContainerFilter::default()).await.is_empty());

    use v1::ContainerEventType::*;
    let expected = [
        (&sandbox, ContainerCreatedEvent),
        (&sandbox, ContainerStartedEvent),
        (&id, ContainerCreatedEvent),
        (&id, ContainerStartedEvent),
        (&id, ContainerStoppedEvent),
        (&id, ContainerDeletedEvent),
    ];
    // The adapter's event of a removal may come before the runtime's event of the end.
    let mut seen = Vec::new();
    while seen.len() < 5 {
        let event = patiently(events.next()).await.unwrap().unwrap();
        assert_eq!(event.pod_sandbox_status.as_ref().unwrap().id, sandbox);
        if event.container_event_type() != ContainerStoppedEvent {
            seen.push((event.container_id.clone(), event.container_event_type()));
        }
    }
    let expected: Vec<_> = expected
        .iter()
        .filter(|(_, kind)| *kind != ContainerStoppedEvent)
        .map(|(id, kind)| ((*id).clone(), *kind))
        .collect();
    assert_eq!(seen, expected);
}

#[tokio::test]
async fn an_end_is_told_by_itself() {
    let node = Node::new().await;
    let mut events = node.events().await;
    let id = node.run("job", "exit 3").await;
    let stopped = patiently(async {
        loop {
            let event = events.next().await.unwrap().unwrap();
            if event.container_event_type() == v1::ContainerEventType::ContainerStoppedEvent {
                return event;
            }
        }
    })
    .await;
    assert_eq!(stopped.container_id, id);
    assert_eq!(stopped.containers_statuses[0].exit_code, 3);
    assert!(stopped.created_at >= stopped.containers_statuses[0].finished_at);
}

#[tokio::test]
async fn starting_what_was_started_returns_it() {
    let node = Node::new().await;
    let key = ContainerKey::new("uid", "main", 0);
    let mut spec = ContainerSpec::new(key.clone(), "any");
    spec.command = vec!["sleep".into(), nap(987002)];
    let starts = (0..8).map(|_| node.processes.start(&spec));
    let started = futures::future::try_join_all(starts).await.unwrap();
    assert!(
        started.iter().all(|container| *container == started[0]),
        "{started:?}"
    );
    assert_eq!(sleepers(987002).len(), 1);

    node.processes
        .stop(&key, std::time::Duration::ZERO)
        .await
        .unwrap();
    let ended = node.processes.start(&spec).await.unwrap();
    assert_eq!(ended.exit().unwrap().code, 137);
    assert!(sleepers(987002).is_empty());
}

#[tokio::test]
async fn lists_are_filtered() {
    let node = Node::new().await;
    let (one, two) = (node.sandbox("one").await, node.sandbox("two").await);
    let running = node
        .create(&one, shell(&format!("exec sleep {}", nap(987003))))
        .await
        .unwrap();
    node.start(&running).await.unwrap();
    let mut other = shell("true");
    other.metadata.as_mut().unwrap().name = "other".to_owned();
    other.labels.insert("kind".to_owned(), "job".to_owned());
    let created = node.create(&two, other).await.unwrap();

    let state = |state: v1::ContainerState| Some(v1::ContainerStateValue { state: state as i32 });
    let label = |value: &str| [("kind".to_owned(), value.to_owned())].into();
    for (filter, expected) in [
        (
            v1::ContainerFilter {
                id: running.clone(),
                ..Default::default()
            },
            vec![&running],
        ),
        (
            v1::ContainerFilter {
                id: running[..8].to_owned(),
                ..Default::default()
            },
            vec![&running],
        ),
        (
            v1::ContainerFilter {
                pod_sandbox_id: two.clone(),
                ..Default::default()
            },
            vec![&created],
        ),
        (
            v1::ContainerFilter {
                state: state(v1::ContainerState::ContainerRunning),
                ..Default::default()
            },
            vec![&running],
        ),
        (
            v1::ContainerFilter {
                label_selector: label("job"),
                ..Default::default()
            },
            vec![&created],
        ),
        (
            v1::ContainerFilter {
                label_selector: label("no"),
                ..Default::default()
            },
            vec![],
        ),
    ] {
        let list = node.list(filter.clone()).await;
        assert_eq!(
            list.iter().map(|container| &container.id).collect::<Vec<_>>(),
            expected,
            "{filter:?}"
        );
    }

    let sandboxes = async |filter: v1::PodSandboxFilter| {
        let request = v1::ListPodSandboxRequest { filter: Some(filter) };
        let mut items = node.cri.list_pod_sandbox(request).await.unwrap().items;
        items.sort_by_key(|item| item.created_at);
        items.into_iter().map(|item| item.id).collect::<Vec<_>>()
    };
    assert_eq!(
        sandboxes(v1::PodSandboxFilter::default()).await,
        [one.clone(), two.clone()]
    );
    let ready = Some(v1::PodSandboxStateValue {
        state: v1::PodSandboxState::SandboxReady as i32,
    });
    let request = v1::StopPodSandboxRequest {
        pod_sandbox_id: one.clone(),
    };
    patiently(node.cri.stop_pod_sandbox(request)).await.unwrap();
    assert_eq!(
        sandboxes(v1::PodSandboxFilter {
            state: ready,
            ..Default::default()
        })
        .await,
        std::slice::from_ref(&two)
    );
    let selector = [("io.kubernetes.pod.name".to_owned(), "one".to_owned())].into();
    assert_eq!(
        sandboxes(v1::PodSandboxFilter {
            label_selector: selector,
            ..Default::default()
        })
        .await,
        [one]
    );
}

#[tokio::test]
async fn a_sandbox_takes_its_containers_with_it() {
    let node = Node::new().await;
    let sandbox = node.sandbox("web").await;
    let id = node
        .create(
            &sandbox,
            shell(&format!("trap '' TERM; while :; do sleep {}; done", nap(987004))),
        )
        .await
        .unwrap();
    let late = node.create(&sandbox, late_container()).await.unwrap();
    node.start(&id).await.unwrap();

    let stop = v1::StopPodSandboxRequest {
        pod_sandbox_id: sandbox.clone(),
    };
    patiently(node.cri.stop_pod_sandbox(stop.clone())).await.unwrap();
    patiently(node.cri.stop_pod_sandbox(stop)).await.unwrap();
    assert_eq!(node.status(&id).await.exit_code, 137);
    assert!(sleepers(987004).is_empty());

    let status = v1::PodSandboxStatusRequest {
        pod_sandbox_id: sandbox.clone(),
        verbose: false,
    };
    let stopped = node
        .cri
        .pod_sandbox_status(status.clone())
        .await
        .unwrap()
        .status
        .unwrap();
    assert_eq!(stopped.state(), v1::PodSandboxState::SandboxNotready);
    assert_eq!(stopped.network.unwrap().ip, "");
    assert_eq!(
        node.start(&late).await.unwrap_err().code(),
        Code::FailedPrecondition
    );
    let refused = node.create(&sandbox, shell("true")).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");

    let remove = v1::RemovePodSandboxRequest {
        pod_sandbox_id: sandbox.clone(),
    };
    patiently(node.cri.remove_pod_sandbox(remove.clone()))
        .await
        .unwrap();
    patiently(node.cri.remove_pod_sandbox(remove)).await.unwrap();
    assert!(node.list(v1::ContainerFilter::default()).await.is_empty());
    assert_eq!(
        node.cri.pod_sandbox_status(status).await.unwrap_err().code(),
        Code::NotFound
    );
    let left = |folder: &str| std::fs::read_dir(node.root.join(folder)).unwrap().count();
    assert_eq!((left("records"), left("processes/containers")), (0, 0));
}

fn late_container() -> v1::ContainerConfig {
    let mut config = shell("true");
    config.metadata.as_mut().unwrap().name = "late".to_owned();
    config
}

#[tokio::test]
async fn what_cannot_be_started_says_why() {
    let node = Node::new().await;
    let sandbox = node.sandbox("web").await;
    type Change = fn(&mut v1::ContainerConfig);
    for (attempt, (change, code, expected)) in [
        (
            (|config| config.command = vec!["no-such-program".into()]) as Change,
            Code::InvalidArgument,
            "\"no-such-program\": executable file not found in $PATH",
        ),
        (
            |config| config.command.clear(),
            Code::InvalidArgument,
            "has no command",
        ),
        (|config| config.tty = true, Code::InvalidArgument, "terminal"),
        (
            |config| config.working_dir = "/no/such/folder".into(),
            Code::InvalidArgument,
            "working folder \"/no/such/folder\" does not exist",
        ),
        (
            |config| config.command = vec!["/etc".into()],
            Code::InvalidArgument,
            "Permission denied",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let mut config = shell("true");
        config.metadata.as_mut().unwrap().attempt = attempt as u32;
        change(&mut config);
        let id = node.create(&sandbox, config).await.unwrap();
        let error = node.start(&id).await.unwrap_err();
        assert_eq!(error.code(), code, "{error}");
        assert!(
            error.message().contains(expected) && error.message().contains("\"main\""),
            "{error}"
        );
        let status = node.status(&id).await;
        assert_eq!(status.state(), v1::ContainerState::ContainerExited);
        assert_eq!((status.exit_code, status.reason.as_str()), (128, "StartError"));
        assert!(status.message.contains(expected), "{}", status.message);
        assert!(status.started_at == 0 && status.finished_at > 0);
        node.remove(&id).await;
    }
    assert_eq!(
        std::fs::read_dir(node.root.join("processes/containers"))
            .unwrap()
            .count(),
        0
    );
}

#[tokio::test]
async fn images_are_a_table_of_commands() {
    let node = Node::with(|builder| builder.image("web", ["sh", "-c", "exit 7"]).any_image(false)).await;
    let spec = |image: &str| {
        Some(v1::ImageSpec {
            image: image.to_owned(),
            ..Default::default()
        })
    };
    let status = async |image: &str| {
        let request = v1::ImageStatusRequest {
            image: spec(image),
            verbose: false,
        };
        node.cri.image_status(request).await.unwrap().image
    };
    let own_user = i64::from(rustix::process::geteuid().as_raw());
    let web = status("web:latest").await.unwrap();
    assert_eq!(web.uid.unwrap().value, own_user);
    // It cannot be removed, so a kubelet must not try.
    assert!(web.pinned);
    let listed = node.cri.list_images(Default::default()).await.unwrap().images;
    assert!(listed.len() == 1 && listed[0].pinned, "{listed:?}");
    let removed = node
        .cri
        .remove_image(v1::RemoveImageRequest { image: spec("web") })
        .await;
    assert_eq!(removed.unwrap_err().code(), Code::InvalidArgument);
    assert_eq!(status("other").await, None);
    let pull = async |image: &str| {
        let request = v1::PullImageRequest {
            image: spec(image),
            ..Default::default()
        };
        node.cri.pull_image(request).await
    };
    assert_eq!(pull("web").await.unwrap().image_ref, "web");
    let missing = pull("other").await.unwrap_err();
    assert_eq!(missing.code(), Code::NotFound);
    assert!(
        missing.message().contains("other") && missing.message().contains("image table"),
        "{missing}"
    );

    let mut config = shell("");
    config.command.clear();
    config.image = spec("other");
    let sandbox = node.sandbox("web").await;
    assert_eq!(
        node.create(&sandbox, config.clone()).await.unwrap_err().code(),
        Code::NotFound
    );
    config.image = spec("web:latest");
    let id = node.create(&sandbox, config).await.unwrap();
    node.start(&id).await.unwrap();
    assert_eq!(node.exited(&id).await.exit_code, 7);
}
