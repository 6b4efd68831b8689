use super::*;

#[test]
fn zz_dev() {
    use crate::manifest::{defaults, json, read};
    let Ok(text) = std::fs::read_to_string(std::env::var("ZZ").unwrap_or_default()) else {
        return;
    };
    let mut bad = 0;
    let mut good = 0;
    let mut skipped = 0;
    for line in text.lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let name = case["name"].as_str().unwrap();
        let Some(dump) = case["dumps"].get(0).and_then(|v| v.as_str()) else {
            skipped += 1;
            continue;
        };
        let file = case["file"].as_str().unwrap();
        let text = match read(file.as_bytes()) {
            Ok(t) => t,
            Err(e) => {
                println!("{name}: UNREADABLE {e}");
                continue;
            }
        };
        let mut pod: k8s_openapi::api::core::v1::Pod = match serde_json::from_value(text.canonical) {
            Ok(p) => p,
            Err(e) => {
                println!("{name}: UNDECODED {e}");
                continue;
            }
        };
        defaults::set_defaults(&mut pod);
        match pod_dump(&json(&pod), &text.written, text.syntax) {
            Ok(ours) if ours == dump => {
                good += 1;
                let path = std::path::Path::new(case["path"].as_str().unwrap_or(""));
                let loc = match case["url"].as_str() {
                    Some(u) => Location::Url(u),
                    None => Location::File(path),
                };
                assert_eq!(
                    hash(&ours, case["node"].as_str().unwrap_or(""), loc),
                    case["uids"][0],
                    "{name}"
                );
            }
            Ok(ours) => {
                bad += 1;
                let at = ours
                    .bytes()
                    .zip(dump.bytes())
                    .position(|(a, b)| a != b)
                    .unwrap_or(ours.len().min(dump.len()));
                let from = at.saturating_sub(60);
                let show = |s: &str| {
                    let b = s.as_bytes();
                    String::from_utf8_lossy(&b[from.min(b.len())..(at + 120).min(b.len())]).into_owned()
                };
                println!(
                    "{name}: {}\n   ours   {}\n   theirs {}",
                    case["error"]
                        .as_str()
                        .unwrap_or("")
                        .chars()
                        .take(150)
                        .collect::<String>(),
                    show(&ours),
                    show(dump)
                );
            }
            Err(reason) => {
                bad += 1;
                println!("{name}: {reason}");
            }
        }
    }
    println!("good {good} bad {bad} skipped {skipped}");
}
