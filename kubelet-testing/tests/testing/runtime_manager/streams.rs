//! Commands and streams of running containers.

use super::*;

#[tokio::test(start_paused = true)]
async fn commands_run_in_running_containers_found_by_name() {
    let rig = Rig::new().await;
    rig.cri.script("once", [Run::exits(0).after(SECOND)]);
    let (pod, timeout) = (pod("web"), Duration::ZERO);
    rig.sync(&pod).await;
    let key = pod.key();
    rig.cri.script_exec(
        "main",
        [
            ExecReply::exits(3).stdout("out").stderr("err"),
            ExecReply::hangs(),
        ],
    );
    let command = words("do it");
    let output = rig
        .manager
        .run_in_container(&key, "main", &command, timeout)
        .await
        .unwrap();
    assert_eq!(
        (output.stdout, output.stderr, output.exit_code),
        (b"out".into(), b"err".into(), 3)
    );
    let late = rig
        .manager
        .run_in_container(&key, "main", &command, 2 * SECOND)
        .await;
    let message = "command timed out: \"do it\" timed out after 2s";
    assert_eq!(told(late), (Code::DeadlineExceeded, message.to_owned()));

    tokio::time::sleep(2 * SECOND).await;
    for container in ["once", "none"] {
        let result = rig
            .manager
            .run_in_container(&key, container, &command, timeout)
            .await;
        assert_eq!(
            told(result),
            (Code::NotFound, format!("container not found ({container:?})"))
        );
    }
    let elsewhere = PodKey::new("elsewhere", "web");
    let result = rig
        .manager
        .run_in_container(&elsewhere, "main", &command, timeout)
        .await;
    assert_eq!(
        told(result),
        (Code::NotFound, "container not found (\"main\")".to_owned())
    );
}

#[tokio::test(start_paused = true)]
async fn the_runtime_tells_where_it_serves_streams() {
    let rig = Rig::new().await;
    rig.cri.script("once", [Run::exits(0)]);
    let web = pod("web");
    rig.sync(&web).await;
    let (manager, key) = (&rig.manager, web.key());
    let url = manager
        .exec_url(&key, "main", &words("sh"), StreamOptions { tty: true, ..ALL })
        .await
        .unwrap();
    assert!(url.starts_with("http://127.0.0.1:1/exec/"), "{url}");
    let url = manager.attach_url(&web, "term", ALL).await.unwrap();
    assert!(url.starts_with("http://127.0.0.1:1/attach/"), "{url}");
    manager.attach_url(&web, "main", ALL).await.unwrap();
    let url = manager.port_forward_url(&key, &[80, 8080]).await.unwrap();
    assert!(url.starts_with("http://127.0.0.1:1/portforward/"), "{url}");

    let calls = rig.cri.calls().all();
    let exec: Vec<_> = calls
        .iter()
        .filter_map(|call| call.request::<v1::ExecRequest>())
        .collect();
    assert!(
        exec[0].tty && exec[0].stdin && exec[0].stdout && !exec[0].stderr,
        "{exec:?}"
    );
    let attach: Vec<_> = calls
        .iter()
        .filter_map(|call| call.request::<v1::AttachRequest>())
        .collect();
    assert!(attach[0].tty && !attach[0].stderr, "as the spec says: {attach:?}");
    assert!(!attach[1].tty && attach[1].stderr, "{attach:?}");
    let forward: Vec<_> = calls
        .iter()
        .filter_map(|call| call.request::<v1::PortForwardRequest>())
        .collect();
    assert_eq!(forward[0].port, [80, 8080]);

    let not_found = |message: &str| (Code::NotFound, message.to_owned());
    let exec = manager.exec_url(&key, "once", &words("sh"), ALL).await;
    assert_eq!(told(exec), not_found("container not found (\"once\")"));
    let attach = manager.attach_url(&web, "none", ALL).await;
    assert_eq!(
        told(attach),
        not_found("container none not found in pod web_default")
    );
    let forward = manager
        .port_forward_url(&PodKey::new("default", "none"), &[80])
        .await;
    assert_eq!(told(forward), not_found("pod not found (\"none_default\")"));
    let nothing = manager
        .exec_url(&key, "main", &words("sh"), StreamOptions::default())
        .await;
    let message = "you must specify at least 1 of stdin, stdout, stderr";
    assert_eq!(told(nothing), (Code::InvalidArgument, message.to_owned()));
}

