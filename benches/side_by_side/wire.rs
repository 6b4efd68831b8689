//! The connections between a program and its API server, with their bytes counted.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::sync::{CancellationToken, DropGuard};

/// Forwards each connection to one address, and counts its bytes in both directions, as they are on the wire.
pub(crate) struct Wire {
    pub(crate) address: SocketAddr,
    bytes: Arc<AtomicU64>,
    _stop: DropGuard,
}

impl Wire {
    pub(crate) async fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (bytes, stop) = (Arc::new(AtomicU64::new(0)), CancellationToken::new());
        let wire = Self {
            address: listener.local_addr().unwrap(),
            bytes: bytes.clone(),
            _stop: stop.clone().drop_guard(),
        };
        tokio::spawn(stop.run_until_cancelled_owned(async move {
            // With the set, all connections end.
            let mut open = JoinSet::new();
            loop {
                let (client, _) = listener.accept().await.unwrap();
                open.spawn(forward(client, target, bytes.clone()));
            }
        }));
        wire
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

async fn forward(client: TcpStream, target: SocketAddr, bytes: Arc<AtomicU64>) {
    let Ok(server) = TcpStream::connect(target).await else {
        return;
    };
    for stream in [&client, &server] {
        stream.set_nodelay(true).unwrap();
    }
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::join!(
        copy(from_client, to_server, &bytes),
        copy(from_server, to_client, &bytes)
    );
}

async fn copy(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, bytes: &AtomicU64) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        bytes.fetch_add(read as u64, Ordering::Relaxed);
        if to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
    // The other side may have more to say, or be gone.
    let _ = to.shutdown().await;
}
