//! Header blocks: names and values, compressed by one zlib stream a direction, which begins with SPDY's dictionary.

use bytes::{Buf, BufMut};
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

/// The dictionary of SPDY/3.
const DICTIONARY: &[u8] = include_bytes!("dictionary.bin");

/// The most bytes a header block may have when it is not compressed. It bounds what a small frame can make of itself. The reference
/// takes 1 MiB for each name and each value; clients of Kubernetes send less than 200 bytes.
pub const MAX_BLOCK: usize = 64 << 10;

/// The most headers of a block (`defaultMaxHeaderCount` of `spdystream`).
pub const MAX_HEADERS: usize = 1000;

/// Headers in their order. Names are in lower case; the values of a name are separated by zero bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers(Vec<(String, String)>);

impl Headers {
    /// No headers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a header. The name is put in lower case.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.0.push((name.to_ascii_lowercase(), value.to_owned()));
        self
    }

    /// The first value of a header, or nothing if there is no such header or it is empty.
    pub fn get(&self, name: &str) -> Option<&str> {
        let (_, value) = self.0.iter().find(|(n, _)| n.eq_ignore_ascii_case(name))?;
        value.split('\0').next().filter(|v| !v.is_empty())
    }

    /// All headers.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(n, v)| (n.as_str(), v.as_str()))
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.put_u32(self.0.len() as u32);
        for (name, value) in &self.0 {
            for part in [name, value] {
                out.put_u32(part.len() as u32);
                out.put_slice(part.as_bytes());
            }
        }
    }

    fn read(mut block: &[u8]) -> Result<Self, &'static str> {
        let count = block.try_get_u32().map_err(|_| "it is cut off")? as usize;
        if count > MAX_HEADERS {
            return Err("it has too many headers");
        }
        let mut headers: Vec<(String, String)> = Vec::new();
        for _ in 0..count {
            let name = read_part(&mut block)?;
            let value = read_part(&mut block)?;
            if name.is_empty() {
                return Err("a name is empty");
            }
            if name.bytes().any(|b| b.is_ascii_uppercase()) {
                return Err("a name is not in lower case");
            }
            if headers.iter().any(|(n, _)| *n == name) {
                return Err("a name is there twice");
            }
            headers.push((name, value));
        }
        if !block.is_empty() {
            return Err("bytes follow the last header");
        }
        Ok(Self(headers))
    }
}

fn read_part(block: &mut &[u8]) -> Result<String, &'static str> {
    let length = block.try_get_u32().map_err(|_| "it is cut off")? as usize;
    let (part, rest) = block.split_at_checked(length).ok_or("it is cut off")?;
    *block = rest;
    String::from_utf8(part.to_vec()).map_err(|_| "it is not UTF-8")
}

/// The zlib stream of what we send.
pub(super) struct Compressor(Option<Compress>);

impl Compressor {
    pub(super) fn new() -> Self {
        Self(None)
    }

    pub(super) fn compress(&mut self, headers: &Headers) -> Result<Vec<u8>, &'static str> {
        let mut block = Vec::new();
        headers.write(&mut block);
        let stream = match &mut self.0 {
            Some(stream) => stream,
            none => {
                let mut stream = Compress::new(Compression::best(), true);
                stream
                    .set_dictionary(DICTIONARY)
                    .map_err(|_| "the dictionary is refused")?;
                none.insert(stream)
            }
        };
        let mut out = Vec::with_capacity(block.len() + 64);
        let mut rest = &block[..];
        loop {
            let before = stream.total_in();
            stream
                .compress_vec(rest, &mut out, FlushCompress::Sync)
                .map_err(|_| "it cannot be compressed")?;
            rest = &rest[(stream.total_in() - before) as usize..];
            // Room that is left over means that all was flushed.
            if rest.is_empty() && out.len() < out.capacity() {
                return Ok(out);
            }
            out.reserve(out.len().max(64));
        }
    }
}

/// The zlib stream of what we receive.
pub(super) struct Decompressor(Option<Decompress>);

impl Decompressor {
    pub(super) fn new() -> Self {
        Self(None)
    }

    pub(super) fn decompress(&mut self, mut compressed: &[u8]) -> Result<Headers, &'static str> {
        let stream = self.0.get_or_insert_with(|| Decompress::new(true));
        let mut out = Vec::with_capacity(1024);
        loop {
            if out.len() == out.capacity() {
                if out.len() >= MAX_BLOCK {
                    return Err("it is too large");
                }
                out.reserve_exact(out.len().min(MAX_BLOCK - out.len()));
            }
            let (read, written) = (stream.total_in(), stream.total_out());
            let result = stream.decompress_vec(compressed, &mut out, FlushDecompress::Sync);
            compressed = compressed
                .get((stream.total_in() - read) as usize..)
                .ok_or("it cannot be decompressed")?;
            let progress = stream.total_in() > read || stream.total_out() > written;
            match result {
                Ok(Status::StreamEnd) => return Err("its compression ends"),
                Ok(_) if compressed.is_empty() && out.len() < out.capacity() => return Headers::read(&out),
                Ok(_) if progress || out.len() == out.capacity() => {}
                Ok(_) => return Err("it cannot be decompressed"),
                Err(error) if error.needs_dictionary().is_some() => {
                    stream
                        .set_dictionary(DICTIONARY)
                        .map_err(|_| "it needs another dictionary")?;
                }
                Err(_) => return Err("it cannot be decompressed"),
            }
        }
    }
}
