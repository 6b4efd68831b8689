//! Images as a table of commands.

use std::collections::BTreeMap;

use async_trait::async_trait;

use crate::verbs::{ImageInfo, Images, Result, RuntimeError};

/// What each image runs.
pub(super) struct ImageTable {
    commands: BTreeMap<String, Vec<String>>,
    /// Whether other images count as present, too.
    pub(super) any: bool,
}

impl Default for ImageTable {
    fn default() -> Self {
        Self {
            commands: BTreeMap::new(),
            any: true,
        }
    }
}

impl ImageTable {
    pub(super) fn insert(&mut self, name: String, command: Vec<String>) {
        self.commands.insert(with_tag(&name), command);
    }

    /// The command of an image of the table.
    pub(super) fn command(&self, image: &str) -> Option<&[String]> {
        self.commands.get(&with_tag(image)).map(Vec::as_slice)
    }

    fn info(&self, image: &str) -> Option<ImageInfo> {
        let known = self.commands.contains_key(&with_tag(image));
        (known || self.any).then(|| describe(image, known))
    }
}

#[async_trait]
impl Images for ImageTable {
    async fn list(&self) -> Result<Vec<ImageInfo>> {
        Ok(self.commands.keys().map(|name| describe(name, true)).collect())
    }

    async fn status(&self, image: &str) -> Result<Option<ImageInfo>> {
        Ok(self.info(image))
    }

    async fn pull(&self, image: &str) -> Result<ImageInfo> {
        let about = format!("image {image:?}");
        let missing = || {
            RuntimeError::gone(
                about,
                "not in the image table; the process runtime does not pull images",
            )
        };
        self.info(image).ok_or_else(missing)
    }

    async fn remove(&self, image: &str) -> Result<()> {
        if self.commands.contains_key(&with_tag(image)) {
            let message = "an image of the table cannot be removed";
            return Err(RuntimeError::permanent(format!("image {image:?}"), message));
        }
        Ok(())
    }
}

/// An image runs as the agent's own user, like all containers. A check of `runAsNonRoot` uses this user.
fn describe(name: &str, of_the_table: bool) -> ImageInfo {
    let mut info = ImageInfo::named(name);
    info.pinned = of_the_table;
    info.uid = Some(i64::from(rustix::process::geteuid().as_raw()));
    info
}

/// The name with its tag or digest; `latest` if it has none.
fn with_tag(name: &str) -> String {
    let last = name.rsplit('/').next().unwrap_or(name);
    if last.contains([':', '@']) {
        name.to_owned()
    } else {
        format!("{name}:latest")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_tag_means_latest() {
        let mut table = ImageTable::default();
        table.insert("localhost:5000/web".into(), vec!["httpd".into()]);
        table.insert("job:v1".into(), vec!["true".into()]);
        for (image, known) in [
            ("localhost:5000/web", true),
            ("localhost:5000/web:latest", true),
            ("localhost:5000/web:v2", false),
            ("job", false),
            ("job:v1", true),
        ] {
            assert_eq!(table.command(image).is_some(), known, "{image}");
            assert!(table.info(image).is_some());
        }
        table.any = false;
        assert!(table.info("job").is_none());
    }
}
