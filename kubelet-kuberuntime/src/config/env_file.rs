//! Environment variables from files of a volume (`fileKeyRef`): lines of `NAME='value'` (`pkg/kubelet/util/env`).

use std::io::{self, Read as _};
use std::path::Path;

/// The longest line that is allowed (`bufio.MaxScanTokenSize`).
const LONGEST_LINE: usize = 64 * 1024;
/// The largest file that is read. No process can have a larger environment.
const LARGEST_FILE: u64 = 16 << 20;

/// The value of `key` in the file at `path` of a volume; empty if the key is missing. Links are resolved as if the
/// volume were the root.
///
/// # Errors
///
/// The file cannot be read, or its content before the key has the wrong format.
pub(super) fn read(volume: &Path, path: &Path, key: &str) -> io::Result<Vec<u8>> {
    let file = open_within(volume, path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut text = Vec::new();
    file.take(LARGEST_FILE + 1).read_to_end(&mut text)?;
    if text.len() as u64 > LARGEST_FILE {
        return Err(io::Error::other(format!(
            "it is larger than {LARGEST_FILE} bytes"
        )));
    }
    value_of(&text, key).map_err(io::Error::other)
}

#[cfg(target_os = "linux")]
fn open_within(volume: &Path, path: &Path) -> io::Result<std::fs::File> {
    use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};

    let root = openat(
        CWD,
        volume,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    // Opening a pipe must not block.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    Ok(openat2(root, path, flags, Mode::empty(), resolve)?.into())
}

#[cfg(not(target_os = "linux"))]
fn open_within(_: &Path, _: &Path) -> io::Result<std::fs::File> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Lines with their numbers. A line that is too long ends the iteration.
struct Lines<'a> {
    rest: &'a [u8],
    number: usize,
    is_too_long: bool,
}

impl<'a> Lines<'a> {
    fn next(&mut self) -> Option<&'a [u8]> {
        if self.rest.is_empty() || self.is_too_long {
            return None;
        }
        let end = self.rest.iter().position(|byte| *byte == b'\n');
        let (line, rest) = match end {
            Some(end) => (&self.rest[..end], &self.rest[end + 1..]),
            None => (self.rest, &self.rest[..0]),
        };
        if line.len() >= LONGEST_LINE {
            self.is_too_long = true;
            return None;
        }
        self.rest = rest;
        self.number += 1;
        Some(line.strip_suffix(b"\r").unwrap_or(line))
    }
}

