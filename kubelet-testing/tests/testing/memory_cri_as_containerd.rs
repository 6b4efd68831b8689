//! Compares the CRI runtime in memory with a real containerd: the same calls, codes, messages, states and events.

use std::time::Duration;

use futures::{Stream, StreamExt};
use kubelet_core::Clock;
use kubelet_cri::{CriClient, Error, ImageService, RuntimeService, v1};
use kubelet_testing::memory_cri::ExecReply;
use kubelet_testing::{Containerd, MemoryCri};
use tokio::time::timeout;

type Result<T> = std::result::Result<T, Error>;

/// All responses of a runtime, without values that differ from run to run.
#[derive(Default)]
struct Story {
    lines: Vec<String>,
    /// Ids in the order of their first occurrence.
    ids: Vec<String>,
}

impl Story {
    fn tell(&mut self, what: &str, said: impl Into<String>) {
        let line = self.without_ids(&format!("{what}: {}", said.into()));
        self.lines.push(line);
    }

    fn answer<T>(&mut self, what: &str, answer: Result<T>) -> Option<T> {
        match answer {
            Ok(answer) => {
                self.tell(what, "OK");
                Some(answer)
            }
            Err(error) => {
                self.tell(what, format!("{}: {}", error.code(), error.message()));
                None
            }
        }
    }

    /// 64 hexadecimal digits are an id: the first is `<1>`.
    fn without_ids(&mut self, line: &str) -> String {
        let mut out = String::new();
        let mut word = String::new();
        for c in line.chars().chain([' ']) {
            if c.is_ascii_hexdigit() {
                word.push(c);
                continue;
            }
            if word.len() == 64 {
                let at = self.ids.iter().position(|id| *id == word).unwrap_or_else(|| {
                    self.ids.push(word.clone());
                    self.ids.len() - 1
                });
                out.push_str(&format!("<{}>", at + 1));
            } else {
                out.push_str(&word);
            }
            word.clear();
            out.push(c);
        }
        out.trim_end().to_owned()
    }
}

fn sandbox_config() -> v1::PodSandboxConfig {
    v1::PodSandboxConfig {
        metadata: Some(v1::PodSandboxMetadata {
            name: "web".to_owned(),
            uid: "8a3f".to_owned(),
            namespace: "default".to_owned(),
            attempt: 0,
        }),
        hostname: "web".to_owned(),
        labels: [("app".to_owned(), "web".to_owned())].into(),
        ..Default::default()
    }
}

fn container_config(attempt: u32, image: &str) -> v1::ContainerConfig {
    v1::ContainerConfig {
        metadata: Some(v1::ContainerMetadata {
            name: "main".to_owned(),
            attempt,
        }),
        image: Some(v1::ImageSpec {
            image: image.to_owned(),
            ..Default::default()
        }),
        command: ["sleep", "1000"].map(str::to_owned).to_vec(),
        ..Default::default()
    }
}

/// `EXITED 143 Error`
fn state(status: &v1::ContainerStatus) -> String {
    let times = [
        status.created_at > 0,
        status.started_at > 0,
        status.finished_at > 0,
    ];
    let state = status.state().as_str_name();
    format!(
        "{state} {} {:?} {:?} {times:?}",
        status.exit_code, status.reason, status.message
    )
}

fn event(event: &v1::ContainerEventResponse) -> String {
    let sandbox = event.pod_sandbox_status.as_ref().map(|sandbox| {
        let has_address = !sandbox.network.clone().unwrap_or_default().ip.is_empty();
        (sandbox.id.clone(), sandbox.state(), has_address)
    });
    let mut containers = event.containers_statuses.iter();
    let own = containers
        .find(|status| status.id == event.container_id)
        .map(state);
    let kind = event.container_event_type().as_str_name();
    format!("{} {kind} {sandbox:?} {own:?}", event.container_id)
}

/// Notes the events up to this one.
async fn until_event(
    events: &mut (impl Stream<Item = Result<v1::ContainerEventResponse>> + Unpin),
    noted: &mut Vec<v1::ContainerEventResponse>,
    id: &str,
    kind: v1::ContainerEventType,
) {
    loop {
        let next = timeout(Duration::from_secs(30), events.next())
            .await
            .unwrap()
            .unwrap()
            .unwrap();
        let found = next.container_id == id && next.container_event_type() == kind;
        noted.push(next);
        if found {
            return;
        }
    }
}

