//! What a path of the host is (`hostutil.GetFileType`).

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// The kinds that volumes differ by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileKind {
    Folder,
    BlockDevice,
    Other,
}

/// The kind of what the path, or the target of the link, is.
pub(crate) fn file_kind(path: &Path) -> io::Result<FileKind> {
    let found = fs::metadata(path).map_err(|error| match error.kind() {
        ErrorKind::NotFound => {
            let path = path.display().to_string();
            io::Error::new(ErrorKind::NotFound, format!("path {path:?} does not exist"))
        }
        _ => super::path_error::path_io_error("stat", path, &error),
    })?;
    let kind = found.file_type();
    Ok(if kind.is_dir() {
        FileKind::Folder
    } else if kind.is_block_device() {
        FileKind::BlockDevice
    } else {
        FileKind::Other
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_told_apart() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(file_kind(folder.path()).unwrap(), FileKind::Folder);
        assert_eq!(file_kind(Path::new("/dev/null")).unwrap(), FileKind::Other);
        let error = file_kind(Path::new("/no/such")).unwrap_err().to_string();
        assert_eq!(error, "path \"/no/such\" does not exist");
    }
}
