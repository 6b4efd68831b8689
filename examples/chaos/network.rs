//! The network between the agent and the API server: a proxy that can be cut.

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// What the network does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// It forwards.
    Up,
    /// It resets connections, old and new ones.
    Refusing,
    /// It forwards nothing, and says nothing. What was sent arrives when the network is up again.
    Silent,
}

/// A proxy that forwards connections.
#[derive(Clone)]
pub(crate) struct Network {
    state: watch::Sender<State>,
}

impl Network {
    pub(crate) async fn start(listen: SocketAddr, target: SocketAddr) -> Self {
        let listener = TcpListener::bind(listen).await.unwrap();
        let state = watch::Sender::new(State::Up);
        let network = Self { state };
        let serving = network.clone();
        tokio::spawn(async move {
            loop {
                if let Ok((client, _)) = listener.accept().await {
                    tokio::spawn(forward(client, target, serving.state.subscribe()));
                }
            }
        });
        network
    }

    pub(crate) fn set(&self, state: State) {
        self.state.send_replace(state);
    }
}

async fn forward(mut client: TcpStream, target: SocketAddr, mut state: watch::Receiver<State>) {
    if until_up(&mut state).await.is_err() {
        return reset(&client);
    }
    let Ok(mut server) = TcpStream::connect(target).await else {
        return reset(&client);
    };
    let is_cut = {
        let mut states = state.clone();
        let (from_client, to_client) = client.split();
        let (from_server, to_server) = server.split();
        let both = async {
            tokio::try_join!(copy(from_client, to_server, state.clone()), copy(from_server, to_client, state))
        };
        tokio::select! {
            _ = states.wait_for(|state| *state == State::Refusing) => true,
            copied = both => copied.is_err(),
        }
    };
    if is_cut {
        reset(&client);
        reset(&server);
    }
}

/// Closing the connection sends a reset.
fn reset(connection: &TcpStream) {
    let _ = connection.set_zero_linger();
}

/// Waits until the network forwards. An error if it refuses.
async fn until_up(state: &mut watch::Receiver<State>) -> io::Result<()> {
    let now = state.wait_for(|state| *state != State::Silent).await.map(|state| *state);
    match now {
        Ok(State::Up) => Ok(()),
        _ => Err(io::ErrorKind::ConnectionReset.into()),
    }
}

async fn copy(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut state: watch::Receiver<State>,
) -> io::Result<()> {
    let mut buffer = vec![0; 16 << 10];
    loop {
        let read = from.read(&mut buffer).await?;
        until_up(&mut state).await?;
        match buffer.get(..read) {
            Some(bytes) if read > 0 => to.write_all(bytes).await?,
            _ => return to.shutdown().await,
        }
    }
}
