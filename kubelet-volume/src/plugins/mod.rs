//! The plugins, each in its own file.

mod config_map;
mod downward_api;
mod empty_dir;
mod errors;
mod field_path;
mod host_path;
mod in_tree;
mod nested_mount_points;
mod projected;
mod resource_field;
mod secret;
mod wrapped;

pub use in_tree::InTreePlugins;
