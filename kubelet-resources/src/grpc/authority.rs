//! Clients that send the path of the socket as their `:authority`.
//!
//! A client of grpc-go that dials a path with a dialer of its own sends `%2Fvar%2Flib%2F…` as `:authority`; clients of the C core send the
//! path itself. Device plugins and clients of the pod-resources API do so. Neither is an authority of a URI, so the HTTP/2 library of
//! this server breaks the stream with `PROTOCOL_ERROR`, while the server of grpc-go accepts it. On a socket, the authority says nothing.
//! So it is replaced before the library sees it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What requests have as their authority then. No text is shorter: so the server's table of headers never drops an entry that the
/// client's still has.
const AUTHORITY: &[u8] = b"k";

/// What a client sends first (RFC 9113, section 3.4), in bytes.
const PREFACE: usize = 24;
/// The size of a frame's header.
const FRAME_HEADER: usize = 9;
/// The largest frame, unless the server allows more (`SETTINGS_MAX_FRAME_SIZE`).
const MAX_FRAME: usize = 16_384;
/// The type of a frame with the headers of a request.
const HEADERS: u8 = 1;
const FLAG_PADDED: u8 = 0x8;
const FLAG_PRIORITY: u8 = 0x20;

/// A connection whose requests have a valid authority.
pub(super) struct LocalAuthority<S> {
    stream: S,
    rewriter: Rewriter,
}

