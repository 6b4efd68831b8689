//! A registry with one image, `test/app:v1`, which asks for a user and a password.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::layout::{hex, manifest};

/// `joe:secret`
const LOGIN: &str = "Basic am9lOnNlY3JldA==";

/// Serves until the test ends. Returns its address.
pub(crate) async fn serve(wasm: Vec<u8>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(answer(client, wasm.clone()));
        }
    });
    address
}

async fn answer(mut client: TcpStream, wasm: Vec<u8>) {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        let Ok(byte) = client.read_u8().await else { return };
        request.push(byte);
    }
    let request = String::from_utf8(request).unwrap();
    let path = request.split(' ').nth(1).unwrap();
    let manifest = manifest(&wasm).into_bytes();
    let is_known = request.lines().any(|line| {
        line.split_once(": ")
            .is_some_and(|(name, value)| name.eq_ignore_ascii_case("authorization") && value == LOGIN)
    });
    let blob = |digest: &str| {
        [b"{}".to_vec(), wasm.clone()].into_iter().find(|blob| format!("sha256:{}", hex(blob)) == digest)
    };
    let found = match path.strip_prefix("/v2/test/app/") {
        _ if !is_known => None,
        Some("manifests/v1") => Some(("application/vnd.oci.image.manifest.v1+json", manifest)),
        Some(path) => {
            path.strip_prefix("blobs/").and_then(blob).map(|blob| ("application/octet-stream", blob))
        }
        None => Some(("application/json", Vec::new())),
    };
    let (status, media_type, body) = match found {
        Some((media_type, body)) => ("200 OK\r\nx: y", media_type, body),
        None if is_known => ("404 Not Found", "application/json", Vec::new()),
        None => {
            ("401 Unauthorized\r\nwww-authenticate: Basic realm=\"test\"", "application/json", Vec::new())
        }
    };
    let digest = hex(&body);
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: {media_type}\r\ndocker-content-digest: sha256:{digest}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    let _ = client.write_all(&[head.as_bytes(), &body].concat()).await;
}
