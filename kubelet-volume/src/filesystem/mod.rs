//! Work on files and folders that several plugins share.
