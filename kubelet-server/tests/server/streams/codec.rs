//! Both parsers, with recorded and with random bytes.

use bytes::{Bytes, BytesMut};
use kubelet_server::streaming::spdy::frame::{MAX_DATA_PIECE, REFUSED_STREAM};
use kubelet_server::streaming::spdy::{Connection, Decoder, Encoder, Frame, Headers, SpdyError};
use kubelet_server::streaming::websocket::message::{Codec, Received};
use proptest::collection::vec;
use proptest::prelude::*;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::session::sessions;

/// Reads frames that come in pieces.
fn decode(pieces: &[&[u8]]) -> Result<(Vec<Frame>, BytesMut), SpdyError> {
    let mut decoder = Decoder::new();
    let mut input = BytesMut::new();
    let mut frames = Vec::new();
    for piece in pieces {
        input.extend_from_slice(piece);
        while let Some(frame) = decoder.decode(&mut input)? {
            frames.push(frame);
        }
    }
    Ok((frames, input))
}

fn encode(frames: &[Frame]) -> BytesMut {
    let mut encoder = Encoder::new();
    let mut out = BytesMut::new();
    for frame in frames {
        encoder.encode(frame, &mut out).unwrap();
    }
    out
}

#[test]
fn recorded_frames_are_read_and_written_back() {
    let mut count = 0;
    for (number, session) in sessions().iter().enumerate().filter(|(_, s)| !s.is_websocket()) {
        for client in [true, false] {
            let mut bytes = session.bytes(client);
            if !client {
                let head = bytes.windows(4).position(|w| w == b"\r\n\r\n").unwrap();
                bytes.drain(..head + 4);
            }
            let (frames, rest) = decode(&[&bytes]).unwrap();
            // Three clients closed the connection inside their last frame.
            assert!(rest.len() == 8 || rest.is_empty(), "session {number}");
            count += frames.len();
            let written = encode(&frames);
            assert_eq!(decode(&[&written]).unwrap().0, frames, "session {number}");
            // Frames without a header block are the same to the byte.
            let mut theirs = &bytes[..];
            let mut ours = &written[..];
            for frame in &frames {
                let (their_frame, our_frame);
                (their_frame, theirs) = split(theirs);
                (our_frame, ours) = split(ours);
                let block = match frame {
                    Frame::SynStream { .. } => 18,
                    Frame::SynReply { .. } | Frame::Headers { .. } => 12,
                    _ => their_frame.len(),
                };
                assert_eq!(our_frame[8..block], their_frame[8..block], "session {number}");
                if block == their_frame.len() {
                    assert_eq!(our_frame, their_frame, "session {number}");
                }
            }
        }
    }
    assert_eq!(count, 202);
}

fn split(bytes: &[u8]) -> (&[u8], &[u8]) {
    let length = u32::from_be_bytes(bytes[4..8].try_into().unwrap()) & 0xff_ffff;
    bytes.split_at(8 + length as usize)
}

#[test]
fn wrong_frames_are_named() {
    let control = |kind: u8, flags: u8, payload: &[u8]| {
        let mut frame = vec![0x80, 3, 0, kind, flags, 0, 0, payload.len() as u8];
        frame.extend_from_slice(payload);
        frame
    };
    let long = [0x80, 3, 0, 4, 0, 1, 0, 1];
    let cases = [
        (vec![0, 0, 0, 0, 0, 0, 0, 0], "DATA frame has the id 0"),
        (vec![0, 0, 0, 1, 2, 0, 0, 0], "DATA frame has unknown flags 0x02"),
        (
            vec![0x80, 2, 0, 6, 0, 0, 0, 4],
            "PING frame of SPDY version 2; only version 3 is supported",
        ),
        (control(5, 0, &[]), "control frame of unknown type 5"),
        (
            long.to_vec(),
            "SETTINGS frame of 65537 bytes is too long; the limit is 65536",
        ),
        (control(6, 0, &[0; 4]), "PING frame has the id 0"),
        (control(6, 0, &[1; 5]), "PING frame of 5 bytes has a wrong length"),
        (control(6, 1, &[1; 4]), "PING frame has unknown flags 0x01"),
        (
            control(3, 0, &[0, 0, 0, 1, 0, 0, 0, 0]),
            "RST_STREAM frame has the status 0",
        ),
        (
            control(7, 0, &[0; 4]),
            "GOAWAY frame of 4 bytes has a wrong length",
        ),
        (
            control(4, 0, &[0xff; 12]),
            "SETTINGS frame of 12 bytes has a wrong length",
        ),
        (
            control(9, 0, &[0; 3]),
            "WINDOW_UPDATE frame of 3 bytes has a wrong length",
        ),
        (
            control(2, 0, &[0, 0, 0, 1, 9, 9, 9]),
            "header block of SYN_REPLY frame: it cannot be decompressed",
        ),
        (
            control(2, 0, &[0, 0, 0, 1]),
            "header block of SYN_REPLY frame: it is cut off",
        ),
    ];
    for (bytes, message) in cases {
        assert_eq!(decode(&[&bytes]).unwrap_err().to_string(), message);
    }
}

