//! Work on files and folders that several plugins share.

pub(crate) mod atomic_writer;
pub(crate) mod dir;
pub(crate) mod ownership;
pub(crate) mod tmpfs;
