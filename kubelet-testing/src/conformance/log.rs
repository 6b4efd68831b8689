//! Log files in the format of CRI: `<RFC 3339 time> <stdout|stderr> <F|P> <line>`.

use std::path::Path;

use k8s_openapi::jiff::Timestamp;

use super::verdict::{During, Outcome, Seen, ensure};

/// A line of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) at: Timestamp,
    pub(crate) stream: String,
    /// `F`: the whole line, or the end of it. `P`: there is more.
    pub(crate) tag: String,
    pub(crate) text: String,
}

/// All complete lines of a log file. A missing file has none.
pub(crate) fn read(path: &Path) -> Outcome<Vec<Line>> {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(error).during(&format!("read {}", path.display())),
    };
    let text = String::from_utf8_lossy(&bytes);
    // Text after the last newline is still being written.
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    whole.lines().map(parse).collect()
}

fn parse(line: &str) -> Outcome<Line> {
    let not_cri = |what: &str| Seen::new(format!("a line of the log has {what}: {line:?}"));
    let mut fields = line.splitn(4, ' ');
    let mut field = |what: &str| fields.next().ok_or_else(|| not_cri(&format!("no {what}")));
    let at = field("time")?;
    let at = at.parse().map_err(|_| not_cri("no time of RFC 3339"))?;
    let (stream, tag) = (field("stream")?, field("tag")?);
    ensure!(
        ["stdout", "stderr"].contains(&stream),
        "a line of the log has no stream: {line:?}"
    );
    // More tags may follow after colons.
    let tag = tag.split(':').next().unwrap_or_default();
    ensure!(
        ["F", "P"].contains(&tag),
        "a line of the log is neither full nor partial: {line:?}"
    );
    Ok(Line {
        at,
        stream: stream.to_owned(),
        tag: tag.to_owned(),
        text: field("text")?.to_owned(),
    })
}

/// The texts of one stream.
pub(crate) fn texts(lines: &[Line], stream: &str) -> Vec<String> {
    let of_stream = lines.iter().filter(|line| line.stream == stream);
    of_stream.map(|line| line.text.clone()).collect()
}

/// Checks that a log has the output of [`Program::Prints`](super::Program::Prints).
pub(crate) fn is_what_prints_writes(lines: &[Line]) -> Outcome {
    let [out, err] = ["stdout", "stderr"].map(|stream| texts(lines, stream));
    ensure!(
        out == ["one", "two"],
        "the log has from standard output {out:?}: {lines:?}"
    );
    ensure!(
        err == ["three"],
        "the log has from standard error {err:?}: {lines:?}"
    );
    let whole = lines.iter().all(|line| line.tag == "F");
    ensure!(whole, "whole lines are marked as partial: {lines:?}");
    let out = lines
        .iter()
        .filter(|line| line.stream == "stdout")
        .map(|line| line.at);
    ensure!(out.is_sorted(), "times go backwards: {lines:?}");
    Ok(())
}

/// Checks that these files together have all the numbers that [`Program::Counts`](super::Program::Counts) wrote.
pub(crate) fn counts_on(files: &[&Path]) -> Outcome {
    let mut numbers = Vec::new();
    for path in files {
        for text in texts(&read(path)?, "stdout") {
            numbers.push(text.parse::<u32>().during(&format!("the number {text:?}"))?);
        }
    }
    let expected: Vec<u32> = (1..=u32::try_from(numbers.len()).unwrap_or(u32::MAX)).collect();
    ensure!(numbers == expected, "counted from 1, the logs have {numbers:?}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        let line = parse("2024-01-02T03:04:05.000000006Z stderr P some text").map_err(Seen::into_text);
        let line = line.unwrap();
        assert_eq!(
            (&*line.stream, &*line.tag, &*line.text),
            ("stderr", "P", "some text")
        );
        assert_eq!(
            parse("2024-01-02T03:04:05Z stdout F:x ")
                .map_err(Seen::into_text)
                .unwrap()
                .text,
            ""
        );
        for (line, expected) in [
            ("hello", "no time"),
            ("2024-01-02T03:04:05Z stdin F x", "no stream"),
            ("2024-01-02T03:04:05Z stdout X x", "neither"),
            ("2024-01-02T03:04:05Z stdout F", "no text"),
        ] {
            let error = parse(line).unwrap_err().into_text();
            assert!(error.contains(expected), "{error}");
        }
    }
}