#[test]
fn a_header_block_cannot_grow_without_end() {
    // A few hundred bytes that would become a megabyte.
    let headers = Headers::new().with("a", &"x".repeat(1 << 20));
    let mut out = BytesMut::new();
    Encoder::new()
        .encode(
            &Frame::SynReply {
                stream: 1,
                fin: false,
                headers,
            },
            &mut out,
        )
        .unwrap();
    assert!(out.len() < 4096);
    assert_eq!(
        decode(&[&out]).unwrap_err().to_string(),
        "header block of SYN_REPLY frame: it is too large"
    );
}

#[test]
fn a_frame_has_a_thousand_headers_at_most() {
    for (count, expected) in [
        (1000, None),
        (
            1001,
            Some("header block of SYN_REPLY frame: it has too many headers"),
        ),
    ] {
        let headers = (0..count).fold(Headers::new(), |headers, number| {
            headers.with(&format!("h{number}"), "x")
        });
        let (stream, fin) = (1, false);
        let written = encode(&[Frame::SynReply { stream, fin, headers }]);
        let error = decode(&[&written]).err().map(|error| error.to_string());
        assert_eq!(error.as_deref(), expected, "{count} headers");
    }
}

#[tokio::test]
async fn a_connection_has_a_thousand_streams_at_most() {
    let (ours, theirs) = tokio::io::duplex(64 << 10);
    let (connection, _server) = Connection::server(ours);
    tokio::spawn(connection.run());
    let (mut reader, mut writer) = tokio::io::split(theirs);
    let mut encoder = Encoder::new();
    let writing = tokio::spawn(async move {
        for number in 0..1001 {
            let (stream, associated, priority, slot, fin, unidirectional) =
                (2 * number + 1, 0, 0, 0, false, false);
            let headers = Headers::new();
            let frame = Frame::SynStream {
                stream,
                associated,
                priority,
                slot,
                fin,
                unidirectional,
                headers,
            };
            let mut out = BytesMut::new();
            encoder.encode(&frame, &mut out).unwrap();
            writer.write_all(&out).await.unwrap();
        }
        writer
    });
    let (mut decoder, mut input) = (Decoder::new(), BytesMut::new());
    let refused = loop {
        match decoder.decode(&mut input).unwrap() {
            Some(Frame::RstStream { stream, status }) => break (stream, status),
            Some(_) => {}
            None => assert!(reader.read_buf(&mut input).await.unwrap() > 0),
        }
    };
    assert_eq!(refused, (2001, REFUSED_STREAM));
    drop(writing.await.unwrap());
}

