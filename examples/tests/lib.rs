//! The tests of the examples as programs; see `main.rs`.
