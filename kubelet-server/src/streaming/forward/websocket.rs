//! Ports over WebSocket: each has a channel for its bytes and one for an error. Both begin with the port's number.

use futures::future::join_all;
use kubelet_core::runtime::streaming::PortForwarder;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, duplex};

use super::super::command::StreamTimeouts;
use super::super::websocket::message::Codec;
use super::super::websocket::socket::{self, INPUT_BUFFER, Sender};
use super::copy::to_end;

pub(super) async fn serve<T: AsyncRead + AsyncWrite + Unpin>(
    io: T,
    protocol: &str,
    ports: &[u16],
    forwarder: &dyn PortForwarder,
    timeouts: StreamTimeouts,
) {
    let (sender, receiver) = socket::open(io, Codec::of(protocol));
    let mut inbound = Vec::new();
    let mut clients = Vec::new();
    for _ in ports {
        let (writer, reader) = duplex(INPUT_BUFFER);
        inbound.extend([Some(writer), None]);
        clients.push(reader);
    }
    let work = async {
        for (index, port) in ports.iter().enumerate() {
            for channel in [2 * index, 2 * index + 1] {
                sender.send(channel as u8, &port.to_le_bytes()).await;
            }
        }
        let each = ports
            .iter()
            .zip(clients)
            .enumerate()
            .map(|(index, (port, client))| {
                let channel = (2 * index) as u8;
                forward(&sender, channel, *port, client, forwarder)
            });
        join_all(each).await;
    };
    socket::serve(&sender, receiver, inbound, timeouts.idle, work).await;
}

/// Until the pod ends the connection: the client has no way to end one channel.
async fn forward<T: AsyncRead + AsyncWrite + Unpin>(
    sender: &Sender<T>,
    channel: u8,
    port: u16,
    client: DuplexStream,
    forwarder: &dyn PortForwarder,
) {
    match forwarder.connect(port).await {
        Ok(pod) => {
            let (reader, writer) = tokio::io::split(pod);
            let up = async {
                let _ = to_end(client, writer).await;
                std::future::pending::<()>().await;
            };
            tokio::select! {
                () = sender.pump(channel, Some(reader)) => {}
                () = up => {}
            }
        }
        Err(error) => {
            sender
                .send(channel + 1, super::failure(forwarder, port, &error).as_bytes())
                .await;
        }
    }
}
