//! The plugins, each in its own file.

mod bind;
mod config_map;
mod downward_api;
mod empty_dir;
mod errors;
mod field_path;
mod git_repo;
mod host_path;
mod image;
mod in_tree;
mod local_volume;
pub(crate) mod mount_options;
mod nested_mount_points;
mod nfs;
mod projected;
mod resource_field;
mod secret;
mod wrapped;

pub use in_tree::InTreePlugins;
