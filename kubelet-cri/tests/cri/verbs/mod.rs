//! The adapter over a runtime that does as it is told.

mod adapter;
mod puppet;
