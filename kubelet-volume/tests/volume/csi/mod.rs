//! CSI drivers.

mod proto_generated;