#[allow(clippy::too_many_lines, reason = "a story is told in one go")]
async fn story<R: RuntimeService + ImageService>(runtime: &R) -> Vec<String> {
    let mut story = Story::default();
    let s = &mut story;
    let mut events = runtime
        .get_container_events(v1::GetEventsRequest {})
        .await
        .unwrap();
    let mut noted = Vec::new();
    let run = |config: Option<v1::PodSandboxConfig>, handler: &str| {
        runtime.run_pod_sandbox(v1::RunPodSandboxRequest {
            config,
            runtime_handler: handler.to_owned(),
        })
    };
    let sandbox = run(Some(sandbox_config()), "").await.unwrap().pod_sandbox_id;
    s.tell("sandbox", &sandbox);
    s.answer("same name", run(Some(sandbox_config()), "").await);
    s.answer(
        "no metadata",
        run(Some(v1::PodSandboxConfig::default()), "").await,
    );
    s.answer("no config", run(None, "").await);
    let mut other = sandbox_config();
    other.metadata.as_mut().unwrap().attempt = 1;
    s.answer("no such handler", run(Some(other), "nope").await);

    let status_of = |id: &str| {
        runtime.pod_sandbox_status(v1::PodSandboxStatusRequest {
            pod_sandbox_id: id.to_owned(),
            verbose: false,
        })
    };
    for id in [sandbox.as_str(), &sandbox[..9], "nope", ""] {
        if let Some(answer) = s.answer("sandbox status", status_of(id).await) {
            let status = answer.status.unwrap();
            s.tell(
                "is",
                format!("{} {:?} {:?}", status.id, status.state(), status.labels),
            );
        }
    }

    let create = |sandbox: &str, config: Option<v1::ContainerConfig>| {
        runtime.create_container(v1::CreateContainerRequest {
            pod_sandbox_id: sandbox.to_owned(),
            config,
            sandbox_config: Some(sandbox_config()),
        })
    };
    let config = |attempt| Some(container_config(attempt, Containerd::BUSYBOX));
    let main = create(&sandbox, config(0)).await.unwrap().container_id;
    s.tell("container", &main);
    s.answer("create with the same name", create(&sandbox, config(0)).await);
    s.answer(
        "create without metadata",
        create(&sandbox, Some(v1::ContainerConfig::default())).await,
    );
    s.answer("create without config", create(&sandbox, None).await);
    s.answer("create in no sandbox", create("nope", config(1)).await);
    let no_image = Some(container_config(1, "docker.io/library/nope:1"));
    s.answer("create without image", create(&sandbox, no_image).await);

    let start = |id: &str| {
        runtime.start_container(v1::StartContainerRequest {
            container_id: id.to_owned(),
        })
    };
    let stop = |id: &str, timeout| {
        runtime.stop_container(v1::StopContainerRequest {
            container_id: id.to_owned(),
            timeout,
        })
    };
    let remove = |id: &str| {
        runtime.remove_container(v1::RemoveContainerRequest {
            container_id: id.to_owned(),
        })
    };
    let exec = |id: &str, command: &[&str], timeout| {
        runtime.exec_sync(v1::ExecSyncRequest {
            container_id: id.to_owned(),
            cmd: command.iter().map(|word| (*word).to_owned()).collect(),
            timeout,
        })
    };
    let reopen = |id: &str| {
        runtime.reopen_container_log(v1::ReopenContainerLogRequest {
            container_id: id.to_owned(),
        })
    };
    let update = |id: &str| {
        runtime.update_container_resources(v1::UpdateContainerResourcesRequest {
            container_id: id.to_owned(),
            ..Default::default()
        })
    };
    let container_status = |id: &str| {
        runtime.container_status(v1::ContainerStatusRequest {
            container_id: id.to_owned(),
            verbose: false,
        })
    };
    macro_rules! status {
        ($id:expr) => {
            if let Some(answer) = s.answer("status", container_status($id).await) {
                let status = answer.status.unwrap();
                s.tell("is", state(&status));
            }
        };
    }
    status!(&main);
    status!("nope");
    s.answer("stop what was not started", stop(&main, 1).await);
    status!(&main);
    s.answer("exec in created", exec(&main, &["true"], 0).await);
    s.answer("reopen of created", reopen(&main).await);
    s.answer("start", start(&main).await);
    s.answer("start again", start(&main).await);
    s.answer("start of nothing", start("nope").await);
    status!(&main);
    let answer = s.answer(
        "exec",
        exec(&main, &["sh", "-c", "echo out; echo err >&2; exit 3"], 0).await,
    );
    s.tell("answers", format!("{answer:?}"));
    s.answer("exec too long", exec(&main, &["sleep", "100"], 1).await);
    s.answer("exec in nothing", exec("nope", &["true"], 0).await);
    s.answer("update nothing", update("nope").await);
    s.answer("update", update(&main).await);
    s.answer("stop", stop(&main, 10).await);
    s.answer("stop again", stop(&main, 10).await);
    status!(&main);
    s.answer("start of exited", start(&main).await);
    s.answer("exec in exited", exec(&main, &["true"], 0).await);
    s.answer("reopen of exited", reopen(&main).await);
    s.answer("reopen of nothing", reopen("nope").await);
    s.answer("stop nothing", stop("nope", 1).await);
    // containerd reads the status for the event after the answer to the stop, and finds none if the container is gone.
    let stopped = v1::ContainerEventType::ContainerStoppedEvent;
    until_event(&mut events, &mut noted, &main, stopped).await;
    s.answer("remove", remove(&main).await);
    s.answer("remove again", remove(&main).await);

    let second = create(&sandbox, config(1)).await.unwrap().container_id;
    s.tell("container", &second);
    s.answer("start", start(&second).await);
    s.answer("remove what runs", remove(&second).await);
    let third = create(&sandbox, config(2)).await.unwrap().container_id;
    s.tell("container", &third);
    s.answer("start", start(&third).await);
    s.answer("kill", stop(&third, 0).await);
    status!(&third);
    until_event(&mut events, &mut noted, &third, stopped).await;
    s.answer("remove", remove(&third).await);
    let fourth = create(&sandbox, config(3)).await.unwrap().container_id;
    s.tell("container", &fourth);

    let stop_sandbox = |id: &str| {
        runtime.stop_pod_sandbox(v1::StopPodSandboxRequest {
            pod_sandbox_id: id.to_owned(),
        })
    };
    let remove_sandbox = |id: &str| {
        runtime.remove_pod_sandbox(v1::RemovePodSandboxRequest {
            pod_sandbox_id: id.to_owned(),
        })
    };
    for _ in 0..2 {
        s.answer("stop sandbox", stop_sandbox(&sandbox).await);
        let status = status_of(&sandbox).await.unwrap().status.unwrap();
        s.tell("is", format!("{:?} {:?}", status.state(), status.network));
    }
    status!(&fourth);
    s.answer("create in stopped", create(&sandbox, config(4)).await);
    s.answer("start in stopped", start(&fourth).await);
    status!(&fourth);
    s.answer("stop no sandbox", stop_sandbox("nope").await);

    let image = |name: &str| {
        runtime.image_status(v1::ImageStatusRequest {
            image: Some(v1::ImageSpec {
                image: name.to_owned(),
                ..Default::default()
            }),
            verbose: false,
        })
    };
    let id = image(Containerd::BUSYBOX).await.unwrap().image.unwrap().id;
    for name in [
        "busybox:1.36",
        "busybox",
        &id,
        &id[..20],
        &id[7..],
        &id[7..19],
        "nope:1",
        "",
    ] {
        if let Some(answer) = s.answer("image", image(name).await) {
            s.tell("has", format!("{:?}", answer.image.map(|image| image.repo_tags)));
        }
    }
    let pull = |name: &str| {
        runtime.pull_image(v1::PullImageRequest {
            image: Some(v1::ImageSpec {
                image: name.to_owned(),
                ..Default::default()
            }),
            ..Default::default()
        })
    };
    s.answer("pull of nothing", pull("").await);
    s.answer(
        "remove no image",
        runtime.remove_image(v1::RemoveImageRequest::default()).await,
    );

    s.answer("remove sandbox", remove_sandbox(&sandbox).await);
    s.answer("remove sandbox again", remove_sandbox(&sandbox).await);
    s.answer("sandbox status", status_of(&sandbox).await);

    let deleted = v1::ContainerEventType::ContainerDeletedEvent;
    until_event(&mut events, &mut noted, &sandbox, deleted).await;
    // Removed while it ran, so whether its last status was still there when it stopped is a matter of luck.
    for event in noted
        .iter_mut()
        .filter(|event| event.container_id == second && event.container_event_type() == stopped)
    {
        event.containers_statuses.retain(|status| status.id != second);
    }
    let mut told: Vec<_> = noted.iter().map(event).collect();
    // containerd promises no order between containers.
    let of = |line: &str| story.ids.iter().position(|id| line.starts_with(id.as_str()));
    // Nor between the last two events of a container that was removed while it ran: two of its tasks emit them.
    let is_removal =
        |line: &str| line.starts_with(second.as_str()) && line.contains("CONTAINER_DELETED_EVENT");
    told.sort_by_key(|line| (of(line), is_removal(line)));
    for line in told {
        story.tell("event", line);
    }
    story.lines
}

#[tokio::test]
async fn both_tell_the_same_story() {
    let Some(containerd) = Containerd::start_2().await.unwrap() else {
        return;
    };
    let client = CriClient::connect(containerd.endpoint()).await.unwrap();
    let real = story(&client).await;

    let memory = MemoryCri::new(Clock::system());
    memory.add_image(Containerd::BUSYBOX);
    memory.script_exec_where(
        |_, command| command[0] == "sh",
        [ExecReply::exits(3).stdout("out\n").stderr("err\n")],
    );
    memory.script_exec_where(|_, command| command[0] == "sleep", [ExecReply::hangs()]);
    let fake = story(&memory).await;

    let differing: Vec<_> = real
        .iter()
        .zip(&fake)
        .filter(|(real, fake)| real != fake)
        .collect();
    assert!(
        differing.is_empty(),
        "containerd and memory differ: {differing:#?}"
    );
    assert_eq!(real.len(), fake.len(), "{real:#?} {fake:#?}");
    assert!(real.len() > 90, "{}", real.len());
}
