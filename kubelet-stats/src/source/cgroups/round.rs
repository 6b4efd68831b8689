//! Folders that stay open from one cgroup to the next.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::CWD;
use rustix::io::Errno;

use super::folder;
use crate::source::pseudo_file::{Opened, open_folder};

/// What stays open while cgroups are read one after the other: in each hierarchy, the folder of the last cgroup and of those
/// above it. So the kernel need not look up the path of each cgroup from the root on.
///
/// It is meant for names in the order of a [list](super::Cgroups::list), each after the one above it; another order is only
/// slower. Hold it for one round: a folder that was removed remains open, and another one with its name is not seen.
#[derive(Debug, Default)]
pub struct Round {
    hierarchies: Vec<Hierarchy>,
}

#[derive(Debug)]
struct Hierarchy {
    root: PathBuf,
    /// The last cgroup.
    last: String,
    /// The folders of `last` and of some above it, with the length of their names. The deepest is at the end.
    open: Vec<(usize, Arc<OwnedFd>)>,
}

impl Round {
    /// The folder of a cgroup below the mountpoint `root`.
    pub(super) fn open(&mut self, root: &Path, name: &str) -> Result<Opened, Errno> {
        let known = self
            .hierarchies
            .iter()
            .position(|hierarchy| hierarchy.root == root);
        let at = known.unwrap_or_else(|| {
            self.hierarchies.push(Hierarchy {
                root: root.to_owned(),
                last: String::new(),
                open: Vec::new(),
            });
            self.hierarchies.len() - 1
        });
        let path = folder(root, name);
        let opened = match self.hierarchies.get_mut(at) {
            Some(hierarchy) => hierarchy.open(&path, name.trim_start_matches('/'))?,
            None => Arc::new(open_folder(CWD, &path)?),
        };
        Ok(Opened::new(path, opened))
    }
}

impl Hierarchy {
    fn open(&mut self, path: &Path, name: &str) -> Result<Arc<OwnedFd>, Errno> {
        let last = &self.last;
        let above =
            |(length, _): &&(usize, _)| last.get(..*length).is_some_and(|above| is_above(above, name));
        let keep = self.open.iter().take_while(above).count();
        self.open.truncate(keep);
        let opened = match self.open.last() {
            Some((length, above)) => {
                let rest = name.get(*length..).unwrap_or_default();
                open_folder(above, Path::new(rest.trim_start_matches('/')))
            }
            None => open_folder(CWD, path),
        };
        let opened = Arc::new(opened?);
        name.clone_into(&mut self.last);
        self.open.push((name.len(), opened.clone()));
        Ok(opened)
    }
}

/// A cgroup above another one. Names are without the first slash; the root's is empty.
fn is_above(above: &str, name: &str) -> bool {
    match name.strip_prefix(above) {
        Some(rest) if above.is_empty() => !rest.is_empty(),
        Some(rest) => rest.starts_with('/'),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_of_each_name_in_any_order() {
        let root = tempfile::tempdir().unwrap();
        let names = ["/", "/a", "/a/b", "/a/b/c", "/a/bc", "/a/bc/c", "/ab", "/ab/c"];
        for name in names {
            std::fs::create_dir_all(folder(root.path(), name)).unwrap();
        }
        let inode = |path: &Path| std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(path).unwrap());
        let backwards = names.iter().rev().chain(["/a/b/c"].iter());
        for order in [names.iter().collect::<Vec<_>>(), backwards.collect()] {
            let mut round = Round::default();
            for name in order {
                let opened = round.open(root.path(), name).unwrap();
                assert_eq!(opened.inode(), Some(inode(&folder(root.path(), name))), "{name}");
                assert!(round.hierarchies[0].open.len() <= 4);
            }
            assert_eq!(round.open(root.path(), "/a/none").err(), Some(Errno::NOENT));
            assert_eq!(round.open(root.path(), "/a/none/b").err(), Some(Errno::NOENT));
            assert!(round.open(root.path(), "/a/b/c").is_ok());
        }
    }
}
