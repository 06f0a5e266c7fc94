//! The Rust that the guide shows is the Rust that is compiled.
#![allow(clippy::unwrap_used)] // tests: also in their helpers

use std::fs;
use std::path::{Path, PathBuf};

fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path, extension));
        } else if path.extension().is_some_and(|it| it == extension) {
            found.push(path);
        }
    }
    found
}

/// Lines without their indentation and without blank ones: a page may show the inside of a function.
fn lines(text: &str) -> Vec<&str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect()
}

#[test]
fn every_block_of_rust_in_the_guide_is_in_a_compiled_example() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let sources: Vec<String> = files(&here.join("src"), "rs").iter().map(|path| fs::read_to_string(path).unwrap()).collect();
    let sources: Vec<Vec<&str>> = sources.iter().map(|text| lines(text)).collect();
    let mut checked = 0;
    for page in files(&here.join("../../docs/guide"), "md") {
        let text = fs::read_to_string(&page).unwrap();
        for block in text.split("```rust\n").skip(1) {
            let block = lines(block.split("```").next().unwrap());
            let found = sources.iter().any(|source| source.windows(block.len()).any(|window| window == block));
            assert!(found, "{} shows code that no example has:\n{}", page.display(), block.join("\n"));
            checked += 1;
        }
    }
    assert!(checked >= 10, "only {checked} blocks of code were found");
}
