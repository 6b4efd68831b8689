//! The sizes of a client's terminal, read from the resize stream.

use kubelet_core::runtime::streaming::TerminalSize;
use serde::Deserialize;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::watch;

/// The longest JSON of a size. A real one has 25 bytes.
const MAX_SIZE: usize = 4 << 10;

#[derive(Deserialize)]
struct Size {
    #[serde(alias = "Width", default)]
    width: u16,
    #[serde(alias = "Height", default)]
    height: u16,
}

/// Reads sizes, one JSON object after the other. Never returns: once the stream ended or is not JSON, the size stays.
pub(super) async fn follow(
    stream: Option<impl AsyncRead + Unpin>,
    sizes: watch::Sender<Option<TerminalSize>>,
) -> std::convert::Infallible {
    if let Some(mut stream) = stream {
        let mut buffer = Vec::new();
        while let Ok(1..) = stream.read_buf(&mut buffer).await {
            match take(&mut buffer) {
                Ok(Some(size)) => {
                    sizes.send_replace(Some(size));
                }
                Ok(None) => {}
                Err(()) => break,
            }
        }
    }
    // The sender stays: the command may still look at the last size.
    let _sizes = sizes;
    std::future::pending().await
}

/// Takes all whole sizes off the front, and gives the last one.
fn take(buffer: &mut Vec<u8>) -> Result<Option<TerminalSize>, ()> {
    let mut sizes = serde_json::Deserializer::from_slice(buffer).into_iter::<Size>();
    let mut last = None;
    let mut used = 0;
    loop {
        match sizes.next() {
            Some(Ok(Size { width, height })) => {
                last = Some(TerminalSize { width, height });
                used = sizes.byte_offset();
            }
            Some(Err(error)) if !error.is_eof() => return Err(()),
            _ => break,
        }
    }
    buffer.drain(..used);
    if buffer.len() > MAX_SIZE {
        Err(())
    } else {
        Ok(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_come_in_any_pieces() {
        let text = br#"{"Width":99,"Height":33}{"Width":80,"Height":24} {"width":7,"height":5}"#;
        for cut in 0..text.len() {
            let mut buffer = text[..cut].to_vec();
            take(&mut buffer).unwrap();
            buffer.extend_from_slice(&text[cut..]);
            let last = take(&mut buffer).unwrap();
            assert_eq!(last, Some(TerminalSize { width: 7, height: 5 }), "cut at {cut}");
            assert_eq!(buffer, b"");
        }
    }

    #[test]
    fn what_is_no_size_ends_it() {
        assert_eq!(take(&mut b"true ".to_vec()), Err(()));
        assert_eq!(take(&mut vec![b' '; MAX_SIZE + 1]), Err(()));
        assert_eq!(take(&mut br#"{"Width":70000}"#.to_vec()), Err(()));
    }
}
