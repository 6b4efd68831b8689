//! Any bytes are frames or an error; frames are written back as what they were; a cut changes nothing.
#![no_main]

use bytes::BytesMut;
use kubelet_server::streaming::spdy::{Decoder, Encoder, Frame, SpdyError};
use libfuzzer_sys::fuzz_target;

fn decode(pieces: &[&[u8]]) -> (Vec<Frame>, Option<SpdyError>) {
    let mut decoder = Decoder::new();
    let mut input = BytesMut::new();
    let mut frames = Vec::new();
    for piece in pieces {
        input.extend_from_slice(piece);
        loop {
            match decoder.decode(&mut input) {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(error) => return (frames, Some(error)),
            }
        }
    }
    (frames, None)
}

fuzz_target!(|data: (u16, Vec<u8>)| {
    let (cut, bytes) = data;
    let (frames, error) = decode(&[&bytes]);
    let (first, second) = bytes.split_at(usize::from(cut).min(bytes.len()));
    assert_eq!(decode(&[first, second]), (frames.clone(), error));
    let mut encoder = Encoder::new();
    let mut written = BytesMut::new();
    if frames
        .iter()
        .all(|frame| encoder.encode(frame, &mut written).is_ok())
    {
        assert_eq!(decode(&[&written]), (frames, None));
    }
});
