//! The ids of each pod, in a file of its folder, in the kubelet's format. There is no other state: the ids of a removed
//! folder are free, and after a restart the files have all ids in use.

use std::fs;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::path::Path;

use kubelet_core::files::Replace;
use kubelet_core::{PodUid, RootDir};
use serde::{Deserialize, Serialize};

use super::UserNamespaceIds;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Mappings {
    uid_mappings: Vec<Mapping>,
    gid_mappings: Vec<Mapping>,
}

/// A range of ids of the host, and its begin in the namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Mapping {
    pub(super) host_id: u32,
    pub(super) container_id: u32,
    pub(super) length: u32,
}

/// The ids of the pod. A pod without ids gets the first part that no pod on disk has.
pub(super) fn get_or_create(root_dir: &RootDir, ids: UserNamespaceIds, uid: &PodUid) -> io::Result<Mapping> {
    let file = root_dir.pod_user_namespace_file(uid);
    let others = of_others(root_dir, uid)?;
    let is_free = |part: &Range<u64>| !others.iter().any(|other| overlap(other, part));
    if let Some(own) = read(&file)? {
        let part = own.host_ids();
        return match ids.all().start <= part.start && part.end <= ids.all().end && is_free(&part) {
            true => Ok(own),
            false => Err(problem(&file, "its ids are not for pods, or another pod's")),
        };
    }
    let part = ids.parts().find(is_free);
    let part = part.ok_or_else(|| io::Error::other("no ids are left for another user namespace"))?;
    let own = Mapping {
        host_id: u32::try_from(part.start).map_err(io::Error::other)?,
        container_id: 0,
        length: ids.per_pod,
    };
    write(&file, own)?;
    Ok(own)
}

impl Mapping {
    fn host_ids(self) -> Range<u64> {
        u64::from(self.host_id)..u64::from(self.host_id) + u64::from(self.length)
    }
}

fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

/// A file that cannot be read may have any ids, so no pod gets ids then.
fn of_others(root_dir: &RootDir, uid: &PodUid) -> io::Result<Vec<Range<u64>>> {
    let entries = match fs::read_dir(root_dir.pods_dir()) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut found = Vec::new();
    for entry in entries {
        let name = entry?.file_name();
        let Some(other) = name.to_str().map(PodUid::new).filter(|other| other != uid) else {
            continue;
        };
        found.extend(read(&root_dir.pod_user_namespace_file(&other))?.map(Mapping::host_ids));
    }
    Ok(found)
}

/// An empty file counts as missing.
fn read(file: &Path) -> io::Result<Option<Mapping>> {
    let text = match fs::read(file) {
        Ok(text) if text.is_empty() => return Ok(None),
        Ok(text) => text,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(error) => return Err(problem(file, error)),
    };
    let read: Mappings = serde_json::from_slice(&text).map_err(|error| problem(file, error))?;
    let ([uids], [gids]) = (&*read.uid_mappings, &*read.gid_mappings) else {
        return Err(problem(file, "it must have one mapping of UIDs and one of GIDs"));
    };
    if uids != gids {
        return Err(problem(file, "the mappings of UIDs and GIDs differ"));
    }
    // A runtime requires that root is mapped.
    if uids.container_id != 0 || uids.length == 0 {
        return Err(problem(file, "UID 0 is not mapped"));
    }
    Ok(Some(*uids))
}

/// Writes it so that it is complete after a crash.
fn write(file: &Path, own: Mapping) -> io::Result<()> {
    fs::create_dir_all(file.parent().unwrap_or(file))?;
    let mappings = Mappings {
        uid_mappings: vec![own],
        gid_mappings: vec![own],
    };
    let replace = Replace {
        private: false,
        durable: true,
    };
    let partial = file.with_extension("partial");
    replace.write(file, &partial, &serde_json::to_vec(&mappings)?)
}

