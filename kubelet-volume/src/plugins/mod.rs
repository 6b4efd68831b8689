//! The plugins, each in its own file.
