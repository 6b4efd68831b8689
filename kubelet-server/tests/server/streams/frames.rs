//! The frames of WebSocket clients, whole and broken, and messages in pieces.

use bytes::{Bytes, BytesMut};
use kubelet_server::streaming::websocket::frame::{Decoder, FrameError, Piece};
use kubelet_server::streaming::websocket::message::{Codec, MessageError, MessageReader, Received};
use proptest::collection::vec;
use proptest::prelude::*;

const MASK: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];

/// A frame of a client.
pub(super) fn frame(first_byte: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = head(first_byte, payload.len() as u64);
    frame.extend(
        payload
            .iter()
            .zip(MASK.iter().cycle())
            .map(|(byte, mask)| byte ^ mask),
    );
    frame
}

/// The head of a frame of a client, in the shortest form.
fn head(first_byte: u8, length: u64) -> Vec<u8> {
    let mut head = vec![first_byte];
    match length {
        0..126 => head.push(0x80 | length as u8),
        126..0x1_0000 => {
            head.push(0x80 | 126);
            head.extend((length as u16).to_be_bytes());
        }
        _ => {
            head.push(0x80 | 127);
            head.extend(length.to_be_bytes());
        }
    }
    head.extend(MASK);
    head
}

/// Reads frames that come in pieces.
fn decode(pieces: &[&[u8]], limit: Option<u64>) -> Result<Vec<Piece>, FrameError> {
    let mut decoder = Decoder::new(limit);
    let mut input = BytesMut::new();
    let mut read = Vec::new();
    for piece in pieces {
        input.extend_from_slice(piece);
        while let Some(piece) = decoder.decode(&mut input)? {
            read.push(piece);
        }
    }
    Ok(read)
}

/// The messages of these pieces.
fn messages(pieces: Vec<Piece>) -> Vec<(bool, Vec<u8>)> {
    let mut messages = Vec::new();
    let mut present: Option<(bool, Vec<u8>)> = None;
    for piece in pieces {
        let Piece::Data {
            text,
            first,
            last,
            data,
        } = piece
        else {
            continue;
        };
        assert_eq!(first, present.is_none());
        let (_, bytes) = present.get_or_insert((text, Vec::new()));
        bytes.extend(data);
        if last {
            messages.extend(present.take());
        }
    }
    assert_eq!(present, None);
    messages
}

#[test]
fn broken_frames_have_a_reason_and_a_code() {
    let long = "the client sent a frame of 101 bytes; the limit is 100";
    let control = "the client sent a control frame of 126 bytes or in fragments; it may have 125 bytes and no fragments";
    let cut =
        "the client sent a control frame of 0 bytes or in fragments; it may have 125 bytes and no fragments";
    let order = "the client sent fragments of messages in a wrong order";
    let cases = [
        ("too long", head(0x82, 101), long, 1009),
        (
            "not masked",
            vec![0x82, 1, 0],
            "the client sent a frame that is not masked",
            1002,
        ),
        (
            "RSV1",
            frame(0xc2, b"x"),
            "the client sent a frame with a reserved bit",
            1002,
        ),
        (
            "RSV2",
            frame(0xa2, b"x"),
            "the client sent a frame with a reserved bit",
            1002,
        ),
        (
            "RSV3",
            frame(0x92, b"x"),
            "the client sent a frame with a reserved bit",
            1002,
        ),
        (
            "opcode 3",
            frame(0x83, b"x"),
            "the client sent a frame of an unknown kind",
            1002,
        ),
        (
            "opcode 11",
            frame(0x8b, b"x"),
            "the client sent a frame of an unknown kind",
            1002,
        ),
        ("long ping", head(0x89, 126), control, 1002),
        ("ping in fragments", head(0x09, 0), cut, 1002),
        ("long close", head(0x88, 126), control, 1002),
        ("a fragment of nothing", frame(0x80, b"x"), order, 1002),
        (
            "a message within another",
            [frame(0x02, b"x"), frame(0x82, b"y")].concat(),
            order,
            1002,
        ),
    ];
    for (what, bytes, message, code) in cases {
        let error = decode(&[&bytes], Some(100)).unwrap_err();
        assert_eq!(
            (error.to_string().as_str(), error.close_code()),
            (message, code),
            "{what}"
        );
    }
    assert_eq!(
        messages(decode(&[&frame(0x82, &[7; 100])], Some(100)).unwrap()),
        [(false, vec![7; 100])]
    );
}

#[test]
fn what_follows_a_frame_that_is_too_long_is_still_read() {
    let mut decoder = Decoder::new(Some(3));
    let mut input =
        BytesMut::from(&[frame(0x82, b"long"), frame(0x88, &1000_u16.to_be_bytes())].concat()[..]);
    assert_eq!(
        decoder.decode(&mut input),
        Err(FrameError::TooLong { length: 4, limit: 3 })
    );
    let (text, first, last, data) = (false, true, true, Bytes::from("long"));
    assert_eq!(
        decoder.decode(&mut input),
        Ok(Some(Piece::Data {
            text,
            first,
            last,
            data
        }))
    );
    assert_eq!(decoder.decode(&mut input), Ok(Some(Piece::Close(Some(1000)))));
    assert_eq!(decoder.decode(&mut input), Ok(None));
}

#[test]
fn control_frames_come_between_fragments() {
    let bytes = [
        frame(0x01, b"on"),
        frame(0x89, b"ping"),
        frame(0x00, b""),
        frame(0x8a, b""),
        frame(0x80, b"e"),
        frame(0x82, b""),
        frame(0x88, b""),
    ]
    .concat();
    let pieces = decode(&[&bytes], None).unwrap();
    assert!(pieces.contains(&Piece::Ping("ping".into())) && pieces.contains(&Piece::Pong));
    assert_eq!(pieces.last(), Some(&Piece::Close(None)));
    assert_eq!(messages(pieces), [(true, b"one".to_vec()), (false, vec![])]);
}

