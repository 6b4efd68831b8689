//! Gathers lines to a chunk of the output.

use super::super::writer::{LogChunk, LogStream};

/// A chunk is not made longer than this, unless one line is longer. An HTTP server holds some chunks for a slow client, and
/// writes each as one record of TLS, which has 16 KiB at most.
const MAX_CHUNK: usize = 14 * 1024;

/// The lines of the next chunk.
pub(super) struct Batch {
    bytes: Vec<u8>,
    /// The stream of these lines; of the first one, if streams may be mixed.
    stream: Option<LogStream>,
    /// Whether a chunk may have lines of both streams.
    mixed: bool,
    /// The first line of another stream.
    next: Option<(LogStream, Vec<u8>)>,
}

impl Batch {
    pub(super) fn of_one_stream() -> Self {
        Self::new(false)
    }

    pub(super) fn of_all_streams() -> Self {
        Self::new(true)
    }

    fn new(mixed: bool) -> Self {
        Self {
            bytes: Vec::new(),
            stream: None,
            mixed,
            next: None,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Prepares for this many bytes, or for a whole chunk.
    pub(super) fn reserve(&mut self, bytes: usize) {
        if self.bytes.is_empty() {
            self.bytes.reserve(bytes.min(MAX_CHUNK));
        }
    }

    /// Frees the memory, if it is empty.
    pub(super) fn release(&mut self) {
        if self.bytes.is_empty() {
            self.bytes = Vec::new();
        }
    }

    /// Whether a line of this length can be added.
    pub(super) fn has_room(&self, line: usize) -> bool {
        self.bytes.is_empty() || self.bytes.len() + line <= MAX_CHUNK
    }

    /// Adds a line through `write`, which returns its stream, if it has output. Returns whether the chunk must be taken
    /// now, because the line is of another stream.
    pub(super) fn write<E>(
        &mut self,
        write: impl FnOnce(&mut Vec<u8>) -> Result<Option<LogStream>, E>,
    ) -> Result<bool, E> {
        let before = self.bytes.len();
        let Some(stream) = write(&mut self.bytes)? else {
            return Ok(false);
        };
        if before == 0 {
            self.stream = Some(stream);
        } else if !self.mixed && self.stream != Some(stream) {
            self.next = Some((stream, self.bytes.split_off(before)));
            return Ok(true);
        }
        Ok(false)
    }

    /// The chunk, if there is output.
    pub(super) fn take(&mut self) -> Option<LogChunk> {
        let bytes = std::mem::take(&mut self.bytes);
        let stream = self.stream.take()?;
        if let Some((stream, bytes)) = self.next.take() {
            self.stream = Some(stream);
            self.bytes = bytes;
        }
        Some(LogChunk { stream, bytes })
    }
}
