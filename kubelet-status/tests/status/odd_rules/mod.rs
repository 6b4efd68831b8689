//! Rules of the status function that the recordings do not reach.
mod case;
mod containers;
mod pods;
