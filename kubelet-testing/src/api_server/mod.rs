//! An API server in memory.

mod request;
mod resource;
mod status_error;

pub use request::User;
