//! The server as an HTTP service.

mod answer;
mod discovery;
mod exchange;
mod media;
mod openapi;
mod parameters;
mod protobuf;
mod service;
mod shape;
mod target;
mod watch;

pub use answer::ApiBody;
pub(crate) use exchange::TOKEN_PATH;
pub use service::ApiService;
