//! An API server in memory.

mod authorize;
mod certificates;
mod http;
mod listener;
mod managed_fields;
mod objects;
mod patch;
mod request;
mod resource;
mod schema;
mod server;
mod status_error;
mod store;
mod table;
mod tokens;
mod write;

pub use http::{ApiBody, ApiService};
pub use request::User;
pub use server::{ApiServer, ApiServerBuilder};
