//! Reading, following and rotating the logs of containers.

mod following;
mod reading;
mod rotating;
mod runtime;
