//! Logs of running containers.

use std::iter;

use super::*;

/// The logs by the containers' names, as the node's server reads them.
#[tokio::test(start_paused = true)]
async fn logs_are_found_by_the_containers_name() {
    let rig = Rig::new().await;
    rig.cri
        .script("main", [Run::exits(0).after(10 * SECOND).prints("one\ntwo")]);
    let pod = pod("web");
    let status = rig.sync(&pod).await;
    let id = status.container("main").unwrap().id.to_string();
    let status: api::PodStatus = serde_json::from_value(serde_json::json!({ "containerStatuses": [{
        "name": "main", "image": "", "imageID": "", "ready": true, "restartCount": 0,
        "containerID": id, "state": { "running": {} },
    }] }))
    .unwrap();
    let logs: &dyn ContainerLogs = &rig.manager;
    let options = PodLogOptions {
        follow: true,
        ..Default::default()
    };
    let text = logs.container_logs(&pod, &status, "main", options).await.unwrap();
    let text: Vec<Vec<u8>> = text.try_collect().await.unwrap();
    assert_eq!(text.concat(), b"one\ntwo\n");
    let previous = PodLogOptions {
        previous: true,
        ..Default::default()
    };
    let error = logs
        .container_logs(&pod, &status, "main", previous)
        .await
        .err()
        .unwrap();
    let message = "previous terminated container \"main\" in pod \"web\" not found";
    assert_eq!(error, StreamError::other(message));
}

#[tokio::test(start_paused = true)]
async fn logs_are_found_by_the_containers_id_and_followed_over_rotations() {
    let rig = Rig::new().await;
    let mut run = Run::exits(0).after(60 * SECOND);
    for second in 0..50 {
        run = run.prints_after(second * SECOND, format!("line {second}"));
    }
    rig.cri.script("main", [run]);
    let pod = pod("web");
    let status = rig.sync(&pod).await;
    let policy = LogRotatePolicy {
        max_size: Some(1),
        max_files: 10,
        ..Default::default()
    };
    let manager = ContainerLogManager::new(Arc::new(rig.cri.clone()), policy)
        .unwrap()
        .clock(rig.clock);
    let shutdown = CancellationToken::new();
    let id = &status.container("main").unwrap().id;
    let options = PodLogOptions {
        follow: true,
        ..Default::default()
    };
    let mut chunks = rig.manager.container_logs(id, options).await.unwrap();
    // Who opens the log after a rotation does not see what was written before it.
    let first = chunks.try_next().await.unwrap().unwrap();
    let rotating = tokio::spawn(manager.run(shutdown.clone()));
    let others: Vec<_> = chunks.try_collect().await.unwrap();
    let text: Vec<u8> = iter::once(first)
        .chain(others)
        .flat_map(|chunk| chunk.bytes)
        .collect();
    let expected: String = (0..50).map(|second| format!("line {second}\n")).collect();
    assert_eq!(String::from_utf8(text).unwrap(), expected);
    assert!(rig.asked(Call::ReopenContainerLog) >= 4);
    shutdown.cancel();
    rotating.await.unwrap();

    let gone = kubelet_core::ContainerId::new("memory", "none");
    let error = rig
        .manager
        .container_logs(&gone, PodLogOptions::default())
        .await
        .err()
        .unwrap();
    assert_eq!(
        error.to_string(),
        "unable to retrieve container logs for memory://none"
    );
}
