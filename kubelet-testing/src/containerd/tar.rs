//! Writes a tar archive, as far as an image needs it.

const BLOCK: usize = 512;

/// Writes a ustar archive into memory. Owner 0:0, no times, so that the same content gives the same bytes.
#[derive(Debug, Default)]
pub(super) struct TarWriter(Vec<u8>);

impl TarWriter {
    pub(super) fn directory(&mut self, path: &str, mode: u32) {
        self.entry(b'5', path, mode, "", &[]);
    }

    pub(super) fn file(&mut self, path: &str, mode: u32, content: &[u8]) {
        self.entry(b'0', path, mode, "", content);
    }

    pub(super) fn symlink(&mut self, path: &str, target: &str) {
        self.entry(b'2', path, 0o777, target, &[]);
    }

    /// The whole archive.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.0.extend([0; 2 * BLOCK]);
        self.0
    }

    /// Paths and targets must be at most 100 bytes long. All of ours are.
    fn entry(&mut self, kind: u8, path: &str, mode: u32, target: &str, content: &[u8]) {
        let mut header = [0u8; BLOCK];
        let mut put = |at: usize, field: &[u8]| header[at..at + field.len()].copy_from_slice(field);
        put(0, path.as_bytes());
        put(100, format!("{mode:07o}").as_bytes());
        put(108, b"0000000");
        put(116, b"0000000");
        put(124, format!("{:011o}", content.len()).as_bytes());
        put(136, b"00000000000");
        // The checksum counts its own field as spaces.
        put(148, b"        ");
        put(156, &[kind]);
        put(157, target.as_bytes());
        put(257, b"ustar\x0000");
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        self.0.extend(header);
        self.0.extend(content);
        self.0.resize(self.0.len().next_multiple_of(BLOCK), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_a_header_and_whole_blocks() {
        let mut tar = TarWriter::default();
        tar.directory("bin/", 0o755);
        tar.symlink("bin/sh", "busybox");
        tar.file("etc/passwd", 0o644, &[b'x'; 513]);
        let archive = tar.finish();
        assert_eq!(archive.len(), BLOCK * (1 + 1 + 3 + 2));
        assert_eq!(&archive[..5], b"bin/\0");
        assert_eq!(&archive[BLOCK + 157..BLOCK + 165], b"busybox\0");
        assert_eq!(&archive[2 * BLOCK + 124..2 * BLOCK + 135], b"00000001001");
        // As `tar` computes it for this header.
        assert_eq!(&archive[148..156], b"006515\0 ");
    }
}
