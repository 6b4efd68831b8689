//! The lengths that the README states.

use std::path::Path;

/// Lines of code: without blank lines and comments, as `tokei` counts them. The programs have no block comments.
fn code_lines(file: &str) -> usize {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert!(!text.contains("/*"), "{file} has block comments");
    let is_code = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with("//");
    text.lines().filter(is_code).count()
}

#[test]
fn a_kubelet_is_forty_lines() {
    let lines = code_lines("../examples/node-agent/main.rs");
    assert!(lines <= 45, "{lines} lines of code");
}

#[test]
fn a_kubelet_with_its_own_runtime_is_sixty_lines() {
    let lines = code_lines("examples/node-of-your-own.rs");
    assert!(lines <= 60, "{lines} lines of code");
}
