//! gRPC on unix sockets.

mod authority;
#[cfg(feature = "device-plugins")]
mod connect;
mod serve;
#[cfg(feature = "device-plugins")]
mod status;

#[cfg(feature = "device-plugins")]
pub(crate) use self::connect::{Place, Transport};
pub(crate) use self::serve::{listen, serve};
#[cfg(feature = "device-plugins")]
pub(crate) use self::status::describe;