/// The calls of the node's server.
#[tokio::test(start_paused = true)]
async fn the_nodes_server_gets_the_kubelets_messages() {
    let rig = Rig::new().await;
    rig.cri.script("once", [Run::exits(0)]);
    let web = pod("web");
    rig.sync(&web).await;
    let (manager, key): (&dyn StreamingRuntime, _) = (&rig.manager, web.key());
    rig.cri.script_exec(
        "main",
        [
            ExecReply::exits(0).stdout("out").stderr("err"),
            ExecReply::exits(2).stdout("out").stderr("bad"),
            ExecReply::hangs(),
            ExecReply::no_such_program(),
        ],
    );
    let run = |container: &'static str| {
        let (key, command) = (key.clone(), words("ls -x"));
        async move {
            manager
                .run_in_container(&key, container, &command, 2 * SECOND)
                .await
        }
    };
    let error = |kind, message: &str| Err::<Vec<u8>, _>(StreamError::new(kind, message));
    assert_eq!(run("main").await.unwrap(), b"outerr");
    let exited = "command 'ls -x' exited with 2: bad";
    assert_eq!(run("main").await, error(StreamErrorKind::Other, exited));
    let late = "command timed out: \"ls -x\" timed out after 2s";
    assert_eq!(run("main").await, error(StreamErrorKind::DeadlineExceeded, late));
    let failed = run("main").await.unwrap_err();
    assert_eq!(failed.kind, StreamErrorKind::Other);
    let text = "rpc error: code = Unknown desc = failed to exec in container: failed to start exec";
    assert!(failed.message.starts_with(text), "{failed}");
    // The kubelet answers these with the status 500.
    let missing = "container not found (\"none\")";
    assert_eq!(run("none").await, error(StreamErrorKind::Other, missing));
    let sh = words("sh");
    let url = manager.exec_url(&key, "main", &sh, ALL).await.unwrap();
    assert!(url.starts_with("http://127.0.0.1:1/exec/"), "{url}");
    let nothing = manager
        .exec_url(&key, "main", &sh, StreamOptions::default())
        .await;
    let message = "you must specify at least 1 of stdin, stdout, stderr";
    assert_eq!(
        nothing,
        Err(StreamError::new(StreamErrorKind::InvalidArgument, message))
    );
    let attach = manager.attach_url(&web, "once", ALL).await.unwrap_err();
    assert_eq!(
        attach,
        StreamError::other("container once not found in pod web_default")
    );
    let none = PodKey::new("default", "none");
    let forward = manager.port_forward_url(&none, &[80]).await.unwrap_err();
    assert_eq!(forward, StreamError::other("pod not found (\"none_default\")"));

    let location = std::path::Path::new("/var/lib/kubelet/checkpoints/x.tar");
    let checkpoint = manager.checkpoint_container(&key, "main", location, SECOND).await;
    let checkpoint = checkpoint.unwrap_err();
    assert_eq!(checkpoint.kind, StreamErrorKind::Unimplemented);
    assert!(
        checkpoint
            .message
            .starts_with("rpc error: code = Unimplemented desc = "),
        "{checkpoint}"
    );
    let checkpoint = manager.checkpoint_container(&key, "none", location, SECOND).await;
    assert_eq!(checkpoint, Err(StreamError::other("container none not found")));
}

/// Streams of the runtime in memory.
#[tokio::test(start_paused = true)]
async fn a_streaming_server_runs_scripted_commands() {
    #[derive(Default)]
    struct Offers {
        commands: Mutex<Vec<Box<dyn RemoteCommand>>>,
        forwarders: Mutex<Vec<Box<dyn PortForwarder>>>,
    }
    impl StreamingServer for Offers {
        fn offer_command(
            &self,
            kind: CommandKind,
            _streams: StreamOptions,
            command: Box<dyn RemoteCommand>,
        ) -> Result<String, StreamError> {
            self.commands.lock().unwrap().push(command);
            Ok(format!("http://here/{kind:?}"))
        }

        fn offer_port_forward(
            &self,
            ports: &[u16],
            forwarder: Box<dyn PortForwarder>,
        ) -> Result<String, StreamError> {
            self.forwarders.lock().unwrap().push(forwarder);
            Ok(format!("http://here/{ports:?}"))
        }
    }
    let offers = Arc::new(Offers::default());
    let rig = Rig::with(|builder| builder.streaming(offers.clone())).await;
    rig.cri.script("once", [Run::exits(0).after(5 * SECOND)]);
    rig.cri
        .script_exec("main", [ExecReply::exits(3).stdout("out").stderr("err")]);
    let web = pod("web");
    rig.sync(&web).await;
    let url = rig
        .manager
        .exec_url(&web.key(), "main", &words("sh"), ALL)
        .await
        .unwrap();
    assert_eq!(url, "http://here/Exec");
    let (mut stdout, theirs) = tokio::io::duplex(64);
    let mut streams = ClientStreams::default();
    streams.stdout = Some(Box::new(theirs));
    let command = offers.commands.lock().unwrap().pop().unwrap();
    assert_eq!(command.run(streams).await, Ok(3));
    let mut text = String::new();
    stdout.read_to_string(&mut text).await.unwrap();
    assert_eq!(text, "out");

    let url = rig.manager.attach_url(&web, "once", ALL).await.unwrap();
    assert_eq!(url, "http://here/Attach");
    let attached = offers.commands.lock().unwrap().pop().unwrap();
    let at = Instant::now();
    assert_eq!(attached.run(ClientStreams::default()).await, Ok(0));
    assert_eq!(at.elapsed().as_secs(), 5);

    let url = rig.manager.port_forward_url(&web.key(), &[80]).await.unwrap();
    assert_eq!(url, "http://here/[80]");
    let forwarder = offers.forwarders.lock().unwrap().pop().unwrap();
    let mut port = forwarder.connect(80).await.unwrap();
    port.write_all(b"ping").await.unwrap();
    port.shutdown().await.unwrap();
    let mut pong = String::new();
    port.read_to_string(&mut pong).await.unwrap();
    assert_eq!(pong, "ping");
}
