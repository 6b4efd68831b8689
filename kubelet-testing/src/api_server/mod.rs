//! An API server in memory.

mod authorize;
mod certificates;
mod managed_fields;
mod objects;
mod patch;
mod request;
mod resource;
mod schema;
mod status_error;
mod table;
mod tokens;

pub use request::User;
