//! Writes to stdout.

use std::io::{IsTerminal, Write, stdout};
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kubelet_status::MemorySink;

use crate::log::Lines;
use crate::run_once::Verdict;
use crate::table::{Row, table};

pub(crate) fn on_terminal() -> bool {
    stdout().is_terminal()
}

/// Shows the table whenever a status changes and, on a terminal, each second. Never returns.
pub(crate) async fn live_table(statuses: &MemorySink, lines: &Lines) -> ! {
    let mut changes = statuses.watch();
    let mut second = tokio::time::interval(Duration::from_secs(1));
    loop {
        tokio::select! {
            _ = changes.changed() => {}
            _ = second.tick(), if on_terminal() => {}
        }
        let text = format!("{}\n{}\n", table(&rows(statuses)), lines.all().join("\n"));
        let frame = if on_terminal() { in_place(&text) } else { text };
        if write(&frame).is_err() {
            // The output was closed; the pods keep running.
            std::future::pending::<()>().await;
        }
    }
}

/// Draws the text over the previous one. Lines are cut to the terminal's width, so that the table stays in
/// place.
fn in_place(text: &str) -> String {
    // Some terminals report a width of zero.
    let columns = rustix::termios::tcgetwinsize(stdout()).map(|size| usize::from(size.ws_col));
    let columns = columns.ok().filter(|columns| *columns > 0).unwrap_or(80).max(20);
    let mut frame = String::from("\x1b[H");
    for line in text.lines() {
        match line.chars().nth(columns) {
            None => frame.push_str(line),
            Some(_) => frame.extend(line.chars().take(columns - 1).chain(['…'])),
        }
        // Clear the rest of a longer line.
        frame.push_str("\x1b[K\n");
    }
    frame + "\x1b[J"
}

/// Prints the final state of each pod and the problems in the manifests.
pub(crate) fn verdict(verdict: &Verdict) {
    let text = format!("{}\n{}", table(&verdict.rows), verdict.problems.join("\n"));
    let _ = write(text.trim_end()).and_then(|()| write("\n"));
}

pub(crate) fn rows(statuses: &MemorySink) -> Vec<Row> {
    let mut rows: Vec<Row> = statuses.all().iter().map(|pod| Row::of(pod, Timestamp::now())).collect();
    rows.sort_by(|a, b| a.name.cmp(&b.name));
    rows
}

fn write(text: &str) -> std::io::Result<()> {
    let mut out = stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}
