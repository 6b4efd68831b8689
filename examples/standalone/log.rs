//! Writes log lines to stderr, or below the live table.

use std::collections::VecDeque;
use std::env;
use std::io::{self, IsTerminal};
use std::sync::{Arc, Mutex, PoisonError};

use tracing::Level;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::args::Output;

/// How many lines are shown below the table.
const LINES: usize = 8;

/// The last lines of the log.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lines(Arc<Mutex<VecDeque<String>>>);

impl Lines {
    pub(crate) fn all(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }

    fn push(&self, text: &str) {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lines.extend(text.lines().map(str::to_owned));
        while lines.len() > LINES {
            lines.pop_front();
        }
    }
}

/// Logs warnings and errors, or what the variable `RUST_LOG` selects. With a live table the lines are below it.
pub(crate) fn init(output: Output) -> Lines {
    let lines = Lines::default();
    let filter = env::var("RUST_LOG").ok().and_then(|filter| filter.parse::<Targets>().ok());
    let filter = filter.unwrap_or_else(|| Targets::new().with_default(Level::WARN));
    let log = tracing_subscriber::fmt().with_max_level(Level::TRACE).with_target(false);
    if output == Output::Table && crate::show::on_terminal() {
        log.with_ansi(false).with_writer(lines.clone()).finish().with(filter).init();
    } else {
        log.with_ansi(io::stderr().is_terminal()).with_writer(io::stderr).finish().with(filter).init();
    }
    lines
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = &'a Lines;

    fn make_writer(&'a self) -> Self::Writer {
        self
    }
}

impl io::Write for &Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.push(&String::from_utf8_lossy(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
