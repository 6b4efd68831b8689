//! What lies in a folder of manifests, and what has changed since it was read last.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, Metadata};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kubelet_core::{PodExt, SourceUpdate};

use super::read::{ReadError, read};
use super::watch::{Identity, Noticed, Watch};
use crate::manifest::{self, Location};

/// A folder of manifests, or a single one, as it was read last. Its calls block.
pub(super) struct Folder {
    path: PathBuf,
    node_name: String,
    noticed: Arc<Noticed>,
    watch: Option<Watch>,
    /// Each problem is reported once.
    watch_trouble: Option<String>,
    trouble: Option<String>,
    files: BTreeMap<PathBuf, Entry>,
    /// The pods sent last. `None`: none sent yet.
    sent: Option<Vec<Arc<Pod>>>,
    /// Whether the pods must be sent again, changed or not.
    unavailable: bool,
}

/// A file as it was read last.
#[derive(Default)]
struct Entry {
    /// What it held when it was decoded last.
    text: Option<Vec<u8>>,
    /// The last good pod it held.
    pod: Option<Arc<Pod>>,
    /// Whether `pod` is what the file holds now.
    good: bool,
    /// The pod of a file that had this name and was removed, while the file that has it now holds no pod yet.
    former: Option<Arc<Pod>>,
    problem: Option<String>,
    told_problem: Option<String>,
}

impl Folder {
    pub(super) fn new(path: PathBuf, node_name: String, noticed: Arc<Noticed>) -> Self {
        Self {
            path,
            node_name,
            noticed,
            watch: None,
            watch_trouble: None,
            trouble: None,
            files: BTreeMap::new(),
            sent: None,
            unavailable: false,
        }
    }

    pub(super) fn is_watched(&self) -> bool {
        self.watch.is_some()
    }

    /// Reads all files and returns what is new. A file that was removed and made again since the last read is a removal and then
    /// an addition, also if it holds the same pod.
    pub(super) fn read(&mut self) -> Vec<SourceUpdate> {
        // What is removed from here on counts at the next read, unless this one misses the file.
        self.mark_removed();
        // The watch starts before the files are read, so that no change between the two is missed.
        self.renew_watch();
        match self.list() {
            Ok(paths) => {
                self.trouble = None;
                self.read_files(paths);
                self.updates()
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.files.clear();
                let mut sent = self.updates();
                let message = "does not exist".to_owned();
                if self.trouble.as_ref() != Some(&message) {
                    let item = self.path.display().to_string();
                    sent.push(SourceUpdate::Problem {
                        item,
                        message: message.clone(),
                    });
                    self.trouble = Some(message);
                }
                sent
            }
            Err(error) => {
                let message = format!("{}: {error}", self.path.display());
                if self.trouble.as_ref() == Some(&message) {
                    return Vec::new();
                }
                self.trouble = Some(message.clone());
                self.unavailable = true;
                vec![SourceUpdate::Unavailable { message }]
            }
        }
    }