impl<S> LocalAuthority<S> {
    pub(super) fn new(stream: S) -> Self {
        Self {
            stream,
            rewriter: Rewriter::new(),
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for LocalAuthority<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            if self.rewriter.take(buffer) {
                return Poll::Ready(Ok(()));
            }
            let mut bytes = [0; 4096];
            let mut read = ReadBuf::new(&mut bytes);
            ready!(Pin::new(&mut self.stream).poll_read(context, &mut read))?;
            if read.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            self.rewriter.add(read.filled());
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for LocalAuthority<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// Goes through the frames that a client sends. It holds back at most one frame.
struct Rewriter {
    /// So many bytes are not changed.
    pass: usize,
    /// The beginning of a frame.
    held: Vec<u8>,
    ready: Vec<u8>,
    /// So many bytes of `ready` were taken.
    taken: usize,
}

impl Rewriter {
    fn new() -> Self {
        Self {
            pass: PREFACE,
            held: Vec::new(),
            ready: Vec::new(),
            taken: 0,
        }
    }

    /// Puts what is ready into the buffer. Returns whether something was.
    fn take(&mut self, buffer: &mut ReadBuf<'_>) -> bool {
        let ready = self.ready.get(self.taken..).unwrap_or_default();
        let count = ready.len().min(buffer.remaining());
        let (now, _) = ready.split_at(count);
        buffer.put_slice(now);
        self.taken += count;
        if self.taken == self.ready.len() {
            self.ready.clear();
            self.taken = 0;
        }
        count > 0
    }

    fn add(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (passing, rest) = bytes.split_at(self.pass.min(bytes.len()));
            self.ready.extend_from_slice(passing);
            self.pass -= passing.len();
            bytes = rest;
            let wanted = self.wanted();
            let (held, rest) = bytes.split_at((wanted - self.held.len()).min(bytes.len()));
            self.held.extend_from_slice(held);
            bytes = rest;
            if self.held.len() == self.wanted() {
                self.end_frame();
            }
        }
    }

    /// How much of the frame is held back: all of one with headers.
    fn wanted(&self) -> usize {
        match self.frame() {
            Some((HEADERS, length)) if length <= MAX_FRAME => FRAME_HEADER + length,
            _ => FRAME_HEADER,
        }
    }

    /// The type and the length of the frame, when its header is there.
    fn frame(&self) -> Option<(u8, usize)> {
        match *self.held.get(..FRAME_HEADER)? {
            [a, b, c, kind, ..] => Some((kind, usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c))),
            _ => None,
        }
    }

    fn end_frame(&mut self) {
        let Some((kind, length)) = self.frame() else {
            return;
        };
        let held = std::mem::take(&mut self.held);
        match kind == HEADERS && length <= MAX_FRAME {
            true => self.ready.extend(rewritten(&held).unwrap_or(held)),
            false => {
                self.ready.extend(held);
                self.pass = length;
            }
        }
    }
}

/// The frame with another authority. `None` if it has none, or cannot be read: then the library decides what is wrong with it.
fn rewritten(frame: &[u8]) -> Option<Vec<u8>> {
    let (header, payload) = frame.split_at_checked(FRAME_HEADER)?;
    let flags = *header.get(4)?;
    let padded = flags & FLAG_PADDED != 0;
    let before = usize::from(padded) + if flags & FLAG_PRIORITY != 0 { 5 } else { 0 };
    let padding = match padded {
        true => usize::from(*payload.first()?),
        false => 0,
    };
    let (before, rest) = payload.split_at_checked(before)?;
    let (block, padding) = rest.split_at_checked(rest.len().checked_sub(padding)?)?;
    let (start, end) = authority(block)?;
    let mut changed = Vec::with_capacity(frame.len());
    changed.extend_from_slice(before);
    changed.extend_from_slice(block.get(..start)?);
    changed.push(u8::try_from(AUTHORITY.len()).ok()?);
    changed.extend_from_slice(AUTHORITY);
    changed.extend_from_slice(block.get(end..)?);
    changed.extend_from_slice(padding);
    if changed.len() > MAX_FRAME {
        return None;
    }
    let length = u32::try_from(changed.len()).ok()?.to_be_bytes();
    let mut frame = length.get(1..)?.to_vec();
    frame.extend_from_slice(header.get(3..)?);
    frame.extend(changed);
    Some(frame)
}

/// Where in the headers (RFC 7541) the text of the authority is, with its length. Its name has the index 1 in the table of all clients.
///
/// The client may note the text in its table of headers, to name it by its number in later requests. The server then notes the new text
/// under the same number.
fn authority(block: &[u8]) -> Option<(usize, usize)> {
    let mut at = 0;
    loop {
        let first = *block.get(at)?;
        // A header of the table, or a new size of the table.
        let alone = match first {
            0x80.. => Some(7),
            0x20..0x40 => Some(5),
            _ => None,
        };
        if let Some(bits) = alone {
            (_, at) = integer(block, at, bits)?;
            continue;
        }
        let bits = if first & 0x40 != 0 { 6 } else { 4 };
        let name;
        (name, at) = integer(block, at, bits)?;
        if name == 0 {
            at = text(block, at)?;
        }
        let end = text(block, at)?;
        if name == 1 {
            let (length, _) = integer(block, at, 7)?;
            return (length > 0).then_some((at, end));
        }
        at = end;
    }
}

/// A number that begins in the lower bits of a byte, and where the next thing begins.
fn integer(block: &[u8], at: usize, bits: u32) -> Option<(usize, usize)> {
    let most = (1_usize << bits) - 1;
    let mut value = usize::from(*block.get(at)?) & most;
    let (mut at, mut shift) = (at + 1, 0);
    if value < most {
        return Some((value, at));
    }
    loop {
        let byte = *block.get(at)?;
        at += 1;
        // No length or index of one frame has more bits.
        if shift > 21 {
            return None;
        }
        value += usize::from(byte & 0x7f) << shift;
        shift += 7;
        if byte & 0x80 == 0 {
            return Some((value, at));
        }
    }
}

/// Where the text ends.
fn text(block: &[u8], at: usize) -> Option<usize> {
    let (length, at) = integer(block, at, 7)?;
    at.checked_add(length).filter(|end| *end <= block.len())
}

#[cfg(test)]
mod tests {
    use tokio::io::ReadBuf;

    use super::{AUTHORITY, PREFACE, Rewriter};

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let header = [length[1], length[2], length[3], kind, flags, 0, 0, 0, 1];
        [&header, payload].concat()
    }

