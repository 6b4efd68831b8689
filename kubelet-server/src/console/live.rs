//! What a page gets while one looks at it, as server-sent events.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, BoxStream, Stream, StreamExt as _};
use kubelet_core::runtime::streaming::StreamError;
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::pages::Part;
use crate::BoxError;

/// How often a stream without news sends a comment, so that a client that is gone is noticed.
const ALIVE: Duration = Duration::from_secs(15);
/// The longest line of a log that is sent; the rest is left out.
const LONGEST: usize = 64 * 1024;

/// One event. Browsers join the lines of `data` with line ends.
pub(super) fn event(name: &str, text: &str) -> Bytes {
    let mut event = format!("event: {name}\n");
    for line in text.split(['\n', '\r']) {
        event.push_str("data: ");
        event.push_str(line);
        event.push('\n');
    }
    event.push('\n');
    Bytes::from(event)
}

/// The parts that are not as they were sent last, each as an event.
pub(super) fn changed(parts: Vec<Part>, sent: &mut BTreeMap<&'static str, String>) -> Option<Bytes> {
    let mut events = Vec::new();
    for (id, part) in parts {
        let part = part.into_string();
        if sent.get(id) != Some(&part) {
            events.extend_from_slice(&event(id, &part));
            sent.insert(id, part);
        }
    }
    (!events.is_empty()).then(|| Bytes::from(events))
}

/// The lines of a log as events, until the log ends.
pub(super) fn log(
    pieces: BoxStream<'static, Result<Vec<u8>, StreamError>>,
) -> impl Stream<Item = Result<Bytes, BoxError>> + Send + 'static {
    let mut alive = interval(ALIVE);
    alive.set_missed_tick_behavior(MissedTickBehavior::Delay);
    stream::unfold(
        Some(Following {
            pieces,
            alive,
            rest: Vec::new(),
        }),
        |following| async {
            let mut following = following?;
            let (event, ended) = following.next().await;
            Some((Ok(event), (!ended).then_some(following)))
        },
    )
}

struct Following {
    pieces: BoxStream<'static, Result<Vec<u8>, StreamError>>,
    alive: Interval,
    /// The beginning of a line whose end has not come.
    rest: Vec<u8>,
}

impl Following {
    /// The next event, and whether it is the last one.
    async fn next(&mut self) -> (Bytes, bool) {
        loop {
            let piece = tokio::select! {
                biased;
                piece = self.pieces.next() => piece,
                _ = self.alive.tick() => return (Bytes::from_static(b": alive\n\n"), false),
            };
            match piece {
                Some(Ok(piece)) => {
                    self.rest.extend_from_slice(&piece);
                    if let Some(lines) = whole_lines(&mut self.rest) {
                        return (event("line", &lines), false);
                    }
                }
                Some(Err(error)) => return (event("end", &error.message), true),
                None => {
                    let rest = String::from_utf8_lossy(&self.rest);
                    let last = if rest.is_empty() {
                        Bytes::new()
                    } else {
                        event("line", &rest)
                    };
                    return (
                        Bytes::from([last, event("end", "The container has ended.")].concat()),
                        true,
                    );
                }
            }
        }
    }
}

/// Takes the lines that are whole, without the last line end. A line that is too long counts as whole.
fn whole_lines(rest: &mut Vec<u8>) -> Option<String> {
    let end = match rest.iter().rposition(|byte| *byte == b'\n') {
        Some(end) => end,
        None if rest.len() > LONGEST => rest.len() - 1,
        None => return None,
    };
    let lines: Vec<u8> = rest.drain(..=end).collect();
    let lines = lines.strip_suffix(b"\n").unwrap_or(&lines);
    Some(String::from_utf8_lossy(lines).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_cannot_be_forged_by_text() {
        let text = "a\n\nevent: pods\r\ndata: <b>";
        assert_eq!(
            event("line", text),
            "event: line\ndata: a\ndata: \ndata: event: pods\ndata: \ndata: data: <b>\n\n"
        );
    }

    #[test]
    fn lines_are_sent_whole() {
        let mut rest = b"one\ntw".to_vec();
        assert_eq!(whole_lines(&mut rest).as_deref(), Some("one"));
        assert_eq!(whole_lines(&mut rest), None);
        rest.extend(b"o\nthree\n");
        assert_eq!(whole_lines(&mut rest).as_deref(), Some("two\nthree"));
        assert!(rest.is_empty());
        rest = vec![b'x'; LONGEST + 1];
        assert_eq!(whole_lines(&mut rest).map(|line| line.len()), Some(LONGEST + 1));
    }
}