#[test]
fn messages_are_read_in_pieces() {
    use Received::{Close, Nothing};
    let data = |channel, data: &'static str| Received::Data {
        channel,
        data: data.into(),
    };
    type Case = (
        &'static str,
        Codec,
        &'static [&'static str],
        Vec<Result<Received, MessageError>>,
    );
    let base64 = || Err(MessageError::Base64 { channel: 1 });
    let cases: Vec<Case> = vec![
        (
            "binary",
            Codec::Binary,
            &["\u{1}on", "e"],
            vec![Ok(data(1, "on")), Ok(data(1, "e"))],
        ),
        (
            "the channel alone",
            Codec::Binary,
            &["\u{1}", "one"],
            vec![Ok(data(1, "")), Ok(data(1, "one"))],
        ),
        (
            "nothing, then all",
            Codec::Binary,
            &["", "\u{1}one"],
            vec![Ok(Nothing), Ok(data(1, "one"))],
        ),
        ("nothing", Codec::Binary, &[""], vec![Ok(Nothing)]),
        (
            "base64",
            Codec::Base64,
            &["1b", "25\nl", ""],
            vec![Ok(data(1, "")), Ok(data(1, "one")), Ok(data(1, ""))],
        ),
        (
            "padding",
            Codec::Base64,
            &["1b25l", "IQ=="],
            vec![Ok(data(1, "one")), Ok(data(1, "!"))],
        ),
        ("unused bits", Codec::Base64, &["1IR=="], vec![Ok(data(1, "!"))]),
        (
            "padding within",
            Codec::Base64,
            &["1IQ==", "b25l"],
            vec![Ok(data(1, "!")), base64()],
        ),
        (
            "no base64",
            Codec::Base64,
            &["1b25l", "!!!!", "b25l"],
            vec![Ok(data(1, "one")), base64(), Ok(Nothing)],
        ),
        (
            "cut off",
            Codec::Base64,
            &["1b25l", "b"],
            vec![Ok(data(1, "one")), base64()],
        ),
    ];
    for (what, codec, pieces, expected) in cases {
        let mut reader = MessageReader::new(codec);
        // A message before leaves nothing behind.
        drop(reader.read(true, false, Bytes::from("9a")));
        let last = pieces.len() - 1;
        let pieces = pieces.iter().enumerate();
        let read: Vec<_> = pieces
            .map(|(at, piece)| reader.read(at == 0, at == last, Bytes::from_static(piece.as_bytes())))
            .collect();
        assert_eq!(read, expected, "{what}");
    }
    let signal = || Err(MessageError::CloseSignal);
    type Signal = (&'static [&'static [u8]], Vec<Result<Received, MessageError>>);
    let cases: [Signal; 5] = [
        (&[&[255, 2]], vec![Ok(Close { channel: 2 })]),
        (&[&[255], &[2]], vec![Ok(Nothing), Ok(Close { channel: 2 })]),
        (&[&[255]], vec![signal()]),
        (&[&[255, 2, 3]], vec![signal()]),
        (&[&[255, 2], &[3]], vec![Ok(Nothing), signal()]),
    ];
    for (pieces, expected) in cases {
        let mut reader = MessageReader::new(Codec::BinaryWithClose);
        let last = pieces.len() - 1;
        let pieces = pieces.iter().enumerate();
        let read: Vec<_> = pieces
            .map(|(at, piece)| reader.read(at == 0, at == last, Bytes::copy_from_slice(piece)))
            .collect();
        assert_eq!(read, expected);
    }
}

proptest! {
    #[test]
    fn messages_come_out_as_they_were_sent(
        sent in vec((any::<bool>(), vec(vec(any::<u8>(), 0..300), 1..4)), 0..6),
        cuts in vec(any::<prop::sample::Index>(), 0..8),
    ) {
        let mut bytes = Vec::new();
        for (text, fragments) in &sent {
            for (at, fragment) in fragments.iter().enumerate() {
                let opcode = match (at, text) { (0, true) => 1, (0, false) => 2, _ => 0 };
                let fin = if at + 1 == fragments.len() { 0x80 } else { 0 };
                bytes.extend(frame(fin | opcode, fragment));
            }
        }
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let pieces: Vec<&[u8]> = cuts.windows(2).map(|cut| &bytes[cut[0]..cut[1]]).collect();
        let read = messages(decode(&pieces, Some(300)).unwrap());
        let sent: Vec<_> = sent.into_iter().map(|(text, fragments)| (text, fragments.concat())).collect();
        prop_assert_eq!(read, sent);
    }

    #[test]
    fn no_bytes_break_the_frame_decoder(bytes in vec(any::<u8>(), 0..400)) {
        drop(decode(&[&bytes], Some(100)));
        drop(decode(&[&[0x82, 0x80 | 50], &bytes], None));
    }

    #[test]
    fn base64_in_pieces_is_as_base64_in_one(data in vec(any::<u8>(), 0..100), cut in any::<prop::sample::Index>()) {
        let message = Bytes::from(Codec::Base64.write(1, &data));
        let cut = cut.index(message.len() + 1);
        let mut reader = MessageReader::new(Codec::Base64);
        let mut read = Vec::new();
        for (first, piece) in [(true, message.slice(..cut)), (false, message.slice(cut..))] {
            if let Received::Data { channel: 1, data } = reader.read(first, !first, piece).unwrap() {
                read.extend(data);
            }
        }
        prop_assert_eq!(read, data);
    }
}
