//! What was measured of a program.

use std::time::Duration;

use tokio::time::sleep;

use crate::program::{Program, Used};

const SETTLING: Duration = Duration::from_secs(15);
const IDLE: Duration = Duration::from_secs(60);

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

    /// Measures the idle program, once it has settled.
    #[allow(dead_code, reason = "one bench reads other counters between the two")]
    pub(crate) async fn rest(&mut self, program: &Program, pods: usize) {
        settle().await;
        self.idle(program, pods).await;
    }

    /// Measures the idle program.
    pub(crate) async fn idle(&mut self, program: &Program, pods: usize) -> Used {
        let meter = program.meter();
        sleep(IDLE).await;
        let used = meter.used();
        self.idle = used.cpu / used.seconds;
        self.add(format!("{pods} pods, idle: CPU a minute"), self.idle * 60.0, "s");
        self.add(format!("{pods} pods, idle: peak of the memory"), used.peak, "MB");
        used
    }

    /// The CPU time of work, without that of an idle program.
    pub(crate) fn cpu(&self, used: &Used) -> f64 {
        used.cpu - self.idle * used.seconds
    }
}

/// Waits for the effects of a change to settle.
pub(crate) async fn settle() {
    sleep(SETTLING).await;
}

/// Prints the figures of all rounds as a table: the first two programs and their ratio, or the only one.
fn compare(programs: &[String], rounds: &[Vec<Vec<Figure>>]) {
    let name = |program: &String| program.rsplit('/').next().unwrap_or(program).to_owned();
    let (Some(first), second) = (rounds.first(), rounds.get(1)) else {
        return;
    };
    let values = |rounds: &[Vec<Figure>], number: usize| {
        let mut values: Vec<f64> = rounds.iter().map(|round| round[number].value).collect();
        values.sort_by(f64::total_cmp);
        values
    };
    let Some(second) = second else {
        println!("| measured | {} |\n|---|---|", name(&programs[0]));
        for (number, Figure { what, unit, .. }) in first[0].iter().enumerate() {
            println!("| {what} | {} |", with_spread(&values(first, number), unit));
        }
        return;
    };
    println!(
        "| measured | {} | {} | ratio |\n|---|---|---|---|",
        name(&programs[0]),
        name(&programs[1])
    );
    for (number, Figure { what, unit, .. }) in first[0].iter().enumerate() {
        let (one, other) = (values(first, number), values(second, number));
        println!(
            "| {what} | {} | {} | {:.3} |",
            with_spread(&one, unit),
            with_spread(&other, unit),
            middle(&one) / middle(&other)
        );
    }
}

/// The median, and the least and the greatest if they differ; `values` are in order.
fn with_spread(values: &[f64], unit: &str) -> String {
    let middle = middle(values);
    match values {
        [least, .., greatest] => format!("{middle:.2} {unit} ({least:.2} to {greatest:.2})"),
        _ => format!("{middle:.2} {unit}"),
    }
}

fn middle(values: &[f64]) -> f64 {
    (values[(values.len() - 1) / 2] + values[values.len() / 2]) / 2.0
}

/// Measures each program that the command line names, in turns, and compares the first two. `ROUNDS` is how often; the figures are
/// medians of the rounds, with the least and the greatest.
pub(crate) fn compare_programs(bench: &str, measure: impl AsyncFn(&str) -> Option<Vec<Figure>>) {
    // Cargo's own arguments start with a dash.
    let programs: Vec<_> = std::env::args()
        .skip(1)
        .filter(|argument| !argument.starts_with('-'))
        .collect();
    if programs.is_empty() {
        println!("name the programs to measure: cargo bench -p benches --bench {bench} -- PROGRAM…");
    }
    let rounds = std::env::var("ROUNDS").map_or(1, |rounds| rounds.parse().unwrap());
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let mut measured: Vec<Vec<_>> = programs.iter().map(|_| Vec::new()).collect();
        for round in 0..rounds {
            let mut turns: Vec<usize> = (0..programs.len()).collect();
            // The speed of a machine varies: another one is first.
            if round % 2 == 1 {
                turns.reverse();
            }
            for turn in turns {
                // Without root or containerd there is nothing to compare.
                let Some(figures) = measure(&programs[turn]).await else {
                    return;
                };
                measured[turn].push(figures);
            }
        }
        compare(&programs, &measured);
    });
}
