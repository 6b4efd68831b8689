//! Certificates from the first to the last, against an API server in memory and in virtual time.
mod bootstrap;
mod connections;
mod hostile;
mod rig;
mod rotation;
mod serving;
