//! Writes the public items of crates, a line each, as rustdoc describes them in JSON.
//!
//! `public-api-lists [--check] JSON-FOLDER LIST-FOLDER CRATE…`. With `--check` it writes nothing, prints the lines that differ, and
//! fails if there are any.

use std::collections::BTreeSet;
use std::error::Error;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

/// The items of a crate. Implementations of `Send` and the like, blanket ones and derived ones are left out: they follow from others.
fn list(json: &Path) -> Result<String, Box<dyn Error>> {
    let api = public_api::Builder::from_rustdoc_json(json)
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .omit_auto_derived_impls(true)
        .build()
        .map_err(|error| format!("{}: {error}", json.display()))?;
    Ok(api.items().map(|item| format!("{item}\n")).collect())
}

/// Prints what is in one text only. Returns whether there is something.
fn differ(name: &str, listed: &str, now: &str) -> bool {
    let (before, after): (BTreeSet<&str>, BTreeSet<&str>) = (listed.lines().collect(), now.lines().collect());
    let gone = before.difference(&after).map(|line| format!("- {line}"));
    let new = after.difference(&before).map(|line| format!("+ {line}"));
    let lines: Vec<String> = gone.chain(new).collect();
    if !lines.is_empty() {
        println!("{name}:\n{}", lines.join("\n"));
    }
    !lines.is_empty()
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let is_check = arguments.first().is_some_and(|first| first == "--check");
    arguments.drain(..usize::from(is_check));
    let [from, to, crates @ ..] = arguments.as_slice() else {
        return Err("usage: public-api-lists [--check] JSON-FOLDER LIST-FOLDER CRATE…".into());
    };
    let mut is_different = false;
    for name in crates {
        let now = list(&Path::new(from).join(name.replace('-', "_") + ".json"))?;
        let file = Path::new(to).join(name.clone() + ".txt");
        if is_check {
            is_different |= differ(name, &fs::read_to_string(file).unwrap_or_default(), &now);
        } else {
            fs::write(file, now)?;
        }
    }
    Ok(if is_different { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
