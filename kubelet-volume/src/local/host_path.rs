//! Volumes that are a path of the host (`pkg/volume/hostpath`).

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// Checks that `path` matches the volume's `type`, and creates it if the type says so (`checkType`).
pub(crate) fn check(path: &Path, kind: &str) -> io::Result<()> {
    let wrong = |what: &str| {
        let message = format!("hostPath type check failed: {} is not {what}", path.display());
        Err(io::Error::other(message))
    };
    let there = || fs::metadata(path).map(|metadata| metadata.file_type());
    match kind {
        "" => return Ok(()),
        "DirectoryOrCreate" if there().is_err() => {
            return fs::DirBuilder::new().recursive(true).mode(0o755).create(path);
        }
        "FileOrCreate" if there().is_err() => {
            let mut options = fs::OpenOptions::new();
            return options.create(true).append(true).mode(0o644).open(path).map(drop);
        }
        _ => {}
    }
    let is = |test: fn(&fs::FileType) -> bool| there().is_ok_and(|there| test(&there));
    match kind {
        "DirectoryOrCreate" | "Directory" if !is(fs::FileType::is_dir) => wrong("a directory"),
        "FileOrCreate" | "File" if !is(fs::FileType::is_file) => wrong("a file"),
        "Socket" if !is(FileTypeExt::is_socket) => wrong("a socket file"),
        "CharDevice" if !is(FileTypeExt::is_char_device) => wrong("a character device"),
        "BlockDevice" if !is(FileTypeExt::is_block_device) => wrong("a block device"),
        "DirectoryOrCreate" | "Directory" | "FileOrCreate" | "File" | "Socket" | "CharDevice"
        | "BlockDevice" => Ok(()),
        other => Err(io::Error::other(format!("{other} is an invalid volume type"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_must_be_what_its_type_says() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for (name, kind, expected) in [
            ("absent", "", Ok(())),
            ("absent", "Directory", Err("is not a directory")),
            ("made", "DirectoryOrCreate", Ok(())),
            ("made", "Directory", Ok(())),
            ("made", "FileOrCreate", Err("is not a file")),
            ("file", "FileOrCreate", Ok(())),
            ("file", "File", Ok(())),
            ("file", "DirectoryOrCreate", Err("is not a directory")),
            ("file", "Socket", Err("is not a socket file")),
            ("file", "CharDevice", Err("is not a character device")),
            ("file", "BlockDevice", Err("is not a block device")),
            ("file", "Magic", Err("Magic is an invalid volume type")),
        ] {
            let checked = check(&at(name), kind).map_err(|error| error.to_string());
            match expected {
                Ok(()) => assert_eq!(checked, Ok(()), "{name} {kind}"),
                Err(words) => assert!(checked.unwrap_err().contains(words), "{name} {kind}"),
            }
        }
        check(Path::new("/dev/null"), "CharDevice").unwrap();
    }
}
