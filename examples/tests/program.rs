//! Finds the programs that the tests run.

use std::path::{Path, PathBuf};

/// A built program, next to the test programs.
pub(crate) fn program(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let target = test.ancestors().nth(2).unwrap();
    // Some are packages; the others are examples.
    let programs = [target.join("examples").join(name), target.join(name)];
    let Some(program) = programs.into_iter().find(|program| program.exists()) else {
        panic!("{name} is missing: cargo build --workspace --examples --bins --all-features");
    };
    if is_stale(&program) {
        #[expect(clippy::print_stdout, reason = "shown with a failure, which it may explain")]
        {
            println!(
                "{} is older than its sources: cargo build --workspace --examples --bins --all-features",
                program.display()
            );
        }
    }
    program
}

/// Whether a source that cargo noted for it was changed after it was built.
fn is_stale(program: &Path) -> bool {
    let modified = |path: &Path| std::fs::metadata(path).and_then(|metadata| metadata.modified()).ok();
    let sources = std::fs::read_to_string(program.with_extension("d")).unwrap_or_default();
    let sources = sources.split_once(": ").map_or("", |(_, sources)| sources);
    sources.split_whitespace().any(|source| modified(Path::new(source)) > modified(program))
}
