//! What was measured of a program.

use std::time::Duration;

use tokio::time::sleep;

use crate::program::{Program, Used};

/// The time for the effects of a change to settle.
const SETTLING: Duration = Duration::from_secs(15);
const IDLE: Duration = Duration::from_secs(15);

/// A measured value.
pub(crate) struct Figure {
    what: String,
    value: f64,
    unit: &'static str,
}

/// The figures of a program.
#[derive(Default)]
pub(crate) struct Report {
    pub(crate) figures: Vec<Figure>,
    /// The CPU time that the idle program uses in a second.
    idle: f64,
}

impl Report {
    pub(crate) fn add(&mut self, what: impl Into<String>, value: f64, unit: &'static str) {
        let what = what.into();
        println!("| {what} | {value:.2} {unit} |");
        self.figures.push(Figure { what, value, unit });
    }

    /// Measures the idle program.
    pub(crate) async fn rest(&mut self, program: &Program, pods: usize) {
        sleep(SETTLING).await;
        let meter = program.meter();
        sleep(IDLE).await;
        let used = meter.used();
        self.idle = used.cpu / used.seconds;
        self.add(format!("{pods} pods, idle: CPU a second"), self.idle * 1e3, "ms");
        self.add(format!("{pods} pods, idle: peak of the memory"), used.peak, "MB");
    }

    /// The CPU time of work, without that of an idle program.
    pub(crate) fn cpu(&self, used: &Used) -> f64 {
        used.cpu - self.idle * used.seconds
    }
}

/// How the first program compares with the second.
pub(crate) fn compare(first: &[Figure], second: &[Figure]) {
    println!("| measured | first | second | ratio |\n|---|---|---|---|");
    for (one, other) in first.iter().zip(second) {
        let ratio = one.value / other.value;
        println!(
            "| {} | {:.2} {} | {:.2} {} | {ratio:.3} |",
            one.what, one.value, one.unit, other.value, other.unit
        );
    }
}
