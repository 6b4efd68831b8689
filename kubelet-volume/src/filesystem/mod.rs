//! Work on files, folders and mounts that several plugins share.

pub(crate) mod atomic_writer;
pub(crate) mod clean_path;
pub(crate) mod commands;
pub(crate) mod device;
pub(crate) mod file_kind;
pub(crate) mod fs_group;
pub(crate) mod host_mounter;
pub(crate) mod make_dir;
pub(crate) mod mount_table;
pub(crate) mod ownership;
pub(crate) mod path_error;
pub(crate) mod ready;
pub(crate) mod remove_all;
pub(crate) mod usage;
pub(crate) mod walk;
