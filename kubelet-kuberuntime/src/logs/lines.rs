//! Splits bytes into lines, with bounded memory.

use std::ops::Range;

/// A line with more bytes is returned in pieces. Runtimes split lines at a lower limit.
pub(super) const MAX_PIECE: usize = 256 * 1024;

/// Bytes that were read and not yet returned.
#[derive(Default)]
pub(super) struct LineBuffer {
    bytes: Vec<u8>,
    /// Where the next piece begins.
    start: usize,
    /// Up to here there is no line end.
    searched: usize,
    /// Whether the next piece is not the first of its line.
    within: bool,
}

/// A line, or a piece of one.
pub(super) struct Piece {
    range: Range<usize>,
    /// Whether it is the first of its line.
    pub(super) begins: bool,
    /// Whether it is the last of its line.
    pub(super) ends: bool,
}

impl LineBuffer {
    /// The buffer to add bytes to. Returned bytes are removed first.
    pub(super) fn room(&mut self) -> &mut Vec<u8> {
        self.bytes.drain(..self.start);
        self.searched -= self.start;
        self.start = 0;
        &mut self.bytes
    }

    /// The next line, or piece of a long one; `None` if more bytes are needed.
    pub(super) fn next(&mut self) -> Option<Piece> {
        let end = self.bytes[self.searched..].iter().position(|byte| *byte == b'\n');
        match end {
            Some(at) => Some(self.take(self.searched + at + 1, true)),
            None if self.bytes.len() - self.start >= MAX_PIECE => Some(self.take(self.bytes.len(), false)),
            None => {
                self.searched = self.bytes.len();
                None
            }
        }
    }

    /// The rest, a line without an end.
    pub(super) fn rest(&mut self) -> Option<Piece> {
        (self.start < self.bytes.len()).then(|| self.take(self.bytes.len(), true))
    }

    pub(super) fn text(&self, piece: &Piece) -> &[u8] {
        &self.bytes[piece.range.clone()]
    }

    fn take(&mut self, end: usize, ends: bool) -> Piece {
        let range = self.start..end;
        self.start = end;
        self.searched = end;
        let begins = !std::mem::replace(&mut self.within, !ends);
        Piece { range, begins, ends }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_pieces_and_the_rest() {
        let mut lines = LineBuffer::default();
        lines.room().extend_from_slice(b"a\n\nbc");
        let mut taken = Vec::new();
        while let Some(piece) = lines.next() {
            taken.push((lines.text(&piece).to_vec(), piece.begins, piece.ends));
        }
        assert_eq!(
            taken,
            [(b"a\n".to_vec(), true, true), (b"\n".to_vec(), true, true)]
        );
        lines.room().extend_from_slice(b"d\ne");
        let piece = lines.next().unwrap();
        assert_eq!(lines.text(&piece), b"bcd\n");
        assert!(lines.next().is_none());
        let rest = lines.rest().unwrap();
        assert_eq!(
            (lines.text(&rest), rest.begins, rest.ends),
            (&b"e"[..], true, true)
        );
        assert!(lines.rest().is_none());
    }

    #[test]
    fn a_long_line_comes_in_pieces() {
        let mut lines = LineBuffer::default();
        lines.room().extend_from_slice(&[b'x'; MAX_PIECE]);
        let piece = lines.next().unwrap();
        assert_eq!((piece.begins, piece.ends), (true, false));
        lines.room().extend_from_slice(b"y\nz\n");
        let piece = lines.next().unwrap();
        assert_eq!(
            (lines.text(&piece), piece.begins, piece.ends),
            (&b"y\n"[..], false, true)
        );
        let piece = lines.next().unwrap();
        assert_eq!(
            (lines.text(&piece), piece.begins, piece.ends),
            (&b"z\n"[..], true, true)
        );
    }
}
