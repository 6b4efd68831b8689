//! gRPC on unix sockets.

mod authority;
mod connect;
mod serve;
mod status;

pub(crate) use self::connect::Place;
pub(crate) use self::serve::{listen, serve};
pub(crate) use self::status::describe;