    fn text(text: &[u8]) -> Vec<u8> {
        let length = u8::try_from(text.len()).unwrap();
        [&[length], text].concat()
    }

    /// All that comes out when `sent` arrives in pieces of this size.
    fn through(sent: &[u8], piece: usize) -> Vec<u8> {
        let (mut rewriter, mut out) = (Rewriter::new(), Vec::new());
        for piece in sent.chunks(piece) {
            rewriter.add(piece);
            let mut bytes = [0; 7];
            loop {
                let mut buffer = ReadBuf::new(&mut bytes);
                if !rewriter.take(&mut buffer) {
                    break;
                }
                out.extend_from_slice(buffer.filled());
            }
        }
        out
    }

    #[test]
    fn the_authority_of_requests_is_replaced() {
        let (path, local) = (text(b"%2Fvar%2Flib%2Fkubelet.sock"), text(AUTHORITY));
        // POST, http, a path, then the authority, and another header with a new name.
        let block = |authority: &[u8]| {
            let path = text(b"/v1beta1.Registration/Register");
            let last = [&[0x40][..], &text(b"te"), &text(b"trailers")].concat();
            [&[0x83, 0x86, 0x44][..], &path, authority, &last].concat()
        };
        let with = |first: u8, value: &[u8]| block(&[&[first], value].concat());
        // 200 bytes: the length needs two bytes. The first bit says that it is a Huffman code.
        let long = [&[0xff, 0x49][..], &[b'x'; 200]].concat();
        let padded = |block: &[u8]| [&[3, 0, 0, 0, 0, 16][..], block, &[0; 3]].concat();
        let cut = [&[0x41][..], &path[..5]].concat();
        let table: [(&str, Vec<u8>, Vec<u8>); 10] = [
            (
                "noted",
                frame(1, 4, &with(0x41, &path)),
                frame(1, 4, &with(0x41, &local)),
            ),
            (
                "not noted",
                frame(1, 4, &with(0x01, &path)),
                frame(1, 4, &with(0x01, &local)),
            ),
            (
                "never noted",
                frame(1, 4, &with(0x11, &path)),
                frame(1, 4, &with(0x11, &local)),
            ),
            (
                "a long Huffman code",
                frame(1, 4, &with(0x41, &long)),
                frame(1, 4, &with(0x41, &local)),
            ),
            (
                "padding and a priority",
                frame(1, 0x2c, &padded(&with(0x41, &path))),
                frame(1, 0x2c, &padded(&with(0x41, &local))),
            ),
            (
                "after a new size of the table",
                frame(1, 4, &[&[0x3f, 0xe1, 0x1f][..], &with(0x41, &path)].concat()),
                frame(1, 4, &[&[0x3f, 0xe1, 0x1f][..], &with(0x41, &local)].concat()),
            ),
            // The second request names it by its number.
            (
                "from the table",
                frame(1, 4, &block(&[0xbe])),
                frame(1, 4, &block(&[0xbe])),
            ),
            (
                "empty",
                frame(1, 4, &with(0x41, &text(b""))),
                frame(1, 4, &with(0x41, &text(b""))),
            ),
            ("cut off", frame(1, 0, &cut), frame(1, 0, &cut)),
            (
                "data",
                frame(0, 0, &with(0x41, &path)),
                frame(0, 0, &with(0x41, &path)),
            ),
        ];
        for (case, sent, expected) in table {
            // Something before and after it.
            let around = |middle: Vec<u8>| {
                let settings = frame(4, 0, &[0; 6]);
                [
                    vec![b'P'; PREFACE],
                    settings.clone(),
                    middle,
                    settings,
                    frame(0, 1, b"message"),
                ]
                .concat()
            };
            let (sent, expected) = (around(sent), around(expected));
            for piece in [1, 2, 5, 9, 10, sent.len()] {
                assert_eq!(through(&sent, piece), expected, "{case}, in pieces of {piece}");
            }
        }
    }
}