    /// The manifest files, or rather what lies in their place.
    fn list(&self) -> io::Result<Vec<PathBuf>> {
        let metadata = fs::metadata(&self.path)?;
        if metadata.is_file() {
            return Ok(vec![self.path.clone()]);
        }
        if !metadata.is_dir() {
            return Err(io::Error::other("neither a folder nor a file"));
        }
        // The path becomes a part of the UID, and the kubelet cleans that of a folder.
        let folder: PathBuf = self.path.components().collect();
        let mut paths = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let name = entry?.file_name();
            if !name.as_encoded_bytes().starts_with(b".") {
                paths.push(folder.join(name));
            }
        }
        Ok(paths)
    }

    fn mark_removed(&mut self) {
        let removed = self.noticed.take_removed();
        if removed.is_empty() {
            return;
        }
        for (path, entry) in &mut self.files {
            if path.file_name().is_some_and(|name| removed.contains(name)) {
                entry.former = entry.former.take().or_else(|| entry.pod.clone());
            }
        }
    }

    fn read_files(&mut self, paths: Vec<PathBuf>) {
        let mut before = std::mem::take(&mut self.files);
        for path in paths {
            let mut entry = before.remove(&path).unwrap_or_default();
            match read(&path) {
                Ok(text) => {
                    if entry.text.as_ref() != Some(&text) {
                        entry.decode(&text, &path, &self.node_name);
                        entry.text = Some(text);
                    }
                }
                Err(ReadError::Gone) => continue,
                Err(ReadError::Bad(problem)) => {
                    entry.text = None;
                    entry.good = false;
                    entry.problem = Some(problem);
                }
            }
            self.files.insert(path, entry);
        }
    }

    fn updates(&mut self) -> Vec<SourceUpdate> {
        let mut sent = Vec::new();
        if let Some(remaining) = self.without_former() {
            self.sent = Some(remaining.clone());
            sent.push(SourceUpdate::Snapshot(remaining));
        }
        let (pods, mut rivals) = self.choose();
        for (path, entry) in &mut self.files {
            let problem = entry.problem.clone().or_else(|| rivals.remove(path));
            if problem != entry.told_problem {
                if let Some(message) = &problem {
                    let (item, message) = (path.display().to_string(), message.clone());
                    sent.push(SourceUpdate::Problem { item, message });
                } else {
                    tracing::info!(source = "file", path = %path.display(), "manifest can be read again");
                }
                entry.told_problem = problem;
            }
        }
        let same = |a: &[Arc<Pod>], b: &[Arc<Pod>]| {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| Arc::ptr_eq(a, b))
        };
        let unavailable = std::mem::take(&mut self.unavailable);
        if unavailable || !self.sent.as_ref().is_some_and(|sent| same(sent, &pods)) {
            self.sent = Some(pods.clone());
            sent.push(SourceUpdate::Snapshot(pods));
        }
        sent
    }

    /// The pods sent last without those of removed files whose names hold a pod again; `None` if there are none.
    fn without_former(&mut self) -> Option<Vec<Arc<Pod>>> {
        let entries = self.files.values_mut().filter(|entry| entry.good);
        let former: Vec<Arc<Pod>> = entries.filter_map(|entry| entry.former.take()).collect();
        let sent = self.sent.as_ref().filter(|_| !former.is_empty())?;
        let is_former = |pod: &Arc<Pod>| former.iter().any(|former| Arc::ptr_eq(former, pod));
        let remaining: Vec<_> = sent.iter().filter(|pod| !is_former(pod)).cloned().collect();
        (remaining.len() < sent.len()).then_some(remaining)
    }

    /// The pods that count, in the order of their paths, and the files whose pods do not.
    fn choose(&self) -> (Vec<Arc<Pod>>, HashMap<PathBuf, String>) {
        let mut owners: HashMap<String, &Path> = HashMap::new();
        let mut rivals = HashMap::new();
        let mut chosen = Vec::new();
        let by_state = |good: bool| self.files.iter().filter(move |(_, entry)| entry.good == good);
        for (path, entry) in by_state(true).chain(by_state(false)) {
            let Some(pod) = &entry.pod else { continue };
            let claims = [format!("name {}", pod.key()), format!("UID {}", pod.uid_str())];
            let rival = claims.iter().find_map(|claim| Some((claim, owners.get(claim)?)));
            if let Some((claim, owner)) = rival {
                let owner = owner.display();
                rivals.insert(
                    path.clone(),
                    format!(
                        "the pod of this file does not run: its {claim} is already taken by the pod in {owner}; give it another one, or \
                         remove one of the two files"
                    ),
                );
                continue;
            }
            owners.extend(claims.map(|claim| (claim, path.as_path())));
            chosen.push((path, pod.clone()));
        }
        chosen.sort_by_key(|(path, _)| *path);
        (chosen.into_iter().map(|(_, pod)| pod).collect(), rivals)
    }

    fn renew_watch(&mut self) {
        // Who watches a file by its inode misses what is renamed over it.
        let folder = match fs::metadata(&self.path) {
            Ok(metadata) if metadata.is_file() => self.path.parent().unwrap_or(Path::new("")),
            _ => &self.path,
        };
        let folder = if folder.as_os_str().is_empty() {
            Path::new(".")
        } else {
            folder
        };
        let Ok(metadata) = fs::metadata(folder) else {
            self.watch = None;
            return;
        };
        let identity = identity(&metadata);
        if self
            .watch
            .as_ref()
            .is_some_and(|watch| watch.is_of(folder, identity))
        {
            return;
        }
        match Watch::new(folder, identity, self.noticed.clone()) {
            Ok(watch) => {
                self.watch = Some(watch);
                self.watch_trouble = None;
            }
            Err(error) => {
                self.watch = None;
                let trouble = error.to_string();
                if self.watch_trouble.as_ref() != Some(&trouble) {
                    tracing::warn!(source = "file", path = %folder.display(), "cannot be watched: {trouble}");
                    self.watch_trouble = Some(trouble);
                }
            }
        }
    }
}

impl Entry {
    fn decode(&mut self, text: &[u8], path: &Path, node_name: &str) {
        match manifest::decode(text, node_name, Location::File(path)) {
            Ok(manifest) => {
                // The same pod in another layout is the same pod.
                if self.pod.as_deref() != Some(&manifest.pod) {
                    self.pod = Some(Arc::new(manifest.pod));
                }
                self.good = true;
                self.problem = (!manifest.passed_over.is_empty()).then(|| manifest.passed_over.join("; "));
            }
            Err(error) => {
                self.good = false;
                self.problem = Some(error.to_string());
            }
        }
    }
}

#[cfg(unix)]
fn identity(metadata: &Metadata) -> Option<Identity> {
    use std::os::unix::fs::MetadataExt;
    Some((metadata.dev(), metadata.ino()))
}

#[cfg(not(unix))]
fn identity(_: &Metadata) -> Option<Identity> {
    None
}