/// Values are in single quotes, may have several lines, and are literal. Content after the key is not read.
fn value_of(text: &[u8], key: &str) -> Result<Vec<u8>, String> {
    let mut lines = Lines {
        rest: text,
        number: 0,
        is_too_long: false,
    };
    while let Some(line) = lines.next() {
        let line = trim_start(line);
        if line.is_empty() || line.starts_with(b"#") {
            continue;
        }
        let begun = lines.number;
        let invalid = |number: usize, what: &str| {
            Err(format!(
                "invalid environment variable format at line {number}: {what}"
            ))
        };
        let Some(equals) = line.iter().position(|byte| *byte == b'=') else {
            return invalid(begun, "missing '='");
        };
        let (name, value) = (&line[..equals], &line[equals + 1..]);
        if name.iter().all(|byte| is_blank(*byte)) {
            return invalid(begun, "empty variable name");
        }
        if name.last().is_some_and(|byte| is_blank(*byte)) {
            return invalid(begun, "whitespace before '=' is not allowed");
        }
        let is_wanted = name == key.as_bytes();
        if value.first().is_some_and(|byte| is_blank(*byte)) {
            // As in a shell, this is an empty variable followed by something else.
            if is_wanted {
                return Ok(Vec::new());
            }
            continue;
        }
        let Some(mut rest) = value.strip_prefix(b"'") else {
            return invalid(begun, "value must be enclosed in single quotes");
        };
        let mut value = Vec::new();
        loop {
            if let Some(end) = rest.iter().position(|byte| *byte == b'\'') {
                value.extend_from_slice(&rest[..end]);
                let after = trim_start(&rest[end + 1..]);
                if !after.is_empty() && !after.starts_with(b"#") {
                    return invalid(lines.number, "unexpected content after closing quote");
                }
                break;
            }
            value.extend_from_slice(rest);
            value.push(b'\n');
            rest = match lines.next() {
                Some(line) => line,
                None => {
                    return Err(format!(
                        "invalid environment variable format starting at line {begun}: unclosed single quote"
                    ));
                }
            };
        }
        if is_wanted {
            return Ok(value);
        }
    }
    match lines.is_too_long {
        true => Err(format!("line {} is too long", lines.number + 1)),
        false => Ok(Vec::new()),
    }
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

fn trim_start(line: &[u8]) -> &[u8] {
    let begin = line
        .iter()
        .position(|byte| !is_blank(*byte))
        .unwrap_or(line.len());
    &line[begin..]
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn values_stand_in_single_quotes() {
        // text, key, value
        let cases = [
            ("", "A", ""),
            ("A='1'", "A", "1"),
            ("A='1'\nB='2'\n", "B", "2"),
            ("A='1'\r\nB='2'\r\n", "B", "2"),
            ("A='1'\nA='2'\n", "A", "1"),
            ("A='1'\n", "B", ""),
            ("A=''\n", "A", ""),
            ("  A='1'\n\t B='2'\n", "B", "2"),
            ("# of A\n\n \t\n  # more\nA='1'\n", "A", "1"),
            ("A='1' # one\nB='2'#two\n", "B", "2"),
            ("A=' 1#2 = 3 '\n", "A", " 1#2 = 3 "),
            ("A='$B ${C} $(D) \\n \"x\"'\n", "A", "$B ${C} $(D) \\n \"x\""),
            ("A='1\n\n # 2\n  3 '\nB='4'\n", "A", "1\n\n # 2\n  3 "),
            ("A='1\n2'\nB='4'\n", "B", "4"),
            ("A='1\r\n2'\n", "A", "1\n2"),
            ("A= '1'\nB='2'\n", "A", ""),
            ("A=\t'1'\nB='2'\n", "B", "2"),
            ("Ä='中 🌍'\n", "Ä", "中 🌍"),
            // Later content is not read.
            ("A='1'\nnonsense\n", "A", "1"),
        ];
        for (text, key, value) in cases {
            let found = value_of(text.as_bytes(), key).map(|value| String::from_utf8(value).unwrap());
            assert_eq!(found.as_deref(), Ok(value), "{text:?}");
        }
        assert_eq!(value_of(b"A='\xff'", "A").unwrap(), b"\xff");
    }

    #[test]
    fn what_is_in_another_form_is_refused() {
        let cases = [
            ("A='1'\nnonsense\n", "at line 2: missing '='"),
            ("='1'\n", "at line 1: empty variable name"),
            // Blanks before a name are ignored.
            ("  ='1'\n", "at line 1: empty variable name"),
            ("A ='1'\n", "at line 1: whitespace before '=' is not allowed"),
            ("A=1\n", "at line 1: value must be enclosed in single quotes"),
            ("A=\"1\"\n", "at line 1: value must be enclosed in single quotes"),
            ("A=\n", "at line 1: value must be enclosed in single quotes"),
            ("A='1''2'\n", "at line 1: unexpected content after closing quote"),
            ("A='1'2\n", "at line 1: unexpected content after closing quote"),
            (
                "A='1\nB='2'\n",
                "at line 2: unexpected content after closing quote",
            ),
            ("\nA='1\n2\n", "starting at line 2: unclosed single quote"),
        ];
        for (text, problem) in cases {
            let expected = format!("invalid environment variable format {problem}");
            assert_eq!(value_of(text.as_bytes(), "B"), Err(expected), "{text:?}");
        }
        let long = format!("A='1'\nB='{}'\nC='3'\n", "x".repeat(LONGEST_LINE));
        assert_eq!(value_of(long.as_bytes(), "A").unwrap(), b"1");
        assert_eq!(
            value_of(long.as_bytes(), "C"),
            Err("line 2 is too long".to_owned())
        );
    }

    #[test]
    fn no_way_leads_out_of_the_volume() {
        let dir = tempfile::tempdir().unwrap();
        let volume = dir.path().join("volume");
        fs::create_dir_all(volume.join("deep/etc")).unwrap();
        fs::write(dir.path().join("secret"), "A='secret'").unwrap();
        fs::write(volume.join("env"), "A='1'").unwrap();
        fs::write(volume.join("deep/etc/env"), "A='2'").unwrap();
        let links = [
            ("up", "../secret"),
            ("absolute", "/deep/etc/env"),
            ("outside", dir.path().join("secret").to_str().unwrap()),
            ("folder", "deep"),
        ]
        .map(|(link, to)| (volume.join(link), to.to_owned()));
        for (link, to) in &links {
            std::os::unix::fs::symlink(to, link).unwrap();
        }
        let read =
            |path: &str| read(&volume, Path::new(path), "A").map(|value| String::from_utf8(value).unwrap());
        assert_eq!(read("env").unwrap(), "1");
        assert_eq!(read("folder/etc/env").unwrap(), "2");
        // Links cannot leave the volume.
        assert_eq!(read("absolute").unwrap(), "2");
        assert_eq!(read("../env").unwrap(), "1");
        for path in ["up", "outside", "../secret", "missing", "deep"] {
            assert!(read(path).is_err(), "{path}");
        }
    }
}
