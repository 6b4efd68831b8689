//! What the agent writes beside the mount of a volume, to unmount it without an API server: `vol_data.json`, as the
//! kubelet's, so that either agent can unmount what the other one mounted.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use super::paths::VOLUME_DATA;
use kubelet_core::files::{self, Replace};

/// Written first, then renamed: an agent that is killed leaves the old file or the new one.
const UNFINISHED: &str = "vol_data.json.new";

/// The content of the file. Empty values are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct VolumeData(BTreeMap<String, String>);

impl VolumeData {
    pub(crate) fn new<'a>(values: impl IntoIterator<Item = (&'static str, &'a str)>) -> Self {
        let set = values.into_iter().filter(|(_, value)| !value.is_empty());
        Self(
            set.map(|(key, value)| (key.to_owned(), value.to_owned()))
                .collect(),
        )
    }

    fn get(&self, key: &str) -> &str {
        self.0.get(key).map(String::as_str).unwrap_or_default()
    }

    pub(crate) fn driver(&self) -> &str {
        self.get(DRIVER_NAME)
    }

    pub(crate) fn handle(&self) -> &str {
        self.get(VOLUME_HANDLE)
    }

    pub(crate) fn spec_name(&self) -> &str {
        self.get(SPEC_NAME)
    }

    pub(crate) fn is_ephemeral(&self) -> bool {
        self.get(LIFECYCLE_MODE) == "Ephemeral"
    }

    /// Writes the file in `dir`. Blocks. It need not survive a loss of power: no mount does.
    pub(crate) fn save(&self, dir: &Path) -> io::Result<()> {
        if Self::load(dir).is_ok_and(|before| before == *self) {
            return Ok(());
        }
        let (file, unfinished) = (dir.join(VOLUME_DATA), dir.join(UNFINISHED));
        Replace::default().write(&file, &unfinished, self.text()?.as_bytes())
    }

    /// Reads the file in `dir`. An empty one, as a loss of power leaves it, counts as missing. Blocks.
    pub(crate) fn load(dir: &Path) -> io::Result<Self> {
        let text = fs::read(dir.join(VOLUME_DATA))?;
        if text.is_empty() {
            return Err(io::Error::from(io::ErrorKind::NotFound));
        }
        Ok(Self(serde_json::from_slice(&text)?))
    }

    /// Removes the file in `dir`. Blocks.
    pub(crate) fn remove(dir: &Path) -> io::Result<()> {
        [UNFINISHED, VOLUME_DATA]
            .iter()
            .try_for_each(|name| files::remove(&dir.join(name)))
    }

    /// As Go encodes it: one line, keys sorted, and what HTML could misread is escaped.
    fn text(&self) -> io::Result<String> {
        let mut text = serde_json::to_string(&self.0)?;
        for (character, escaped) in [
            ('<', "\\u003c"),
            ('>', "\\u003e"),
            ('&', "\\u0026"),
            ('\u{2028}', "\\u2028"),
            ('\u{2029}', "\\u2029"),
        ] {
            if text.contains(character) {
                text = text.replace(character, escaped);
            }
        }
        text.push('\n');
        Ok(text)
    }
}

pub(crate) const SPEC_NAME: &str = "specVolID";
pub(crate) const VOLUME_HANDLE: &str = "volumeHandle";
pub(crate) const DRIVER_NAME: &str = "driverName";
pub(crate) const NODE_NAME: &str = "nodeName";
pub(crate) const ATTACHMENT: &str = "attachmentID";
pub(crate) const LIFECYCLE_MODE: &str = "volumeLifecycleMode";
pub(crate) const SELINUX_CONTEXT: &str = "seLinuxMountContext";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_is_that_of_the_kubelet() {
        let dir = tempfile::tempdir().unwrap();
        let data = VolumeData::new([
            (VOLUME_HANDLE, "a&b"),
            (DRIVER_NAME, "d.example.com"),
            (SELINUX_CONTEXT, ""),
        ]);
        data.save(dir.path()).unwrap();
        assert_eq!(
            fs::read_to_string(dir.path().join(VOLUME_DATA)).unwrap(),
            "{\"driverName\":\"d.example.com\",\"volumeHandle\":\"a\\u0026b\"}\n"
        );
        assert_eq!(VolumeData::load(dir.path()).unwrap(), data);
        VolumeData::remove(dir.path()).unwrap();
        VolumeData::remove(dir.path()).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
