//! Links a smaller program: functions with the same code are one, and the list of addresses to change at the start is packed.
//!
//! Both are for LLVM's linker, which is the default for this target only. Who chooses a linker keeps its defaults.

use std::env::{var, var_os};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let is = |name: &str, value: &str| var(name).is_ok_and(|it| it == value);
    let flags = var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    let default_linker = var_os("RUSTC_LINKER").is_none() && !flags.contains("link");
    if is("TARGET", "x86_64-unknown-linux-gnu") && is("PROFILE", "release") && default_linker {
        println!("cargo:rustc-link-arg-bins=-Wl,--icf=safe");
        println!("cargo:rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}
