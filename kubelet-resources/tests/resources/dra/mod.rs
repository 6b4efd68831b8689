//! Dynamic resource allocation.

mod cdi;
mod crash;
mod fixture;
mod health;
mod plugins;
mod prepare;
mod sockets;
mod state_file;
mod unprepare;
