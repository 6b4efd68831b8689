//! Rules of the status function that the recordings do not reach.
#![allow(clippy::unwrap_used)]

mod case;
mod containers;
mod pods;
