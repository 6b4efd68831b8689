//! Logs of containers: read, followed, rotated.

mod following;
mod reading;
mod rotating;
mod runtime;
