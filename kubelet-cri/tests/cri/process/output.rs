//! What containers see, and their logs.

use kubelet_cri::{RuntimeService, v1};

use super::node::{Node, nap, shell};

#[tokio::test]
async fn logs_are_in_the_format_of_cri() {
    let node = Node::new().await;
    let script = "echo one; echo two >&2; head -c 40000 /dev/zero | tr '\\0' x; echo; echo; printf tail";
    let id = node.run("web", script).await;
    node.exited(&id).await;
    let mut log = node.log(&id).await;
    // The two pipes are read independently.
    let two = log.iter().position(|line| line == "stderr F two").unwrap();
    log.remove(two);
    let part = "x".repeat(16384);
    let expected = [
        "stdout F one".to_owned(),
        format!("stdout P {part}"),
        format!("stdout P {part}"),
        format!("stdout F {}", "x".repeat(40000 - 2 * 16384)),
        "stdout F ".to_owned(),
        "stdout P tail".to_owned(),
    ];
    assert!(
        log == expected,
        "{:?}",
        log.iter()
            .map(|line| &line[..line.len().min(20)])
            .collect::<Vec<_>>()
    );
}

#[tokio::test]
async fn output_larger_than_any_buffer_is_whole() {
    let node = Node::new().await;
    let id = node.run("web", "seq 1 200000; seq 1 1000 >&2").await;
    node.exited(&id).await;
    let log = node.log(&id).await;
    let of = |stream: &str| {
        log.iter()
            .filter_map(|line| line.strip_prefix(stream)?.parse().ok())
            .collect::<Vec<u32>>()
    };
    assert_eq!(of("stdout F "), (1..=200_000).collect::<Vec<_>>());
    assert_eq!(of("stderr F "), (1..=1000).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_rotated_log_is_opened_anew() {
    let node = Node::new().await;
    let script = "trap 'echo after; exit 0' TERM; echo before; while :; do sleep 0.05; done";
    let id = node.run("web", script).await;
    node.log_says(&id, "before").await;
    let path = node.status(&id).await.log_path;
    let rotated = format!("{path}.20260101-000000");
    std::fs::rename(&path, &rotated).unwrap();
    let request = v1::ReopenContainerLogRequest {
        container_id: id.clone(),
    };
    node.cri.reopen_container_log(request.clone()).await.unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "");
    node.stop(&id, 1000).await;
    let log = node.log(&id).await;
    assert!(
        log.contains(&"stdout F after".to_owned()) && !log.contains(&"stdout F before".to_owned()),
        "{log:?}"
    );
    assert!(
        std::fs::read_to_string(&rotated)
            .unwrap()
            .ends_with("stdout F before\n")
    );
    node.cri.reopen_container_log(request).await.unwrap_err();
}

#[tokio::test]
async fn a_log_of_a_container_that_closed_its_output_can_be_opened_anew() {
    let node = Node::new().await;
    let id = node
        .run(
            "web",
            &format!("echo once; exec >&- 2>&-; exec sleep {}", nap(987020)),
        )
        .await;
    node.log_says(&id, "once").await;
    let path = node.status(&id).await.log_path;
    std::fs::remove_file(&path).unwrap();
    let request = v1::ReopenContainerLogRequest {
        container_id: id.clone(),
    };
    node.cri.reopen_container_log(request).await.unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "");
    node.stop(&id, 0).await;
}

#[tokio::test]
async fn environment_and_working_folder() {
    let node = Node::new().await;
    let mut config = shell("pwd; env | sort; echo \"no mount\" > $TERMINATION_LOG_PATH");
    let file = node.root.join("termination-log");
    config.mounts = vec![v1::Mount {
        container_path: "/dev/termination-log".to_owned(),
        host_path: file.display().to_string(),
        ..Default::default()
    }];
    config.annotations.insert(
        "io.kubernetes.container.terminationMessagePath".to_owned(),
        "/dev/termination-log".to_owned(),
    );
    for value in ["first", "last"] {
        config.envs.push(v1::KeyValue {
            key: "WORD".to_owned(),
            value: value.into(),
        });
    }
    let id = node.run_config("web", config).await;
    assert_eq!(node.exited(&id).await.exit_code, 0);
    let log = node.log(&id).await;
    let folder = node
        .root
        .canonicalize()
        .unwrap()
        .join("processes/containers/uid-of-web_main_0/work");
    assert_eq!(log[0], format!("stdout F {}", folder.display()));
    let names = [
        "HOSTNAME=web",
        "PATH=",
        "PWD=",
        "TERMINATION_LOG_PATH=",
        "TMPDIR=",
        "WORD=last",
    ];
    let variables: Vec<_> = log[1..]
        .iter()
        .filter(|line| !line.contains(" _=") && !line.contains("SHLVL="))
        .collect();
    assert_eq!(variables.len(), names.len(), "{variables:?}");
    for (variable, name) in variables.iter().zip(names) {
        assert!(
            variable.starts_with(&format!("stdout F {name}")),
            "{variable} {name}"
        );
    }
    assert_eq!(std::fs::read_to_string(file).unwrap(), "no mount\n");
    assert_eq!(node.status(&id).await.mounts.len(), 1);

    node.remove(&id).await;
    assert!(!folder.exists());
}
