//! An API server in memory.

mod authorize;
mod certificates;
mod objects;
mod request;
mod resource;
mod status_error;
mod table;
mod tokens;

pub use request::User;
