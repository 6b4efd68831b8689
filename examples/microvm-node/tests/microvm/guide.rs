//! The chapter of the guide shows the code of this folder.

use std::fs;
use std::path::Path;

const CHAPTER: &str = include_str!("../../../../docs/guide/8-microvm.md");

#[test]
fn the_code_of_the_chapter_is_that_of_the_example() {
    let mut sources = Vec::new();
    for folder in ["src", "guest", "manifests", "tests/microvm"] {
        for file in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)).unwrap() {
            let path = file.unwrap().path();
            if path.is_file() && path.file_name().is_some_and(|name| name != "guide.rs") {
                sources.push(lines(&fs::read_to_string(path).unwrap()));
            }
        }
    }
    let mut blocks = 0;
    for block in CHAPTER.split("```").skip(1).step_by(2) {
        let (language, code) = block.split_once('\n').unwrap();
        if language.starts_with("rust") || ["sh", "yaml"].contains(&language) {
            blocks += 1;
            let code = lines(code);
            let shows = |source: &Vec<String>| source.windows(code.len()).any(|window| *window == code);
            assert!(sources.iter().any(shows), "in no file of the example:\n{}", code.join("\n"));
        }
    }
    assert!(blocks > 5);
}

/// The lines without their indentation; in a block, the last one is empty.
fn lines(text: &str) -> Vec<String> {
    text.trim_end().lines().map(|line| line.trim().to_owned()).collect()
}
