//! The plugins, each in its own file.

pub(crate) mod empty_dir;
pub(crate) mod host_path;
pub(crate) mod projected;
