//! The example `merge-sources`, as it is run.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;
use tokio::process::Command;
use tokio::time::timeout;

/// Far longer than anything here takes.
const GUARD: Duration = Duration::from_secs(120);

/// The built example, next to the test programs.
fn program() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let target = test.parent().and_then(|deps| deps.parent()).unwrap();
    let program = target.join("examples/merge-sources");
    assert!(program.exists(), "{} is missing: cargo build --example merge-sources", program.display());
    program
}

fn pod(name: &str, image: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, uid: uid-{name}}}\nspec: {{containers: [{{name: c, image: '{image}'}}]}}\n"
    )
}

/// Serves what it holds to whoever asks.
async fn serve(body: Arc<Mutex<String>>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                match stream.read_u8().await {
                    Ok(byte) => head.push(byte),
                    Err(_) => break,
                }
            }
            let body = body.lock().unwrap().clone();
            let length = body.len();
            let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{body}");
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    port
}

#[tokio::test]
async fn prints_the_operations_of_both_sources() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("web.yaml");
    let body = Arc::new(Mutex::new(pod("remote", "i:1")));
    let port = serve(body.clone()).await;
    std::fs::write(&file, pod("local", "i:1")).unwrap();

    let mut running = Command::new(program())
        .args(["--manifests".as_ref(), folder.path().as_os_str()])
        .args(["--url", &format!("http://127.0.0.1:{port}/"), "--period", "0.05"])
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(running.stdout.take().unwrap()).lines();
    let mut line = async || {
        let line = timeout(GUARD, lines.next_line()).await.expect("a line");
        line.unwrap().expect("no end")
    };

    let mut first = [line().await, line().await];
    first.sort();
    assert!(first[0].starts_with("ADD       file [default/local-node-1]"), "{first:?}");
    assert!(first[1].starts_with("ADD       http [default/remote-node-1]"), "{first:?}");
    *body.lock().unwrap() = pod("remote", "i:2");
    assert_eq!(line().await, "UPDATE    http [default/remote-node-1] 2 in all");
    std::fs::remove_file(&file).unwrap();
    assert_eq!(line().await, "REMOVE    file [default/local-node-1] 1 in all");
}
