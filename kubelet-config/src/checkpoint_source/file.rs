//! The file of a checkpoint.
//!
//! Its first line is JSON and says what the rest is: format, version, source, time, length and checksum. The rest is a
//! `PodList` as JSON.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kubelet_core::files::Replace;
use serde::{Deserialize, Serialize};

use crate::fnv128a::Fnv128a;

const FORMAT: &str = "pod-checkpoint";
/// Counts up when older readers could no longer understand the file.
const VERSION: u32 = 1;
/// More is no checkpoint of a node's pods.
const MAX_LENGTH: u64 = 64 << 20;
/// The first line is short.
const MAX_HEADER_LENGTH: usize = 4096;

/// Where the pods of one source are kept.
#[derive(Clone)]
pub(super) struct CheckpointFile {
    path: Arc<Path>,
    source: Arc<str>,
}

/// What was found there.
#[derive(Debug)]
pub(super) struct Checkpoint {
    pub(super) pods: Vec<Arc<Pod>>,
    pub(super) saved: Timestamp,
}

#[derive(Serialize, Deserialize)]
struct Header {
    format: String,
    version: u32,
    #[serde(default)]
    source: String,
    #[serde(default)]
    saved: Option<Timestamp>,
    #[serde(default)]
    length: usize,
    #[serde(default)]
    checksum: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct List<'a> {
    api_version: &'a str,
    kind: &'a str,
    items: Vec<&'a Pod>,
}

#[derive(Deserialize)]
struct Items {
    items: Vec<Pod>,
}

/// Why a file is not taken.
struct Unusable {
    suffix: &'static str,
    message: String,
}

impl CheckpointFile {
    pub(super) fn new(path: PathBuf, source: &str) -> Self {
        Self {
            path: path.into(),
            source: source.into(),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn source(&self) -> &str {
        &self.source
    }

    /// What is there; `None` if nothing is. What is of no use is set aside, and the error says so.
    pub(super) fn load(&self) -> Result<Option<Checkpoint>, String> {
        let text = match self.read() {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(self.set_aside(corrupt(error.to_string()))),
        };
        let decoded = text.and_then(|text| self.decode(&text));
        decoded.map(Some).map_err(|unusable| self.set_aside(unusable))
    }

    fn read(&self) -> io::Result<Result<Vec<u8>, Unusable>> {
        // Opening a pipe would wait for its other end.
        let metadata = fs::metadata(&self.path)?;
        if !metadata.is_file() {
            return Ok(Err(corrupt("not a regular file".into())));
        }
        let mut text = Vec::new();
        File::open(&self.path)?
            .take(MAX_LENGTH + 1)
            .read_to_end(&mut text)?;
        if text.len() as u64 > MAX_LENGTH {
            return Ok(Err(corrupt(format!("more than {MAX_LENGTH} bytes"))));
        }
        Ok(Ok(text))
    }

    fn decode(&self, text: &[u8]) -> Result<Checkpoint, Unusable> {
        let end = text
            .iter()
            .take(MAX_HEADER_LENGTH)
            .position(|byte| *byte == b'\n');
        let end = end.ok_or_else(|| corrupt("it has no first line".into()))?;
        let header: Header = serde_json::from_slice(&text[..end])
            .map_err(|error| corrupt(format!("its first line: {error}")))?;
        if header.format != FORMAT {
            return Err(corrupt(format!(
                "its format is {:?}, not {FORMAT:?}",
                header.format
            )));
        }
        if header.version > VERSION {
            let version = header.version;
            let message = format!("its version is {version}, and {VERSION} is the latest known");
            return Err(Unusable {
                suffix: "newer",
                message,
            });
        }
        if header.source != *self.source {
            let message = format!(
                "it is of the source {:?}, not of {:?}",
                header.source, self.source
            );
            return Err(Unusable {
                suffix: "foreign",
                message,
            });
        }
        let list = &text[end + 1..];
        if list.len() != header.length {
            let length = header.length;
            return Err(corrupt(format!("it has {} bytes of {length}", list.len())));
        }
        if checksum(list) != header.checksum {
            return Err(corrupt("its checksum is wrong".into()));
        }
        let list: Items =
            serde_json::from_slice(list).map_err(|error| corrupt(format!("its pods: {error}")))?;
        Ok(Checkpoint {
            pods: list.items.into_iter().map(Arc::new).collect(),
            saved: header.saved.unwrap_or(Timestamp::UNIX_EPOCH),
        })
    }

    fn set_aside(&self, unusable: Unusable) -> String {
        let Unusable { suffix, message } = unusable;
        let aside = self.beside(suffix);
        match fs::rename(&self.path, &aside) {
            Ok(()) => format!("no usable checkpoint: {message}; renamed to {}", aside.display()),
            Err(error) => format!("no usable checkpoint: {message}; cannot be renamed: {error}"),
        }
    }

    /// Writes the pods in place of what was there: all of it or nothing, whatever happens meanwhile.
    pub(super) fn save(&self, pods: &[Arc<Pod>], saved: Timestamp) -> io::Result<()> {
        let list = List {
            api_version: "v1",
            kind: "PodList",
            items: pods.iter().map(|pod| &**pod).collect(),
        };
        let list = serde_json::to_vec(&list)?;
        let header = Header {
            format: FORMAT.into(),
            version: VERSION,
            source: self.source.to_string(),
            saved: Some(saved),
            length: list.len(),
            checksum: checksum(&list),
        };
        if let Some(folder) = self.path.parent() {
            fs::create_dir_all(folder)?;
        }
        let mut contents = serde_json::to_vec(&header)?;
        contents.push(b'\n');
        contents.extend(list);
        let replace = Replace {
            private: true,
            durable: true,
        };
        replace.write(&self.path, &self.beside("tmp"), &contents)
    }

    fn beside(&self, suffix: &str) -> PathBuf {
        let mut name = self.path.as_os_str().to_owned();
        name.push(".");
        name.push(suffix);
        name.into()
    }
}

fn corrupt(message: String) -> Unusable {
    Unusable {
        suffix: "corrupt",
        message,
    }
}

fn checksum(bytes: &[u8]) -> String {
    let mut hasher = Fnv128a::default();
    hasher.write(bytes);
    format!("fnv128a:{}", hasher.hex())
}
