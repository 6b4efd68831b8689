//! Compares the API server in memory with a real one, v1.36.2: it repeats every request of a recording in order, and
//! compares every response as a whole.
//!
//! Values that differ from run to run (UIDs, resource versions, random suffixes, tokens, certificates) are mapped: each value
//! of the recording is always the same value here, and resource versions grow in the same order. Times are equal, because
//! the clock is set to the recording's time. The test also repeats what other clients did to the objects meanwhile (a
//! scheduler, a kubelet, the controller manager), as far as the recording shows it.
//!
//! `RECORDED_API_SERVER` names another recording (JSON lines) to replay instead.

mod compare;
mod others;
mod replay;

use std::io::Read;

use flate2::read::GzDecoder;
use serde_json::Value;

/// Requests that are not compared, and why.
const OUT_OF_SCOPE: &[(&str, &str)] = &[("get-pod", CHANGED_BY_CLIENT), ("csr-c-get", CHANGED_BY_CLIENT)];
/// The recording client went on to change what it had got, for its next request, before it wrote it down.
const CHANGED_BY_CLIENT: &str = "the recording shows the answer as its client changed it";

fn recording() -> Vec<Value> {
    let text = match std::env::var_os("RECORDED_API_SERVER") {
        Some(path) => std::fs::read_to_string(path).expect("the recording named by RECORDED_API_SERVER"),
        None => {
            let mut text = String::new();
            let bytes = include_bytes!("../../data/api-server.jsonl.gz");
            GzDecoder::new(bytes.as_slice())
                .read_to_string(&mut text)
                .expect("the recording");
            text
        }
    };
    text.lines()
        .map(|line| serde_json::from_str(line).expect("a recorded request"))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn answers_as_the_real_one_does() {
    let records = recording();
    let mut replay = replay::Replay::new(&records);
    let mut failures = Vec::new();
    for record in &records {
        let name = record["name"].as_str().unwrap_or_default();
        let differences = replay.run(record).await;
        if OUT_OF_SCOPE.iter().any(|(listed, _)| *listed == name) {
            assert!(
                !differences.is_empty(),
                "{name} is listed as out of scope and is equal: take it off the list"
            );
        } else if !differences.is_empty() {
            failures.push(format!("{name}:\n    {}", differences.join("\n    ")));
        }
    }
    failures.extend(replay.disorder());
    assert!(
        failures.is_empty(),
        "{} of {} answers differ:\n{}",
        failures.len(),
        records.len(),
        failures.join("\n")
    );
    assert!(OUT_OF_SCOPE.len() * 10 < records.len());
}
