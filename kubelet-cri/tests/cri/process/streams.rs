//! Exec, attach and port-forward, with real processes.

use std::sync::Arc;
use std::time::Duration;

use kubelet_core::PodUid;
use kubelet_core::runtime::streaming::{
    CommandKind, PortForwarder, RemoteCommand, StreamError, StreamErrorKind, StreamOptions, StreamingServer,
    TerminalSize,
};
use kubelet_cri::verbs::{ClientStreams, ContainerKey, ContainerRuntime, ErrorClass, Result};
use kubelet_cri::{Code, CriAdapter, RuntimeService, v1};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::net::TcpListener;
use tokio::sync::{Mutex, watch};

use super::node::{Node, nap, patiently, shell, sleepers, until};

/// The client's side of the streams.
struct Client {
    stdin: DuplexStream,
    stdout: DuplexStream,
    stderr: DuplexStream,
}

fn streams() -> (ClientStreams, Client) {
    let ((stdin, theirs_in), (stdout, theirs_out), (stderr, theirs_err)) =
        (duplex(1024), duplex(1024), duplex(1024));
    let mut streams = ClientStreams::default();
    streams.stdin = Some(Box::new(theirs_in));
    streams.stdout = Some(Box::new(theirs_out));
    streams.stderr = Some(Box::new(theirs_err));
    let client = Client {
        stdin,
        stdout,
        stderr,
    };
    (streams, client)
}

fn terminal() -> (
    ClientStreams,
    DuplexStream,
    DuplexStream,
    watch::Sender<Option<TerminalSize>>,
) {
    let (mut streams, client) = streams();
    let (width, height) = (80, 24);
    let (sizes, receiver) = watch::channel(Some(TerminalSize { width, height }));
    streams.stderr = None;
    streams.terminal = Some(receiver);
    (streams, client.stdin, client.stdout, sizes)
}

fn key(pod: &str) -> ContainerKey {
    ContainerKey::new(format!("uid-of-{pod}"), "main", 0)
}

fn words(script: &str) -> Vec<String> {
    shell(script).command
}

async fn exec(node: &Node, script: &str, streams: ClientStreams) -> Result<i32> {
    let exec = node.processes.exec().unwrap();
    patiently(exec.exec(&key("web"), &words(script), streams)).await
}

async fn attach(node: &Node, streams: ClientStreams) -> Result<()> {
    patiently(node.processes.attach().unwrap().attach(&key("web"), streams)).await
}

async fn all(mut stream: DuplexStream) -> String {
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    text
}

/// Reads until the text has come.
async fn read_until(stream: &mut DuplexStream, expected: &str) -> String {
    let mut text = String::new();
    patiently(async {
        while !text.contains(expected) {
            let mut buffer = [0; 512];
            let read = stream.read(&mut buffer).await.unwrap();
            assert!(read > 0, "it ended: {text:?}");
            text.push_str(&String::from_utf8_lossy(&buffer[..read]));
        }
    })
    .await;
    text
}

/// A container that runs until the end of the test.
async fn running() -> Node {
    let node = Node::new().await;
    node.run("web", "exec sleep 9999").await;
    node
}

async fn end(node: Node) {
    patiently(node.processes.shutdown(Duration::ZERO)).await;
}

#[tokio::test]
async fn a_command_has_the_clients_streams() {
    let node = running().await;
    let (theirs, mut client) = streams();
    let typed = async move {
        client.stdin.write_all(b"hello").await.unwrap();
        client.stdin.shutdown().await.unwrap();
        tokio::join!(all(client.stdout), all(client.stderr))
    };
    // The output goes on after the end of the input.
    let script = "cat; echo; echo after; echo oops >&2; exit 3";
    let (code, (stdout, stderr)) = tokio::join!(exec(&node, script, theirs), typed);
    assert_eq!(
        (code, stdout.as_str(), stderr.as_str()),
        (Ok(3), "hello\nafter\n", "oops\n")
    );

    assert_eq!(exec(&node, "kill -9 $$", ClientStreams::default()).await, Ok(137));
    // A stream that was not requested is empty, or discarded.
    assert_eq!(exec(&node, "cat; echo x", ClientStreams::default()).await, Ok(0));
    let (key, program) = (key("web"), ["/no/such/program".to_owned()]);
    let missing = node.processes.exec().unwrap();
    let missing = missing.exec(&key, &program, ClientStreams::default());
    assert_eq!(missing.await.unwrap_err().class, ErrorClass::Permanent);
    end(node).await;
}

#[tokio::test]
async fn all_output_reaches_a_slow_client() {
    let node = running().await;
    let (theirs, client) = streams();
    let (code, (stdout, stderr)) = tokio::join!(exec(&node, "seq 1 200000; echo end >&2", theirs), async {
        tokio::join!(all(client.stdout), all(client.stderr))
    });
    let expected: String = (1..=200_000).map(|number| format!("{number}\n")).collect();
    assert_eq!(code, Ok(0));
    assert!(stdout == expected, "{} bytes", stdout.len());
    assert_eq!(stderr, "end\n");
    end(node).await;
}