#[test]
fn a_long_data_frame_comes_in_pieces() {
    let data = Bytes::from(vec![7; 2 * MAX_DATA_PIECE + 1]);
    let written = encode(&[Frame::Data {
        stream: 3,
        fin: true,
        data,
    }]);
    let (frames, _) = decode(&[&written]).unwrap();
    let lengths: Vec<_> = frames
        .iter()
        .map(|frame| match frame {
            Frame::Data { stream: 3, fin, data } => (*fin, data.len()),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(
        lengths,
        [(false, MAX_DATA_PIECE), (false, MAX_DATA_PIECE), (true, 1)]
    );
}

fn headers() -> impl Strategy<Value = Headers> {
    let pairs = proptest::collection::btree_map("[a-z-]{1,12}", "[ -~\u{e4}\u{0}]{0,40}", 0..6);
    pairs.prop_map(|pairs| {
        pairs
            .iter()
            .fold(Headers::new(), |headers, (n, v)| headers.with(n, v))
    })
}

fn frame() -> impl Strategy<Value = Frame> {
    let id = 1_u32..1 << 31;
    let word = 0_u32..1 << 31;
    prop_oneof![
        (
            id.clone(),
            word.clone(),
            0_u8..8,
            any::<u8>(),
            any::<bool>(),
            any::<bool>(),
            headers()
        )
            .prop_map(
                |(stream, associated, priority, slot, fin, unidirectional, headers)| Frame::SynStream {
                    stream,
                    associated,
                    priority,
                    slot,
                    fin,
                    unidirectional,
                    headers
                }
            ),
        (id.clone(), any::<bool>(), headers()).prop_map(|(stream, fin, headers)| Frame::SynReply {
            stream,
            fin,
            headers
        }),
        (id.clone(), any::<bool>(), headers()).prop_map(|(stream, fin, headers)| Frame::Headers {
            stream,
            fin,
            headers
        }),
        (id.clone(), 1_u32..).prop_map(|(stream, status)| Frame::RstStream { stream, status }),
        (
            any::<bool>(),
            vec((any::<u8>(), 0_u32..1 << 24, any::<u32>()), 0..5)
        )
            .prop_map(|(clear, entries)| Frame::Settings { clear, entries }),
        (1_u32..).prop_map(|id| Frame::Ping { id }),
        (word.clone(), any::<u32>()).prop_map(|(last, status)| Frame::GoAway { last, status }),
        (word.clone(), word).prop_map(|(stream, delta)| Frame::WindowUpdate { stream, delta }),
        (id, any::<bool>(), vec(any::<u8>(), 0..300)).prop_map(|(stream, fin, data)| Frame::Data {
            stream,
            fin,
            data: data.into()
        }),
    ]
}

proptest! {
    #[test]
    fn what_is_written_is_read(frames in vec(frame(), 0..12), cuts in vec(any::<prop::sample::Index>(), 0..5)) {
        let bytes = encode(&frames);
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let pieces: Vec<&[u8]> = cuts.windows(2).map(|cut| &bytes[cut[0]..cut[1]]).collect();
        let (read, rest) = decode(&pieces).unwrap();
        prop_assert_eq!(read, frames);
        prop_assert!(rest.is_empty());
    }

    #[test]
    fn no_bytes_break_the_spdy_parser(bytes in vec(any::<u8>(), 0..400), kind in 0_u8..10, length in 0_u8..64) {
        let _ = decode(&[&bytes]);
        // Most random bytes do not get past the head of a frame.
        let _ = decode(&[&[0x80, 3, 0, kind, 0, 0, 0, length], &bytes]);
    }

    #[test]
    fn damaged_frames_do_not_break_the_spdy_parser(
        frames in vec(frame(), 1..6),
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = encode(&frames);
        for (place, value) in damage {
            let place = place.index(bytes.len());
            bytes[place] = value;
        }
        let _ = decode(&[&bytes]);
    }

    #[test]
    fn no_bytes_break_the_channel_parser(message in vec(any::<u8>(), 0..100)) {
        for codec in [Codec::Binary, Codec::BinaryWithClose, Codec::Base64] {
            let _ = codec.read(&message);
        }
    }

    #[test]
    fn messages_are_read_as_written(channel in 0_u8..75, data in vec(any::<u8>(), 0..100)) {
        for codec in [Codec::Binary, Codec::BinaryWithClose, Codec::Base64] {
            let read = codec.read(&codec.write(channel, &data)).unwrap();
            prop_assert_eq!(read, Received::Data { channel, data: data.clone().into() });
        }
    }
}
