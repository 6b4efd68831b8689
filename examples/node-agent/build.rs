//! Links a smaller program: functions with the same code are one, addresses to change at the start are packed, and there are no tables
//! for unwinding.
//!
//! All this is for LLVM's linker, which is the default for this target only. Who chooses a linker gets its defaults.

use std::env::{var, var_os};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=no-unwind-tables.ld");
    let is = |name: &str, value: &str| var(name).is_ok_and(|it| it == value);
    let flags = var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    let default_linker = var_os("RUSTC_LINKER").is_none() && !flags.contains("link");
    if !is("TARGET", "x86_64-unknown-linux-gnu") || !is("PROFILE", "release") || !default_linker {
        return;
    }
    println!("cargo:rustc-link-arg-bins=-Wl,--icf=all");
    println!("cargo:rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    // A profiler reads the stacks of threads with these tables.
    if var_os("CARGO_FEATURE_PROFILING").is_none() {
        let folder = var("CARGO_MANIFEST_DIR").unwrap_or_default();
        println!("cargo:rustc-link-arg-bins=-Wl,-T,{folder}/no-unwind-tables.ld");
    }
}
