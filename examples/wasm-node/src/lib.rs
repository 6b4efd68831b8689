//! A container runtime for WebAssembly, on the five verbs of `kubelet-cri`.
//!
//! [`WasmRuntime`] runs modules of WASI preview 1 and components of WASI preview 2 (`wasi:cli/command`) with wasmtime. The README says
//! what a pod may use.

mod container;
mod cpu;
mod files;
mod images;
mod memory;
mod output;
mod program;
mod runtime;

pub use runtime::{WasmRuntime, WasmRuntimeBuilder};
