//! Finds the beginning of the last lines of a file.

use std::io::{self, Read, Seek, SeekFrom};

/// How much is read at once, from the end.
const BLOCK: u64 = 16 * 1024;

/// The offset of the last `lines` lines, and how many there are. Text after the last line end is included, but does not
/// count as a line (`findTailLineStartIndex`).
pub(super) fn tail_start(file: &mut (impl Read + Seek), lines: u64) -> io::Result<(u64, u64)> {
    let mut right = file.seek(SeekFrom::End(0))?;
    let mut block = Vec::new();
    let mut found = 0;
    while right > 0 {
        let left = right.saturating_sub(BLOCK);
        file.seek(SeekFrom::Start(left))?;
        block.clear();
        file.take(right - left).read_to_end(&mut block)?;
        for (at, byte) in block.iter().enumerate().rev() {
            if *byte == b'\n' {
                if found == lines {
                    return Ok((left + at as u64 + 1, found));
                }
                found += 1;
            }
        }
        right = left;
    }
    Ok((0, found))
}

/// How many lines there are to be read.
pub(super) fn count_lines(source: &mut impl Read) -> io::Result<u64> {
    let mut buffer = [0; 16 * 1024];
    let mut lines = 0;
    loop {
        match source.read(&mut buffer)? {
            0 => return Ok(lines),
            read => lines += buffer[..read].iter().filter(|byte| **byte == b'\n').count() as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    #[test]
    fn the_last_lines() {
        let start = |text: &[u8], lines| tail_start(&mut Cursor::new(text), lines).unwrap();
        assert_eq!(start(b"", 1), (0, 0));
        assert_eq!(start(b"a\nb\nc\n", 0), (6, 0));
        assert_eq!(start(b"a\nb\nc\n", 1), (4, 1));
        assert_eq!(start(b"a\nb\nc\n", 3), (0, 3));
        assert_eq!(start(b"a\nb\nc\n", 9), (0, 3));
        assert_eq!(start(b"a\nb\nno end", 1), (2, 1));
        assert_eq!(start(b"a\nb\nno end", 0), (4, 0));
        let long = [vec![b'x'; 3 * BLOCK as usize], b"\nend\n".to_vec()].concat();
        assert_eq!(start(&long, 1), (3 * BLOCK + 1, 1));
        assert_eq!(start(&long, 2), (0, 2));
        assert_eq!(count_lines(&mut Cursor::new(&long)).unwrap(), 2);
    }
}
