//! The server as an HTTP service.

mod answer;
mod discovery;
mod media;
mod openapi;
mod service;
mod shape;
mod target;
mod watch;

pub use answer::ApiBody;
pub use service::ApiService;
pub(crate) use service::TOKEN_PATH;