fn problem(file: &Path, problem: impl std::fmt::Display) -> io::Error {
    io::Error::other(format!("{}: {problem}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const K64: u32 = 65_536;

    fn ids(pods: u32) -> UserNamespaceIds {
        UserNamespaceIds::new(K64, pods * K64, K64).unwrap()
    }

    fn first(root_dir: &RootDir, ids: UserNamespaceIds, uid: &str) -> Result<u32, String> {
        let mapping = get_or_create(root_dir, ids, &PodUid::from(uid));
        mapping
            .map(|mapping| mapping.host_id)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn each_pod_has_its_own_and_what_went_is_free() {
        let dir = tempfile::tempdir().unwrap();
        let root_dir = RootDir::new(dir.path());
        // A pod without ids, and a file that is not a pod.
        fs::create_dir_all(root_dir.pod_dir(&PodUid::from("plain"))).unwrap();
        fs::write(root_dir.pods_dir().join("file"), "").unwrap();
        let ids = ids(3);
        assert_eq!(first(&root_dir, ids, "a"), Ok(K64));
        assert_eq!(first(&root_dir, ids, "b"), Ok(2 * K64));
        assert_eq!(first(&root_dir, ids, "c"), Ok(3 * K64));
        assert_eq!(first(&root_dir, ids, "a"), Ok(K64));
        assert_eq!(
            first(&root_dir, ids, "d"),
            Err("no ids are left for another user namespace".to_owned())
        );
        fs::remove_file(root_dir.pod_user_namespace_file(&PodUid::from("b"))).unwrap();
        assert_eq!(first(&root_dir, ids, "d"), Ok(2 * K64));
        fs::remove_dir_all(root_dir.pod_dir(&PodUid::from("a"))).unwrap();
        assert_eq!(first(&root_dir, ids, "b"), Ok(K64));
    }

    #[test]
    fn a_file_is_the_kubelets() {
        let dir = tempfile::tempdir().unwrap();
        let root_dir = RootDir::new(dir.path());
        first(&root_dir, ids(3), "a").unwrap();
        let written = fs::read_to_string(root_dir.pod_dir(&PodUid::from("a")).join("userns")).unwrap();
        let mapping = r#"[{"hostId":65536,"containerId":0,"length":65536}]"#;
        assert_eq!(
            written,
            format!(r#"{{"uidMappings":{mapping},"gidMappings":{mapping}}}"#)
        );
    }

    #[test]
    fn what_there_is_counts_or_is_refused() {
        let one = |host: u32, container: u32, length: u32| {
            format!(r#"[{{"hostId":{host},"containerId":{container},"length":{length}}}]"#)
        };
        let file = |uids: &str, gids: &str| format!(r#"{{"uidMappings":{uids},"gidMappings":{gids}}}"#);
        let same = |mapping: String| file(&mapping, &mapping);
        let two = format!(
            "{},{}",
            one(K64, 0, K64).trim_end_matches(']'),
            &one(2 * K64, 0, K64)[1..]
        );
        for (text, expected) in [
            (same(one(3 * K64, 0, K64)), Some(3 * K64)),
            // Another `idsPerPod` does not move it.
            (same(one(2 * K64, 0, 2 * K64)), Some(2 * K64)),
            (String::new(), Some(2 * K64)),
            (same(one(K64, 0, K64)), None),
            (same(one(0, 0, K64)), None),
            (same(one(4 * K64, 0, K64)), None),
            (same(one(3 * K64, 1, K64)), None),
            (same(one(3 * K64, 0, 0)), None),
            (same(one(u32::MAX, 0, K64)), None),
            (same(two), None),
            (same("[]".to_owned()), None),
            (file(&one(3 * K64, 0, K64), &one(2 * K64, 0, K64)), None),
            ("{".to_owned(), None),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let root_dir = RootDir::new(dir.path());
            first(&root_dir, ids(3), "other").unwrap();
            fs::create_dir_all(root_dir.pod_dir(&PodUid::from("a"))).unwrap();
            fs::write(root_dir.pod_user_namespace_file(&PodUid::from("a")), &text).unwrap();
            assert_eq!(first(&root_dir, ids(3), "a").ok(), expected, "{text}");
        }
    }

    #[test]
    fn where_one_cannot_be_read_nobody_gets_any() {
        let dir = tempfile::tempdir().unwrap();
        let root_dir = RootDir::new(dir.path());
        fs::create_dir_all(root_dir.pod_dir(&PodUid::from("other"))).unwrap();
        fs::write(root_dir.pod_user_namespace_file(&PodUid::from("other")), "{").unwrap();
        let refused = first(&root_dir, ids(3), "a").unwrap_err();
        assert!(refused.contains("pods/other/userns: "), "{refused}");
        assert!(!root_dir.pod_dir(&PodUid::from("a")).exists());
    }
}
