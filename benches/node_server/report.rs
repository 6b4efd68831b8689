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
fn compare(first: &[Figure], second: &[Figure]) {
    println!("| measured | first | second | ratio |\n|---|---|---|---|");
    for (one, other) in first.iter().zip(second) {
        let ratio = one.value / other.value;
        println!(
            "| {} | {:.2} {} | {:.2} {} | {ratio:.3} |",
            one.what, one.value, one.unit, other.value, other.unit
        );
    }
}

/// Measures each program that the command line names, and compares the first two.
pub(crate) fn compare_programs(bench: &str, measure: impl AsyncFn(&str) -> Option<Vec<Figure>>) {
    // Cargo's own arguments start with a dash.
    let programs: Vec<_> = std::env::args()
        .skip(1)
        .filter(|argument| !argument.starts_with('-'))
        .collect();
    if programs.is_empty() {
        println!("name the programs to measure: cargo bench -p benches --bench {bench} -- PROGRAM…");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let mut measured = Vec::new();
        for program in &programs {
            measured.extend(measure(program).await);
        }
        if let [first, second, ..] = &measured[..] {
            compare(first, second);
        }
    });
}