#[tokio::test]
async fn a_command_and_its_children_end_with_the_client() {
    let node = running().await;
    let script = format!("sleep {0} & sleep {0}; true", nap(987051));
    let (piped, _client) = streams();
    let (in_terminal, _stdin, _stdout, _sizes) = terminal();
    for streams in [piped, in_terminal] {
        tokio::select! {
            code = exec(&node, &script, streams) => panic!("ended with {code:?}"),
            () = until(|| sleepers(987051).len() >= 2) => {}
        }
        until(|| sleepers(987051).is_empty()).await;
    }
    // They also end with the container.
    let (ended, ()) = tokio::join!(exec(&node, &script, ClientStreams::default()), async {
        until(|| sleepers(987051).len() >= 2).await;
        node.processes.stop(&key("web"), Duration::ZERO).await.unwrap();
    });
    assert_eq!(ended, Ok(137));
    until(|| sleepers(987051).is_empty()).await;
    end(node).await;
}

#[tokio::test]
async fn a_terminal_echoes_has_a_size_and_controls() {
    let node = running().await;
    let (theirs, mut stdin, mut stdout, sizes) = terminal();
    let script = "stty size; : </dev/tty && echo controls; echo $TERM; \
                  while read line; do echo \"got $line\"; stty size; [ \"$line\" = end ] && exit 7; done";
    let typed = async {
        assert_eq!(
            read_until(&mut stdout, "xterm\r\n").await,
            "24 80\r\ncontrols\r\nxterm\r\n"
        );
        let (width, height) = (132, 50);
        sizes.send_replace(Some(TerminalSize { width, height }));
        // The size is set before the next line is answered, if not the next one.
        loop {
            stdin.write_all(b"one\n").await.unwrap();
            let answer = read_until(&mut stdout, "got one\r\n").await;
            assert!(answer.contains("one\r\ngot one\r\n"), "{answer:?}");
            let rest = match answer.ends_with("got one\r\n") {
                true => read_until(&mut stdout, "\r\n").await,
                false => answer,
            };
            if rest.contains("50 132") {
                break;
            }
        }
        stdin.write_all(b"end\n").await.unwrap();
        read_until(&mut stdout, "got end\r\n50 132\r\n").await;
    };
    let (code, ()) = tokio::join!(exec(&node, script, theirs), typed);
    assert_eq!(code, Ok(7));
    // A key that interrupts.
    let (theirs, mut stdin, mut stdout, _sizes) = terminal();
    let typed = async {
        read_until(&mut stdout, "ready").await;
        stdin.write_all(&[3]).await.unwrap();
        read_until(&mut stdout, "^C").await;
    };
    let (code, ()) = tokio::join!(exec(&node, "echo ready; exec sleep 9999", theirs), typed);
    assert_eq!(code, Ok(130));
    end(node).await;
}

#[test]
fn ctrl_c_works_although_the_agent_ignores_it() {
    let program = std::env::current_exe().unwrap();
    // As a script does in what it starts with `&`.
    let script = "trap '' HUP INT QUIT; exec \"$0\" --exact process::streams::a_terminal_echoes_has_a_size_and_controls";
    let run = std::process::Command::new("sh")
        .arg("-c")
        .arg(script)
        .arg(program)
        .output()
        .unwrap();
    let output = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success() && output.contains("1 passed"), "{output}");
}

const ECHO: &str =
    "while read line; do echo \"out $line\"; echo \"err $line\" >&2; [ \"$line\" = end ] && exit; done";

#[tokio::test]
async fn clients_attach_and_leave_and_the_agent_restarts() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::at(dir.path()).await;
    let mut config = shell(ECHO);
    config.stdin = true;
    let id = node.run_config("web", config).await;
    let (theirs, mut client) = streams();
    let typed = async {
        client.stdin.write_all(b"one\n").await.unwrap();
        assert_eq!(read_until(&mut client.stdout, "\n").await, "out one\n");
        assert_eq!(read_until(&mut client.stderr, "\n").await, "err one\n");
        // The end of a client's input is not that of the container's.
        client.stdin.shutdown().await.unwrap();
    };
    tokio::select! {
        attached = attach(&node, theirs) => panic!("{attached:?}"),
        () = typed => {}
    }
    drop(node);

    let node = Node::at(dir.path()).await;
    let (theirs, mut client) = streams();
    let typed = async move {
        client.stdin.write_all(b"two\nend\n").await.unwrap();
        tokio::join!(all(client.stdout), all(client.stderr))
    };
    let (attached, (stdout, stderr)) = tokio::join!(attach(&node, theirs), typed);
    assert_eq!(attached, Ok(()));
    assert_eq!(
        (stdout.as_str(), stderr.as_str()),
        ("out two\nout end\n", "err two\nerr end\n")
    );
    node.exited(&id).await;
    let log = node.log(&id).await;
    let of = |stream: &str| log.iter().filter(|line| line.starts_with(stream)).count();
    assert_eq!((of("stdout F out"), of("stderr F err")), (3, 3), "{log:?}");
    let late = attach(&node, ClientStreams::default()).await.unwrap_err();
    assert_eq!(late.message, "the container is not running");
    end(node).await;
}

