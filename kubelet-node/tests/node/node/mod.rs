//! A node against the API server in memory.
mod addresses;
mod engine;
mod lease;
mod log;
mod patching;
mod preflight;
mod recorded;
mod rig;
mod setters;
