//! Holds the API server in memory to the answers of a real one, v1.36.2: every request of a recording is made again, in
//! its order, and every answer is compared as a whole.
//!
//! What differs from run to run (UIDs, resource versions, random suffixes, tokens, certificates) is mapped as it appears:
//! one value of the recording is always the same value here, and resource versions grow alike. Times are equal: the clock
//! stands where it stood when the recording was made. What others did to the objects meanwhile (a scheduler, a kubelet,
//! the controller manager) is done here too, as far as the recording shows it.
//!
//! `RECORDED_API_SERVER` names another recording (JSON lines) to replay instead.

mod compare;
mod others;
mod replay;

use std::io::Read;

use flate2::read::GzDecoder;
use serde_json::Value;

/// What is not compared, and why.
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
