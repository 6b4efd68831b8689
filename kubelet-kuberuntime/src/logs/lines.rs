//! Splits bytes into lines, with bounded memory.

use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;

use rustix::io::{Errno, ReadWriteFlags};

/// A line with more bytes is returned in pieces. Runtimes split lines at a lower limit.
pub(super) const MAX_PIECE: usize = 256 * 1024;

/// How much is read at once: at first little, because many logs are short and many are followed; then more.
const FIRST_BLOCK: usize = 8 * 1024;
const MAX_BLOCK: usize = 64 * 1024;
/// How much a follower reads at once that waits for more.
const WAITING_BLOCK: usize = 2 * 1024;

/// The offset with which `preadv2` reads at the position of the file, and moves it.
const AT_POSITION: u64 = u64::MAX;

/// Bytes that were read and not yet returned.
#[derive(Default)]
pub(super) struct LineBuffer {
    bytes: Vec<u8>,
    /// Up to here there are bytes; after that, room for more.
    end: usize,
    /// Where the next piece begins.
    start: usize,
    /// Up to here there is no line end.
    searched: usize,
    /// Whether the next piece is not the first of its line.
    within: bool,
}

/// A line, or a piece of one.
#[derive(Debug)]
pub(super) struct Piece {
    range: Range<usize>,
    /// Whether it is the first of its line.
    pub(super) begins: bool,
    /// Whether it is the last of its line.
    pub(super) ends: bool,
}

impl LineBuffer {
    /// Reads more, and returns whether the source has ended.
    pub(super) fn read_from(&mut self, source: &mut dyn Read) -> io::Result<bool> {
        self.make_room((2 * self.bytes.len()).clamp(FIRST_BLOCK, MAX_BLOCK));
        while self.end < self.bytes.len() {
            match source.read(&mut self.bytes[self.end..]) {
                Ok(0) => return Ok(true),
                Ok(read) => self.end += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    /// Reads what the system has in memory, and returns whether the file has ended. This does not wait for a disk. It fails
    /// if it would have to, and then nothing was read. With `is_waiting`, it reads a few lines at most.
    pub(super) fn read_ready(&mut self, file: &File, is_waiting: bool) -> io::Result<bool> {
        self.make_room(match is_waiting {
            true => WAITING_BLOCK,
            false => (2 * self.bytes.len()).clamp(FIRST_BLOCK, MAX_BLOCK),
        });
        let before = self.end;
        while self.end < self.bytes.len() {
            let mut room = [io::IoSliceMut::new(&mut self.bytes[self.end..])];
            match rustix::io::preadv2(file, &mut room, AT_POSITION, ReadWriteFlags::NOWAIT) {
                Ok(0) => return Ok(true),
                Ok(read) => self.end += read,
                Err(Errno::INTR) => {}
                Err(_) if self.end > before => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(false)
    }

    /// Moves the bytes that are left to the begin, and makes room for a block after them.
    fn make_room(&mut self, block: usize) {
        self.bytes.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.searched -= self.start;
        self.start = 0;
        if self.bytes.len() < self.end + block {
            self.bytes.resize(self.end + block, 0);
        }
    }

    /// Frees the memory, if no bytes are left.
    pub(super) fn release(&mut self) {
        if self.start == self.end {
            (self.start, self.end, self.searched) = (0, 0, 0);
            self.bytes = Vec::new();
        }
    }

    /// How many bytes are left.
    pub(super) fn len(&self) -> usize {
        self.end - self.start
    }

    /// The next line, or piece of a long one; `None` if more bytes are needed.
    pub(super) fn next(&mut self) -> Option<Piece> {
        let limit = self.start + MAX_PIECE;
        match memchr::memchr(b'\n', &self.bytes[self.searched..self.end]) {
            Some(at) if self.searched + at < limit => Some(self.take(self.searched + at + 1, true)),
            _ if self.end >= limit => Some(self.take(limit, false)),
            _ => {
                self.searched = self.end;
                None
            }
        }
    }

    /// The rest, a line without an end.
    pub(super) fn rest(&mut self) -> Option<Piece> {
        (self.start < self.end).then(|| self.take(self.end, true))
    }

    /// The bytes of a piece, until more are read.
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

    fn read(lines: &mut LineBuffer, mut bytes: &[u8]) {
        while !lines.read_from(&mut bytes).unwrap() {}
    }

    #[test]
    fn lines_pieces_and_the_rest() {
        let mut lines = LineBuffer::default();
        read(&mut lines, b"a\n\nbc");
        let mut taken = Vec::new();
        while let Some(piece) = lines.next() {
            taken.push((lines.text(&piece).to_vec(), piece.begins, piece.ends));
        }
        assert_eq!(
            taken,
            [(b"a\n".to_vec(), true, true), (b"\n".to_vec(), true, true)]
        );
        read(&mut lines, b"d\ne");
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
        read(&mut lines, &[b'x'; MAX_PIECE]);
        let piece = lines.next().unwrap();
        assert_eq!((piece.begins, piece.ends), (true, false));
        read(&mut lines, b"y\nz\n");
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
