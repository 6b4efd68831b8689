//! Any bytes are frames of a client or an error, however they are cut; no piece is longer than what came.
#![no_main]

use bytes::BytesMut;
use kubelet_server::streaming::websocket::frame::{Decoder, FrameError, Piece};
use libfuzzer_sys::fuzz_target;

/// The payload of all messages, with the border of each, and how it ended.
fn read(pieces: &[&[u8]]) -> (Vec<u8>, Vec<usize>, Option<FrameError>) {
    let (mut decoder, mut input) = (Decoder::new(Some(1000)), BytesMut::new());
    let (mut payload, mut borders) = (Vec::new(), Vec::new());
    for piece in pieces {
        input.extend_from_slice(piece);
        loop {
            match decoder.decode(&mut input) {
                Ok(Some(Piece::Data { last, data, .. })) => {
                    payload.extend_from_slice(&data);
                    if last {
                        borders.push(payload.len());
                    }
                }
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(error) => return (payload, borders, Some(error)),
            }
        }
    }
    (payload, borders, None)
}

fuzz_target!(|bytes: &[u8]| {
    let (first, second) = bytes.split_at(bytes.len() / 2);
    assert_eq!(read(&[bytes]), read(&[first, second]));
});