#[tokio::test]
async fn an_input_for_one_client_ends_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::at(dir.path()).await;
    let config = |script: &str| v1::ContainerConfig {
        stdin: true,
        stdin_once: true,
        ..shell(script)
    };
    node.run_config("web", config("cat; echo end")).await;
    let (theirs, mut client) = streams();
    let typed = async move {
        client.stdin.write_all(b"once ").await.unwrap();
        drop(client.stdin);
        all(client.stdout).await
    };
    let (attached, stdout) = tokio::join!(attach(&node, theirs), typed);
    assert_eq!((attached, stdout.as_str()), (Ok(()), "once end\n"));

    let sandbox = node.sandbox("other").await;
    let id = node
        .create(&sandbox, config("cat; exec sleep 9999"))
        .await
        .unwrap();
    node.start(&id).await.unwrap();
    drop(node);
    let node = Node::at(dir.path()).await;
    let (theirs, _client) = streams();
    let attach = node.processes.attach().unwrap();
    let refused = attach.attach(&key("other"), theirs).await.unwrap_err();
    assert!(refused.message.contains("stdinOnce"), "{refused}");
    end(node).await;
}

#[tokio::test]
async fn a_container_does_not_wait_for_a_slow_client() {
    let node = Node::new().await;
    let mut config = shell("read go; seq 1 500000");
    config.stdin = true;
    let id = node.run_config("web", config).await;
    let (theirs, mut client) = streams();
    let unread = async {
        client.stdin.write_all(b"go\n").await.unwrap();
        let status = node.exited(&id).await;
        assert_eq!(status.exit_code, 0);
        drop(client.stdin);
        // What it was sent before.
        all(client.stdout).await
    };
    let (attached, _) = tokio::join!(attach(&node, theirs), unread);
    assert!(attached.unwrap_err().message.contains("reads more slowly"));
    assert_eq!(node.log(&id).await.len(), 500_000);
    // Without `stdin`, input is refused.
    let node = running().await;
    let (theirs, _client) = streams();
    let refused = attach(&node, theirs).await.unwrap_err();
    assert!(refused.message.contains("no standard input"), "{refused}");
    end(node).await;
}

#[tokio::test]
async fn ports_are_the_hosts() {
    let node = Node::new().await;
    let forward = node.processes.port_forward().unwrap();
    let uid = PodUid::from("any");
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let Ok(listener) = TcpListener::bind(address).await else {
            // A host without IPv6.
            continue;
        };
        let port = listener.local_addr().unwrap().port();
        let (client, server) = tokio::join!(forward.connect(&uid, port), listener.accept());
        let (mut client, (mut server, _)) = (client.unwrap(), server.unwrap());
        client.write_all(b"ping").await.unwrap();
        client.shutdown().await.unwrap();
        let mut ping = String::new();
        server.read_to_string(&mut ping).await.unwrap();
        server.write_all(b"pong").await.unwrap();
        drop(server);
        let mut pong = String::new();
        client.read_to_string(&mut pong).await.unwrap();
        assert_eq!((ping.as_str(), pong.as_str()), ("ping", "pong"));
    }
    let error = forward.connect(&uid, 1).await.err().unwrap();
    assert!(
        error
            .message
            .starts_with("failed to connect to localhost:1, IPv4: "),
        "{error}"
    );
}

/// Keeps offers.
#[derive(Default)]
struct Offers {
    commands: Mutex<Vec<Box<dyn RemoteCommand>>>,
    forwarders: Mutex<Vec<Box<dyn PortForwarder>>>,
    full: bool,
}

impl StreamingServer for Offers {
    fn offer_command(
        &self,
        kind: CommandKind,
        streams: StreamOptions,
        command: Box<dyn RemoteCommand>,
    ) -> std::result::Result<String, StreamError> {
        if self.full {
            return Err(StreamError::new(StreamErrorKind::ResourceExhausted, "full"));
        }
        self.commands.try_lock().unwrap().push(command);
        Ok(format!("http://here/{kind:?}/{}", streams.stdin))
    }

