//! Copies bytes in both directions.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

const BUFFER: usize = 32 << 10;

/// Copies until the end of `from`, and then ends `to`.
pub(super) async fn to_end(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
) -> io::Result<()> {
    let mut buffer = Vec::with_capacity(BUFFER);
    loop {
        buffer.clear();
        if (&mut from).take(BUFFER as u64).read_buf(&mut buffer).await? == 0 {
            break;
        }
        to.write_all(&buffer).await?;
        to.flush().await?;
    }
    to.shutdown().await
}
