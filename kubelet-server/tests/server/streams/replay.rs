//! The bytes that recorded clients sent, replayed against our server: it answers what the reference answered.

use std::path::Path;
use std::time::Duration;

use kubelet_core::runtime::streaming::{CommandKind, RemoteCommand, StreamOptions, StreamingServer};
use kubelet_server::streaming::{StreamServer, StreamServerOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::runtime::{Missing, Pod, Process, Shell};
use super::session::{Session, Transcript, sessions};

#[tokio::test]
async fn recorded_clients_get_what_the_reference_sent() {
    let folder = tempfile::tempdir().unwrap();
    let server = StreamServer::bind(StreamServerOptions::default()).await.unwrap();
    let handle = server.handle();
    let address = server.address();
    let shutdown = CancellationToken::new();
    let running = tokio::spawn(server.run(shutdown.clone()));
    let sessions = sessions();
    assert_eq!(sessions.len(), 19);
    for (number, session) in sessions.iter().enumerate() {
        let recorded = session.transcript();
        let (url, gone) = offer(&handle, session, &recorded, folder.path());
        let replay = replay(session, &recorded, address, &url);
        let ours = tokio::time::timeout(Duration::from_secs(60), replay).await;
        let ours = ours.unwrap_or_else(|_| panic!("session {number} hangs: {}", session.head));
        compare(number, &ours, &recorded);
        if let Some(gone) = gone {
            // A client that goes away ends its command.
            assert!(gone.await.is_err());
        }
    }
    shutdown.cancel();
    running.await.unwrap();
}

fn offer(
    server: &impl StreamingServer,
    session: &Session,
    recorded: &Transcript,
    folder: &Path,
) -> (String, Option<oneshot::Receiver<()>>) {
    if session.path().starts_with("/portForward") {
        let ports: Vec<u16> = session.query("port").iter().map(|p| p.parse().unwrap()).collect();
        return (
            server
                .offer_port_forward(&ports, Box::new(pod(recorded, session)))
                .unwrap(),
            None,
        );
    }
    let set = |name| session.query(name) == ["1"];
    let options = StreamOptions {
        stdin: set("input"),
        stdout: set("output"),
        stderr: set("error"),
        tty: set("tty"),
    };
    let attach = session.path().starts_with("/attach");
    let kind = if attach {
        CommandKind::Attach
    } else {
        CommandKind::Exec
    };
    let arguments = session.query("command");
    let mut gone = None;
    let command: Box<dyn RemoteCommand> = if attach {
        Process::new(&["sh", "-c", "cat > /dev/null"], folder)
    } else if arguments == ["/no/such"] {
        let status: serde_json::Value = serde_json::from_slice(&recorded.data(1)).unwrap();
        let message = status["message"].as_str().unwrap();
        let prefix = "Internal error occurred: error executing command in container: ";
        Box::new(Missing(message.strip_prefix(prefix).unwrap().to_owned()))
    } else if options.tty {
        let shown = recorded.data(1);
        let banner = shown.len() - "stty size; exit 5\r\n33 99\r\n".len();
        Box::new(Shell {
            banner: shown[..banner].to_vec(),
            name: arguments,
        })
    } else {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let mut process = Process::new(&arguments, folder);
        let (alive, watch) = oneshot::channel();
        process.alive = Some(alive);
        gone = Some(watch);
        process
    };
    (server.offer_command(kind, options, command).unwrap(), gone)
}

/// The pod as it answered then.
fn pod(recorded: &Transcript, session: &Session) -> Pod {
    let mut pod = Pod {
        name: String::new(),
        answers: Vec::new(),
        refusal: String::new(),
    };
    if session.is_websocket() {
        // The port's number comes first.
        pod.answers
            .push(("/index.html".to_owned(), recorded.data(0)[2..].to_vec()));
        return pod;
    }
    pod.answers.push(("/index.html".to_owned(), recorded.data(3)));
    pod.answers.push(("/r".to_owned(), recorded.data(7)));
    let text = String::from_utf8(recorded.data(5)).unwrap();
    if let Some(text) = text.strip_prefix("error forwarding port 9999 to pod ") {
        let (name, refusal) = text.split_once(", uid : ").unwrap();
        pod.name = name.to_owned();
        pod.refusal = refusal.to_owned();
    }
    pod
}

/// Sends what the client sent, each piece once the server has said what it had said by then.
async fn replay(
    session: &Session,
    recorded: &Transcript,
    address: std::net::SocketAddr,
    url: &str,
) -> Transcript {
    let path = url.strip_prefix(&format!("http://{address}")).unwrap();
    let mut socket = TcpStream::connect(address).await.unwrap();
    let head = session.head.replacen(session.path(), path, 1);
    socket.write_all(head.as_bytes()).await.unwrap();
    let mut ours = Transcript::new(session.is_websocket());
    let mut so_far = Transcript::new(session.is_websocket());
    for (from_client, bytes) in &session.pieces {
        if !from_client {
            so_far.read(bytes);
            continue;
        }
        read_until(&mut socket, &mut ours, |ours| ours.covers(&so_far)).await;
        if socket.write_all(bytes).await.is_err() {
            break;
        }
    }
    read_until(&mut socket, &mut ours, |ours| ours.covers(recorded)).await;
    let _ = socket.shutdown().await;
    read_until(&mut socket, &mut ours, |_| false).await;
    ours
}

/// Reads until it is enough, or the server has closed the connection.
async fn read_until(socket: &mut TcpStream, ours: &mut Transcript, enough: impl Fn(&Transcript) -> bool) {
    let mut buffer = vec![0; 64 << 10];
    while !enough(ours) {
        match socket.read(&mut buffer).await {
            Ok(length @ 1..) => ours.read(&buffer[..length]),
            _ => return,
        }
    }
}

fn compare(number: usize, ours: &Transcript, recorded: &Transcript) {
    let (our_status, our_headers) = ours.head.as_ref().unwrap();
    let (status, headers) = recorded.head.as_ref().unwrap();
    assert_eq!(our_status, status, "session {number}");
    for (name, value) in headers {
        assert_eq!(our_headers.get(name), Some(value), "session {number}, {name}");
    }
    for (stream, events) in &recorded.streams {
        let our_events = &ours.streams[stream];
        if our_events != events {
            let show = |events| format!("{events:?}").chars().take(1000).collect::<String>();
            panic!(
                "session {number}, stream {stream}:\n{}\n{}",
                show(our_events),
                show(events)
            );
        }
    }
    assert_eq!(ours.streams.len(), recorded.streams.len(), "session {number}");
    assert_eq!(ours.goodbye, recorded.goodbye, "session {number}");
}