    fn offer_port_forward(
        &self,
        ports: &[u16],
        forwarder: Box<dyn PortForwarder>,
    ) -> std::result::Result<String, StreamError> {
        self.forwarders.try_lock().unwrap().push(forwarder);
        Ok(format!("http://here/portforward/{ports:?}"))
    }
}

#[tokio::test]
async fn the_adapter_offers_streams_at_urls() {
    let mut node = Node::new().await;
    let offers = Arc::new(Offers::default());
    let cri = CriAdapter::builder(node.processes.clone())
        .streaming(offers.clone())
        .build();
    node.cri = cri;
    let sandbox = node.sandbox("web").await;
    let id = node.create(&sandbox, shell("exec sleep 9999")).await.unwrap();
    let request = |cmd: &str| v1::ExecRequest {
        container_id: id.clone(),
        cmd: words(cmd),
        stdin: true,
        stdout: true,
        ..Default::default()
    };
    let early = node.cri.exec(request("true")).await.unwrap_err();
    assert_eq!(early.code(), Code::FailedPrecondition);
    assert!(early.message().contains("CONTAINER_CREATED state"), "{early}");
    node.start(&id).await.unwrap();

    let url = node.cri.exec(request("cat; exit 4")).await.unwrap().url;
    assert_eq!(url, "http://here/Exec/true");
    let command = offers.commands.lock().await.pop().unwrap();
    let (theirs, mut client) = streams();
    let typed = async move {
        client.stdin.write_all(b"x").await.unwrap();
        client.stdin.shutdown().await.unwrap();
        all(client.stdout).await
    };
    let (code, stdout) = patiently(async { tokio::join!(command.run(theirs), typed) }).await;
    assert_eq!((code, stdout.as_str()), (Ok(4), "x"));

    let attach = v1::AttachRequest {
        container_id: id.clone(),
        stdout: true,
        ..Default::default()
    };
    let url = node.cri.attach(attach).await.unwrap().url;
    assert_eq!(url, "http://here/Attach/false");

    let forward = |id: &str, port: i32| v1::PortForwardRequest {
        pod_sandbox_id: id.to_owned(),
        port: vec![port],
    };
    let url = node.cri.port_forward(forward(&sandbox, 80)).await.unwrap().url;
    assert_eq!(url, "http://here/portforward/[80]");
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let forwarder = offers.forwarders.lock().await.pop().unwrap();
    forwarder.connect(port).await.unwrap();

    let both = v1::ExecRequest {
        tty: true,
        stderr: true,
        ..request("true")
    };
    let none = v1::ExecRequest {
        stdin: false,
        stdout: false,
        ..request("true")
    };
    let nobody = v1::ExecRequest {
        container_id: "nope".into(),
        ..request("true")
    };
    let empty = v1::ExecRequest {
        cmd: Vec::new(),
        ..request("true")
    };
    for (request, code, message) in [
        (both, Code::InvalidArgument, "tty and stderr cannot both be true"),
        (
            none,
            Code::InvalidArgument,
            "one of stdin, stdout, or stderr must be set",
        ),
        (
            v1::ExecRequest::default(),
            Code::InvalidArgument,
            "missing required container_id",
        ),
        (nobody, Code::NotFound, "\"nope\" not found"),
        (empty, Code::InvalidArgument, "the command is empty"),
    ] {
        let error = node.cri.exec(request).await.unwrap_err();
        assert_eq!((error.code(), error.message().as_str()), (code, message));
    }
    let error = node.cri.port_forward(forward(&sandbox, 70000)).await.unwrap_err();
    assert_eq!(error.message(), "70000 is not a port");
    let error = node.cri.port_forward(forward("nope", 80)).await.unwrap_err();
    assert_eq!(error.code(), Code::NotFound);

    node.cri
        .stop_pod_sandbox(v1::StopPodSandboxRequest {
            pod_sandbox_id: sandbox.clone(),
        })
        .await
        .unwrap();
    let error = node.cri.port_forward(forward(&sandbox, 80)).await.unwrap_err();
    assert_eq!(error.message(), "sandbox container is not running");
    assert_eq!(
        forwarder.connect(port).await.err().unwrap().message,
        "sandbox container is not running"
    );
    end(node).await;
}

#[tokio::test]
async fn a_full_server_is_an_error_of_the_call() {
    let mut node = Node::new().await;
    let offers = Offers {
        full: true,
        ..Default::default()
    };
    let cri = CriAdapter::builder(node.processes.clone())
        .streaming(Arc::new(offers))
        .build();
    node.cri = cri;
    let id = node.run("web", "exec sleep 9999").await;
    let request = v1::AttachRequest {
        container_id: id,
        stdout: true,
        ..Default::default()
    };
    let error = node.cri.attach(request).await.unwrap_err();
    assert_eq!(
        (error.code(), error.message().as_str()),
        (Code::ResourceExhausted, "full")
    );
    end(node).await;
}
